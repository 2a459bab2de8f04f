//! Every interleaving of two or three threads around the queue and a request's slot: nobody sleeps through a wake-up, no
//! progress follows the final, nothing follows a cancellation, one end of a request wins.
//!
//! `cargo xtask loom` searches the models and runs each under the mutants that it must kill. Without `--cfg steady_loom`
//! they run once each, as plain threads.

mod client;
mod connection;
mod exchange;
mod hub;
#[path = "../support/invariants/mod.rs"]
mod invariants;
mod ports;
mod queue;
mod session;
mod shim;
