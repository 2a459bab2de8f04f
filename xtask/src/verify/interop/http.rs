//! The same over HTTP, both ways: a client that is given an address, and the
//! server behind it. The client says when the server is to be killed and when
//! the next one is to be started; between the two is a relay, so that both
//! processes have the same address, and their messages can be recorded.

use super::super::compare;
use super::super::context::Context;
use super::super::served::Served;
use super::{CLIENTS, Tool, all_of, fresh_ledger, reservation, same_reservation};
use crate::error::Error;
use crate::process::Command;
use crate::record::Relay;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

/// Our client against the servers of the others, each recorded in files of its own that begin with `record`.
pub(super) fn our_client(cx: &mut Context, record: Option<&Path>) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-http --example interop_http")?;
    let client = Command::new(cx.workspace.program("examples/interop_http"));
    let peers = compare::peers(cx)?;
    let [rmcp, node, python] = ["rmcp", "TypeScript", "Python"].map(|wanted| {
        let server = peers.iter().find(|(name, _)| name.starts_with(wanted));
        let (name, server) = server.ok_or_else(|| Error::check(format!("the server of {wanted} cannot be had")))?;
        cx.say(&format!("our client over HTTP, server {name}"));
        let record = record.map(|prefix| prefix.with_extension(wanted));
        drive(cx, &client, server, record.as_deref()).map(drop)
    });
    all_of([rmcp, node, python])
}

/// The clients of the others against our server, one after the other with one ledger.
pub(super) fn their_clients(
    cx: &mut Context,
    python: Tool,
    rmcp: Tool,
    home: &Path,
    record: Option<&Path>,
) -> Result<(), Error> {
    let ledger = fresh_ledger(home)?;
    let server = Command::new(cx.workspace.program("steady-sim")).args(["serve", "--http", "127.0.0.1:0", "--ledger"]);
    let server = server.arg(ledger);
    let mut drive = |client: &Command, name: &str| {
        let record = record.map(|prefix| prefix.with_extension(name));
        reservation(&drive(cx, client, &server, record.as_deref())?)
    };
    let python = python
        .map_err(Error::check)
        .map(|python| Command::new(python).arg(Path::new(CLIENTS).join("python_client.py")));
    let python = python.and_then(|python| drive(&python, "Python"));
    // The stdio part has installed it.
    let node = drive(&Command::new("node").arg(home.join("node/typescript_client.mjs")), "TypeScript");
    let rmcp = rmcp.map_err(Error::check).and_then(|built| drive(&Command::new(built.join("rmcp-client")), "rmcp"));
    same_reservation([("Python", python), ("TypeScript", node), ("rmcp", rmcp)])
}

/// Starts the server and the client, and does what the client asks for; what it said.
fn drive(cx: &mut Context, client: &Command, server: &Command, record: Option<&Path>) -> Result<String, Error> {
    let mut served = Some(Served::start(server)?);
    let first = served.as_ref().map(|served| served.address().to_string()).unwrap_or_default();
    let relay = Relay::start(&first, record)?;
    let client = client.clone().args([format!("http://{}/mcp", relay.address)]);
    cx.announce(&format!("{client}  # in front of {server}"));
    let mut builder = client.builder();
    let mut child =
        builder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|why| client.not_started(&why))?;
    let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Error::check("no pipes"));
    };
    let mut said = String::new();
    let mut failed = None;
    for line in BufReader::new(stdout).lines().map_while(Result::ok) {
        match &*line {
            "kill" => drop(served.take()),
            "start" => match Served::start(server) {
                Ok(next) => {
                    relay.lead_to(next.address());
                    served = Some(next);
                }
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            },
            _ => {
                cx.say(&line);
                said += &format!("{line}\n");
                continue;
            }
        }
        // A client that is gone has said why.
        let _heard = writeln!(stdin, "done");
    }
    // Whoever still waits for a line waits no longer.
    drop(stdin);
    let status = child.wait().map_err(|why| client.not_started(&why))?;
    drop((served, relay));
    match failed {
        Some(error) => Err(error),
        None if status.success() => Ok(said),
        None => Err(Error::check(format!("{client} ends with {status}"))),
    }
}
