//! See `stentor_hub::fuzz::fuzz_snapshot` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_hub::fuzz::fuzz_snapshot(data));
