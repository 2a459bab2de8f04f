//! What the official suite does not check, as black-box checks over sockets
//! that run unchanged against our server and against servers built with other
//! libraries: one table, a column each. Ours must pass every row; what the
//! others do is printed. A stub that answers 404 to everything must pass none.

mod rows;
mod streams;
mod subject;
mod subscriptions;

use super::context::Context;
use super::interop;
use crate::error::Error;
use crate::process::Command;
use crate::record::Relay;
use crate::table::Table;
use std::path::{Path, PathBuf};
use std::thread;
use subject::{Stub, Subject};

/// Where the servers of the others are, from the root of the workspace.
const SERVERS: &str = "transport-http/tests/compare";
/// The crate of the one that is built with rmcp.
pub(crate) const RMCP: &str = "transport-http/tests/compare/rmcp-server";

/// A check: what must hold, how strongly the specification says so, and how it is seen.
struct Row {
    about: &'static str,
    level: &'static str,
    check: fn(&Subject) -> Result<(), String>,
}

/// All rows. The last one ends the server.
fn all() -> Vec<&'static Row> {
    rows::ROWS.iter().chain(streams::ROWS).chain(subscriptions::ROWS).collect()
}

/// What each row said of one server.
type Column = Vec<Result<(), String>>;

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-http --example compared")?;
    let ours = Command::new(cx.workspace.program("examples/compared"));
    let mut columns = vec![("ours", measured(&ours)?)];
    let passed_by_stub = column(&Subject::stub(&Stub::start()?)).iter().filter(|said| said.is_ok()).count();
    let peers = peers(cx)?;
    let theirs: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = peers.iter().map(|(_, command)| scope.spawn(move || measured(command))).collect();
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    for ((name, _), column) in peers.iter().zip(theirs) {
        match column {
            Ok(Ok(column)) => columns.push((name, column)),
            Ok(Err(error)) => cx.say(&format!("{name}: {error}")),
            Err(_panic) => cx.say(&format!("{name}: a check panicked")),
        }
    }
    print(cx, &columns);
    let mut findings = missed(&columns[0].1);
    if passed_by_stub > 0 {
        findings.push(format!("a server that answers 404 to everything passes {passed_by_stub} rows"));
    }
    Error::unless_empty(findings)
}

/// Our server through all rows, with everything that is said in files that begin with `prefix`.
pub(super) fn record(cx: &mut Context, prefix: &Path) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-http --example compared")?;
    let (served, mut subject) = Subject::start(&Command::new(cx.workspace.program("examples/compared")))?;
    let relay = Relay::start(served.address(), Some(prefix))?;
    subject.address.clone_from(&relay.address);
    let findings = missed(&column(&subject));
    drop((served, relay));
    Error::unless_empty(findings)
}

fn measured(command: &Command) -> Result<Column, Error> {
    let (_served, subject) = Subject::start(command)?;
    Ok(column(&subject))
}

fn column(subject: &Subject) -> Column {
    all().iter().map(|row| (row.check)(subject)).collect()
}

/// The servers of the others. One that cannot be had on this machine is told, and its column left out.
pub(super) fn peers(cx: &mut Context) -> Result<Vec<(&'static str, Command)>, Error> {
    let home = cx.workspace.scratch("interop")?;
    let folder = Path::new(SERVERS);
    let python = interop::python(cx, &home)
        .map(|python| Command::new(python).arg(folder.join("python_server.py")))
        .map_err(|why| why.to_string());
    let node = interop::node(cx, folder, "typescript_server.mjs", &home.join("node-compare"))
        .map(|script| Command::new("node").arg(script))
        .map_err(|why| why.to_string());
    let rmcp = rmcp(cx, &home).map(|built| Command::new(built.join("rmcp-http-server"))).map_err(|why| why.to_string());
    let mut there = Vec::new();
    for (name, command) in [("rmcp 3.11.0", rmcp), ("TypeScript 2.4.0", node), ("Python 2.3.0", python)] {
        match command {
            Ok(command) => there.push((name, command)),
            Err(why) => cx.say(&format!("{name} is left out: {why}")),
        }
    }
    Ok(there)
}

pub(super) fn rmcp(cx: &mut Context, home: &Path) -> Result<PathBuf, Error> {
    let target = home.join("rmcp-http");
    let build = Command::line("cargo build --locked --manifest-path").arg(Path::new(RMCP).join("Cargo.toml"));
    cx.run(&build.args(["--target-dir"]).arg(&target))?;
    Ok(target.join("debug"))
}

/// The table, and below it why a row failed.
fn print(cx: &mut Context, columns: &[(&'static str, Column)]) {
    let heading: Vec<&str> =
        ["what must hold", "level"].into_iter().chain(columns.iter().map(|(name, _)| *name)).collect();
    let mut table = Table::new(&heading);
    let mut notes = Vec::new();
    for (at, row) in all().iter().enumerate() {
        let mut cells = vec![row.about.to_string(), row.level.to_string()];
        for (name, column) in columns {
            match &column[at] {
                Ok(()) => cells.push("ok".to_string()),
                Err(why) => {
                    notes.push(format!("{name}: {}: {}", row.about, short(why)));
                    cells.push(format!("no ({})", notes.len()));
                }
            }
        }
        table.row(cells);
    }
    let held = |column: &Column| format!("{} of {}", column.iter().filter(|said| said.is_ok()).count(), column.len());
    table.row([String::new(), String::new()].into_iter().chain(columns.iter().map(|(_, column)| held(column))));
    table.render().lines().for_each(|line| cx.say(line));
    for (at, note) in notes.iter().enumerate() {
        cx.say(&format!("({}) {note}", at + 1));
    }
}

fn short(why: &str) -> String {
    const MOST: usize = 160;
    let line = why.replace(['\r', '\n'], " ");
    if line.chars().count() <= MOST { line } else { line.chars().take(MOST).chain("...".chars()).collect() }
}

fn missed(column: &Column) -> Vec<String> {
    let failed = all().into_iter().zip(column).filter_map(|(row, said)| said.as_ref().err().map(|why| (row, why)));
    failed.map(|(row, why)| format!("ours: {}: {why}", row.about)).collect()
}

#[cfg(test)]
mod tests {
    use super::{Stub, Subject, all, column, missed, short};
    use std::collections::BTreeSet;

    #[test]
    fn a_server_that_answers_404_to_everything_passes_nothing() {
        let stub = Stub::start().unwrap();
        let said = column(&Subject::stub(&stub));
        assert_eq!(missed(&said).len(), all().len(), "{said:?}");
    }

    #[test]
    fn rows_are_told_apart() {
        assert_eq!(all().iter().map(|row| row.about).collect::<BTreeSet<_>>().len(), all().len());
        assert_eq!(short(&"x".repeat(200)).len(), 163);
    }
}
