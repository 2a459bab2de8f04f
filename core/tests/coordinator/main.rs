//! The server's coordinator with its outbound buffer: a readable script for each rule, and every sequence of two requests.

mod counts;
#[path = "../support/invariants/mod.rs"]
mod invariants;
#[path = "../support/key.rs"]
mod key;
mod scripts;
mod search;
#[path = "../support/searched.rs"]
mod searched;
mod world;
