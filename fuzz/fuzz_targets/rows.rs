//! Rows, as `--json` writes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| minflt_fuzzing::rows(data));
