//! See `stentor_access::fuzz::fuzz_token` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_access::fuzz::fuzz_token(data));
