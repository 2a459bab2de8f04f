//! The server's coordinator with its outbound buffer: a readable script for each rule, and every sequence of two requests.
#![expect(clippy::print_stdout, reason = "the searches report their size")]

#[path = "../support/invariants/mod.rs"]
mod invariants;
#[path = "../support/key.rs"]
mod key;
mod scripts;
mod search;
mod world;
