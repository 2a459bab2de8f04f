//! The seeds of the fuzz targets for HTTP, replayed: each is a case that was once worth keeping.
//!
//! `cargo xtask fuzz` looks for more with libFuzzer; what it finds is added to `core/fuzz/corpus` and fails here first.

#[path = "../../../core/tests/fuzz_corpus/replay.rs"]
mod replay;
mod targets;

use replay::replay;

#[test]
fn sse() {
    replay("sse", targets::sse);
}

#[test]
fn post() {
    replay("post", targets::post);
}
