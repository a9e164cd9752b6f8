//! Files of `data/fit`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| minflt_fuzzing::fit_files(data));
