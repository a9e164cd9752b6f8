//! Files of `data/locks`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| minflt_fuzzing::lock_files(data));
