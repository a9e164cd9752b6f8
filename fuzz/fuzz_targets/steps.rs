//! Any bytes are steps; `mm` and the model must agree about them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| minflt_fuzzing::steps(data));
