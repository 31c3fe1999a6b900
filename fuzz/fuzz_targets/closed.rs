//! See `stentor_log::fuzz::fuzz_closed` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_log::fuzz::fuzz_closed(data));
