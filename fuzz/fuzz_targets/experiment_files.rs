//! Files of `data/postings`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| minflt_fuzzing::experiment_files(data));
