//! The invariants of the machines that need no world around them, and for every checker a value that it must refuse.

#[path = "../support/invariants/mod.rs"]
mod invariants;
mod machines;
mod refused;
#[path = "../support/searched.rs"]
mod searched;
