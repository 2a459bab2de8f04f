//! A sealed state: forged, changed, opened.
#![no_main]

#[path = "../../tests/fuzz_corpus/targets.rs"]
#[allow(dead_code, reason = "each target uses one of the bodies")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::sealed_state(data));
