//! `steady-sim serve`: the inventory server, on a real transport.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;

/// Serves the inventory server: reserve_inventory, get_reservation, slow_count.
///
/// With --stdio for a host that starts it, with --http for `curl` and real clients. It ends with its input, or at SIGTERM or
/// Ctrl-C, once what runs has ended or its time is over. Exit codes: 0 it served to its end, 2 it could not begin.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Over standard input and output.
    #[arg(long, required_unless_present = "http", conflicts_with = "http")]
    stdio: bool,
    /// Over HTTP at this address: POST http://ADDR/mcp.
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// The ledger file; it is created if it does not exist.
    #[arg(long, value_name = "FILE")]
    ledger: PathBuf,
    /// Who calls, as far as idempotency keys are concerned: nobody is authenticated.
    #[arg(long, default_value = "local", value_name = "NAME")]
    principal: String,
}

pub(super) fn run(args: &Args) -> ExitCode {
    // Before a ledger is made for nothing. Somebody else may take the port in between; the server says that, too.
    if let Some(address) = &args.http
        && let Err(error) = TcpListener::bind(address)
    {
        return crate::show::failed(&format!(
            "--http {address}: {error}; write it as 127.0.0.1:8080, on a port that is free"
        ));
    }
    crate::live::serve(args.http.as_deref(), &args.ledger, &args.principal)
}
