//! What needs real processes and a runtime: the server itself, and a session with it over real pipes.

mod session;

use std::path::Path;
use std::process::ExitCode;

use steady_sim::lab::{Inventory, inventory_server};
use steady_stdio::{ServerConfig, StdioConfig, run_stdio_with};

pub(crate) use session::session;

/// Serves the inventory over standard input and output.
pub(crate) fn serve(ledger: &Path, principal: &str) -> ExitCode {
    let inventory = match Inventory::open(ledger, principal) {
        Ok(inventory) => inventory,
        Err(error) => return crate::show::failed(&format!("{}: {error}", ledger.display())),
    };
    let server = ServerConfig { principal: Some(principal.into()), ..ServerConfig::default() };
    run_stdio_with(inventory_server(inventory), StdioConfig { server, ..StdioConfig::default() })
}
