//! See `stentor_wire::fuzz::fuzz_proxied` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_wire::fuzz::fuzz_proxied(data));
