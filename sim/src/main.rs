//! `steady-sim`: shows the guarantees of mcp-steady, and serves the inventory server that they are shown on.
#![forbid(unsafe_code)]

mod cli;
mod commands;
#[cfg(feature = "live")]
mod live;
mod show;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
