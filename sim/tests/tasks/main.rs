//! Durable tasks with real processes, over both transports: a server and its worker in one process, or in several.
#![cfg(feature = "live")]

#[path = "../support/example.rs"]
mod example;
mod kills;
mod rows;
mod rules;
mod support;
mod workers;
