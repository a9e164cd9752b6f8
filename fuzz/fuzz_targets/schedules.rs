//! Schedules, as `minflt check --replay` takes them.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| minflt_fuzzing::schedules(data));
