//! A stream of server-sent events, cut in pieces.
#![no_main]

#[path = "../../../transport-http/tests/fuzz_corpus/targets.rs"]
#[allow(dead_code, reason = "each target uses one of the bodies")]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::sse(data));
