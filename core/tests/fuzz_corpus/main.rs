//! The seeds of the fuzz targets, replayed: each is a case that was once worth keeping.
//!
//! `cargo xtask fuzz` looks for more with libFuzzer; what it finds is added to `core/fuzz/corpus` and fails here first.

mod replay;
mod targets;

use replay::replay;

#[test]
fn envelope() {
    replay("envelope", targets::envelope);
}

#[test]
fn sealed_state() {
    replay("sealed_state", targets::sealed_state);
}

#[test]
fn events() {
    replay("events", targets::events);
}

#[test]
fn outbound() {
    replay("outbound", targets::outbound);
}
