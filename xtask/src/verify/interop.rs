//! The clients of two other SDKs against our server. Both use the same ledger
//! file with the same key, one after the other, so the reservation of the
//! first must come back to the second: over a restart and another client.

use super::context::Context;
use crate::error::Error;
use crate::process::Command;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the scripts are, from the root of the workspace.
const SCRIPTS: &str = "sim/tests/interop";

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-sim --bin steady-sim")?;
    let home = cx.workspace.scratch("interop")?;
    let scripts = PathBuf::from(SCRIPTS);
    let server = cx.workspace.program("steady-sim");
    let ledger = fresh_ledger(&home)?;
    let serve = |client: Command| client.arg(&server).args(["serve", "--stdio", "--ledger"]).arg(&ledger);

    let python = python(cx, &scripts, &home);
    let python = python.and_then(|client| drive(cx, &serve(client)));
    let node = node(cx, &scripts, &home);
    let node = node.and_then(|client| drive(cx, &serve(client)));
    same_reservation(python, node)
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

/// The Python client, with its SDK in an environment of its own.
fn python(cx: &mut Context, scripts: &Path, home: &Path) -> Result<Command, Error> {
    let venv = home.join("venv");
    let program = venv.join("bin/python");
    install(&scripts.join("requirements.txt"), &venv, |wanted| {
        cx.run(&Command::line("python3 -m venv --clear").arg(&venv))?;
        let pip = Command::new(&program).args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        cx.run(&pip.args(["-r"]).arg(wanted)).map(drop)
    })?;
    Ok(Command::new(program).arg(scripts.join("python_client.py")))
}

/// The TypeScript client, beside the modules that it imports.
fn node(cx: &mut Context, scripts: &Path, home: &Path) -> Result<Command, Error> {
    let folder = home.join("node");
    fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    let copy = |name: &str| {
        let to = folder.join(name);
        fs::copy(scripts.join(name), &to).map_err(Error::file(scripts.join(name))).map(|_| to)
    };
    let manifest = copy("package.json")?;
    let script = copy("typescript_client.mjs")?;
    install(&manifest, &folder.join("node_modules"), |_| {
        let npm = Command::line("npm install --no-package-lock --no-audit --no-fund --ignore-scripts --prefix");
        cx.run(&npm.arg(&folder)).map(drop)
    })?;
    Ok(Command::new("node").arg(script))
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

/// Runs a client, shows its checks, and returns the reservation that it got.
fn drive(cx: &mut Context, client: &Command) -> Result<String, Error> {
    let done = cx.attempt(client)?;
    for line in done.stdout.lines() {
        cx.show(line);
    }
    done.checked(client)?;
    let reservation = done.stdout.lines().find_map(|line| line.strip_prefix("reservation "));
    reservation.map(String::from).ok_or_else(|| Error::check("the client names no reservation"))
}

/// What both clients say together.
fn same_reservation(python: Result<String, Error>, node: Result<String, Error>) -> Result<(), Error> {
    match (python, node) {
        (Ok(first), Ok(second)) if first == second => Ok(()),
        (Ok(first), Ok(second)) => Err(Error::check(format!(
            "one key, two reservations: {first} for the Python client, {second} for the TypeScript client after it"
        ))),
        (first, second) => {
            let errors = [first.err(), second.err()].into_iter().flatten();
            Err(Error::Findings(errors.map(|error| error.to_string()).collect()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Error, install, same_reservation};

    #[test]
    fn both_clients_must_get_the_same_reservation() {
        let got = |id: &str| Ok(id.to_string());
        assert!(same_reservation(got("r1"), got("r1")).is_ok());
        assert!(same_reservation(got("r1"), got("r2")).unwrap_err().to_string().contains("two reservations"));
        let both = same_reservation(Err(Error::check("no python")), Err(Error::check("no node")));
        assert_eq!(both.unwrap_err().to_string(), "no python\nno node");
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
