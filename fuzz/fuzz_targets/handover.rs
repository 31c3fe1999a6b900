//! See `stentor_server::fuzz::fuzz_handover` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stentor_server::fuzz::fuzz_handover(data));
