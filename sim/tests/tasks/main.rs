//! Durable tasks with real processes, over both transports: a server and its worker in one process, or in several.
#![cfg(feature = "live")]

mod kills;
mod rows;
mod rules;
mod support;
mod workers;
