//! Other SDKs on the other side, both ways.
//!
//! Their clients against our server: Python, TypeScript and rmcp use the same
//! ledger file with the same key, one after the other, so the reservation of
//! the first must come back to the others: over restarts, a kill in the middle
//! and another client.
//!
//! Our client against their servers, of the same three. What is built with
//! rmcp is a workspace of its own.
//!
//! Both over stdio, and then over HTTP. There our client also meets servers
//! that speak only the revisions before 2026-07-28. Then the interop table, of
//! both eras.

mod eras;
mod http;
mod older;

use super::context::Context;
use super::schema::recorder;
use crate::error::Error;
use crate::process::Command;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the clients of scripting languages are, from the root of the workspace.
const CLIENTS: &str = "sim/tests/interop";
/// Where the servers of other SDKs are, and all that is built with rmcp.
pub(crate) const SERVERS: &str = "transport-stdio/tests/interop";

/// A program or a folder of programs, or why there is none.
type Tool = Result<PathBuf, String>;

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let home = cx.workspace.scratch("interop")?;
    // Both directions need them, and each says so if one is not there.
    let python = python(cx, &home).map_err(|why| why.to_string());
    let rmcp = rmcp(cx, &home).map_err(|why| why.to_string());
    let stdio = their_clients(cx, python.clone(), rmcp.clone(), &home, &[]);
    let ours_over_stdio = our_client(cx, python.clone(), rmcp.clone(), &home, &[]);
    let over_http = http::their_clients(cx, python.clone(), rmcp.clone(), &home, None);
    let ours_over_http = http::our_client(cx, None);
    let older = older::our_http_client(cx, &home);
    let eras = eras::run(cx, python, rmcp, &home);
    all_of([stdio, ours_over_stdio, over_http, ours_over_http, older, eras])
}

/// The same, with everything that is said in files that begin with these prefixes. Returns the Python that it used.
pub(super) fn record(cx: &mut Context, server: &Path, client: &Path) -> Result<PathBuf, Error> {
    let home = cx.workspace.scratch("interop")?;
    let python = python(cx, &home)?;
    let rmcp = rmcp(cx, &home).map_err(|why| why.to_string());
    their_clients(cx, Ok(python.clone()), rmcp.clone(), &home, &recorder(server, &[])?)?;
    our_client(cx, Ok(python.clone()), rmcp.clone(), &home, &recorder(client, &[])?)?;
    http::their_clients(cx, Ok(python.clone()), rmcp, &home, Some(server))?;
    http::our_client(cx, Some(client))?;
    Ok(python)
}

/// The clients of the others against our server, which is started behind `recorder`.
fn their_clients(cx: &mut Context, python: Tool, rmcp: Tool, home: &Path, recorder: &[String]) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-sim --bin steady-sim")?;
    let server = cx.workspace.program("steady-sim");
    let ledger = fresh_ledger(home)?;
    let serve =
        |client: Command| client.args(recorder).arg(&server).args(["serve", "--stdio", "--ledger"]).arg(&ledger);

    let python = python.map_err(Error::check);
    let script = Path::new(CLIENTS).join("python_client.py");
    let python = python.and_then(|python| drive(cx, &serve(Command::new(python).arg(script))));
    let node = node(cx, Path::new(CLIENTS), "typescript_client.mjs", &home.join("node"));
    let node = node.and_then(|script| drive(cx, &serve(Command::new("node").arg(script))));
    let rmcp = rmcp.map_err(Error::check);
    let rmcp = rmcp.and_then(|built| drive(cx, &serve(Command::new(built.join("rmcp-client")))));
    same_reservation([("Python", python), ("TypeScript", node), ("rmcp", rmcp)])
}

/// Our client against the servers of the others, which are started behind `recorder`.
fn our_client(cx: &mut Context, python: Tool, rmcp: Tool, home: &Path, recorder: &[String]) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-stdio --example interop")?;
    let client = Command::new(cx.workspace.program("examples/interop")).args(recorder);

    let python = python.map_err(Error::check);
    let script = Path::new(SERVERS).join("python_server.py");
    let python = python.and_then(|python| show(cx, &client.clone().arg(python).arg(script)).map(drop));
    let node = node(cx, Path::new(SERVERS), "typescript_server.mjs", &home.join("node-server"));
    let node = node.and_then(|script| show(cx, &client.clone().args(["node"]).arg(script)).map(drop));
    let rmcp = rmcp.map_err(Error::check);
    let rmcp = rmcp.and_then(|built| show(cx, &client.arg(built.join("rmcp-server"))).map(drop));
    all_of([python, node, rmcp])
}

/// Where the server and the client built with rmcp are. Their crate is a workspace of its own.
fn rmcp(cx: &mut Context, home: &Path) -> Result<PathBuf, Error> {
    let target = home.join("rmcp");
    let manifest = Path::new(SERVERS).join("rmcp-server/Cargo.toml");
    let build = Command::line("cargo build --locked --manifest-path").arg(manifest);
    cx.run(&build.args(["--target-dir"]).arg(&target))?;
    Ok(target.join("debug"))
}

/// An empty folder with a name for the ledger in it.
fn fresh_ledger(home: &Path) -> Result<PathBuf, Error> {
    let folder = home.join("ledger");
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(Error::file(&folder))?;
    }
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    Ok(folder.join("shop.db"))
}

/// A Python with the SDK, in an environment of its own.
pub(super) fn python(cx: &mut Context, home: &Path) -> Result<PathBuf, Error> {
    python_in(cx, &Path::new(CLIENTS).join("requirements.txt"), &home.join("venv"))
}

/// A Python with what this list wants, in this folder.
fn python_in(cx: &mut Context, list: &Path, venv: &Path) -> Result<PathBuf, Error> {
    let program = venv.join("bin/python");
    install(list, venv, |wanted| {
        cx.run(&Command::line("python3 -m venv --clear").arg(venv))?;
        let pip = Command::new(&program).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        cx.run(&pip.args(["-r"]).arg(wanted)).map(drop)
    })?;
    Ok(program)
}

/// A script of the TypeScript SDK, beside the modules that it imports.
pub(super) fn node(cx: &mut Context, scripts: &Path, script: &str, folder: &Path) -> Result<PathBuf, Error> {
    fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let copy = |name: &str| {
        let to = folder.join(name);
        fs::copy(scripts.join(name), &to).map_err(Error::file(scripts.join(name))).map(|_| to)
    };
    let manifest = copy("package.json")?;
    let script = copy(script)?;
    install(&manifest, &folder.join("node_modules"), |_| {
        let npm = Command::line("npm install --no-package-lock --no-audit --no-fund --ignore-scripts --prefix");
        cx.run(&npm.arg(folder)).map(drop)
    })?;
    Ok(script)
}

/// Installs what `wanted` lists into `folder`, unless the very same list has
/// been installed there: a second run needs no network.
pub(super) fn install(wanted: &Path, folder: &Path, run: impl FnOnce(&Path) -> Result<(), Error>) -> Result<(), Error> {
    let list = fs::read_to_string(wanted).map_err(Error::file(wanted))?;
    let mark = folder.join("installed-for-interop");
    if fs::read_to_string(&mark).is_ok_and(|installed| installed == list) {
        return Ok(());
    }
    run(wanted)?;
    fs::write(&mark, list).map_err(Error::file(&mark))
}

/// Runs a client and shows its checks; what it says.
fn show(cx: &mut Context, client: &Command) -> Result<String, Error> {
    let done = cx.attempt(client)?;
    for line in done.stdout.lines() {
        cx.show(line);
    }
    done.checked(client)?;
    Ok(done.stdout)
}

/// Runs a client, and returns the reservation that it got.
fn drive(cx: &mut Context, client: &Command) -> Result<String, Error> {
    reservation(&show(cx, client)?)
}

fn reservation(said: &str) -> Result<String, Error> {
    let reservation = said.lines().find_map(|line| line.strip_prefix("reservation "));
    reservation.map(String::from).ok_or_else(|| Error::check("the client names no reservation"))
}

/// What the clients say together: one key has one reservation.
fn same_reservation<const N: usize>(clients: [(&str, Result<String, Error>); N]) -> Result<(), Error> {
    let mut got: Vec<(&str, String)> = Vec::new();
    let mut errors = Vec::new();
    for (client, reservation) in clients {
        match reservation {
            Ok(reservation) => got.push((client, reservation)),
            Err(error) => errors.push(error.to_string()),
        }
    }
    if got.windows(2).any(|two| two[0].1 != two[1].1) {
        errors.push(format!("one key, several reservations: {got:?}"));
    }
    Error::unless_empty(errors)
}

/// All errors of parts that do not depend on each other.
fn all_of<const N: usize>(parts: [Result<(), Error>; N]) -> Result<(), Error> {
    Error::unless_empty(parts.into_iter().filter_map(Result::err).map(|error| error.to_string()).collect())
}

#[cfg(test)]
mod tests {
    use super::{Error, install, same_reservation};

    #[test]
    fn all_clients_must_get_the_same_reservation() {
        let got = |client, id: &str| (client, Ok(id.to_string()));
        assert!(same_reservation([got("a", "r1"), got("b", "r1"), got("c", "r1")]).is_ok());
        for last in [[got("b", "r1"), got("c", "r2")], [got("b", "r2"), got("c", "r1")]] {
            let [b, c] = last;
            let error = same_reservation([got("a", "r1"), b, c]).unwrap_err().to_string();
            assert!(error.contains("several reservations"), "{error}");
        }
        let none = [("a", Err(Error::check("no python"))), ("b", Err(Error::check("no node")))];
        assert_eq!(same_reservation(none).unwrap_err().to_string(), "no python\nno node");
    }

    #[test]
    fn a_list_is_installed_once() {
        let folder = std::env::temp_dir().join(format!("steady-xtask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let list = folder.join("list");
        let mut runs = 0;
        for text in ["a", "a", "b", "b"] {
            std::fs::write(&list, text).unwrap();
            install(&list, &folder, |_| {
                runs += 1;
                Ok(())
            })
            .unwrap();
        }
        assert!(install(&list, &folder.join("absent"), |_| Err(Error::check("offline"))).is_err());
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(runs, 2);
    }
}
