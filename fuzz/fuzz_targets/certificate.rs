//! See `stentor_tls::fuzz::fuzz_certificate` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_tls::fuzz::fuzz_certificate(data));
