//! See `stentor_hub::fuzz::fuzz_entry` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_hub::fuzz::fuzz_entry(data));
