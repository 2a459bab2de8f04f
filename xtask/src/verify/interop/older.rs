//! Our HTTP client against servers that speak only the revisions before
//! 2026-07-28: one of the TypeScript SDK 1, and the reference server that is
//! built with it.

use super::super::context::Context;
use super::super::served::Served;
use super::{all_of, node, show};
use crate::error::Error;
use crate::process::Command;
use std::path::Path;

/// Where the servers are, from the root of the workspace.
const SERVERS: &str = "transport-http/tests/interop";

/// All of it.
pub(super) fn our_http_client(cx: &mut Context, home: &Path) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-http --example interop_older")?;
    let folder = home.join("node-older");
    let sdk = drive(cx, &folder, "sdk").map(drop);
    let everything = drive(cx, &folder, "everything").and_then(|server| {
        // Its tools do not look at their cancellation, its SDK does.
        let heard = server.heard()?;
        let told = heard == "cancelled a running request";
        if told {
            Ok(())
        } else {
            Err(Error::check(format!("server-everything has heard of no cancellation: {heard:?}")))
        }
    });
    all_of([sdk, everything])
}

/// Runs the client against one of them; the server.
fn drive(cx: &mut Context, folder: &Path, name: &str) -> Result<Served, Error> {
    let script = node(cx, Path::new(SERVERS), &format!("{name}_server.mjs"), folder)?;
    let server = Served::start(&Command::new("node").arg(script))?;
    cx.say(&format!("our client over HTTP, older server {name}"));
    let client = Command::new(cx.workspace.program("examples/interop_older"));
    show(cx, &client.arg(&server.url).arg(name))?;
    Ok(server)
}
