//! Files of `data/machines`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| minflt_fuzzing::machine_files(data));
