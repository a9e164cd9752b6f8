//! Calls of every kind with any arguments: each answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| minflt_fuzzing::calls(data));
