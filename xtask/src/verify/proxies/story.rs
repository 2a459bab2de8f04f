//! The opening story behind a real proxy that buffers: the client's time is up
//! while nginx still hands out the answer, byte by byte, and it orders again.
//! Without a key that reserves twice, with one once.

use super::kinds::{NGINX_SLOW, Running};
use crate::error::Error;
use crate::process::Command;
use crate::verify::context::Context;
use crate::verify::served::Served;
use std::fs;

/// What the second order must get, without a key and with one.
const EXPECTED: [(Option<&str>, &str); 2] = [(None, "reservation res-2"), (Some("order-7"), "reservation res-1")];

/// Both ends of the story.
pub(super) fn run(cx: &mut Context) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-sim --bin steady-sim")?;
    cx.line("cargo build -p mcp-steady-http --example story")?;
    for (key, expected) in EXPECTED {
        let folder = cx.workspace.root.join(cx.workspace.scratch("story")?);
        fs::remove_dir_all(&folder).and_then(|()| fs::create_dir_all(&folder)).map_err(Error::file(&folder))?;
        let server = Command::new(cx.workspace.program("steady-sim")).args(["serve", "--http", "127.0.0.1:0"]);
        let server = Served::start(&server.args(["--ledger"]).arg(folder.join("shop.db")))?;
        let proxied = Running::start(&NGINX_SLOW, server.address())?;
        let client = Command::new(cx.workspace.program("examples/story"));
        let client = client.args([format!("http://{}/mcp", proxied.address), server.url.clone()]).args(key);
        let done = cx.attempt(&client)?;
        done.checked(&client)?;
        let got = done.stdout.lines().last().unwrap_or_default();
        if got != expected {
            return Err(Error::check(format!("ordered again with {key:?}: {got:?} instead of {expected:?}")));
        }
    }
    cx.say("an answer that nginx holds: ordered again without a key it is two reservations, with one it is one");
    Ok(())
}
