//! `steady-ledger`: looks into a ledger, settles what is in doubt, checks, collects and copies it.
#![forbid(unsafe_code)]

mod args;
mod bar;
#[cfg(feature = "postgres")]
mod database;
mod run;
mod show;
mod store;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    match run::run(&cli) {
        Ok(code) => code,
        Err(error) => show::failed(error.as_ref(), cli.json),
    }
}
