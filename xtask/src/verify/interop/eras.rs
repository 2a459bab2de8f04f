//! The interop table: clients of other SDKs with their own settings against our server, which speaks both eras, and our
//! client against servers of the older revisions. What each may do and may not is said here, cell by cell: anything else
//! fails the step.
//!
//! A new row is one line in [`clients`] or [`servers`], and a program that says `revision NAME`, `list ok`,
//! `call FAILED why`, `cancel n.a. why`, or `connect FAILED why` if it does not connect at all.

use super::super::compare;
use super::super::conformance;
use super::super::context::Context;
use super::super::served::Served;
use super::{CLIENTS, Tool, node, python_in};
use crate::error::Error;
use crate::process::Command;
use crate::table::Table;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const CELLS: [&str; 4] = ["list", "call", "progress", "cancel"];
const MODERN: &str = "2026-07-28";
const LEGACY: &str = "2025-11-25";

/// What must become of a row. The words of a refusal are those that its user reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wants {
    /// Every cell that the peer can do is `ok`; the revision is this one, if the peer tells.
    All(Option<&'static str>),
    /// It must be refused, and what it says why holds these words.
    Refused(&'static str),
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "why")]
enum Outcome {
    #[serde(rename = "ok")]
    Ok,
    /// As it should be.
    #[serde(rename = "refused by design")]
    Refused(String),
    /// The peer cannot do this.
    #[serde(rename = "n.a.")]
    NotThere(String),
    #[serde(rename = "FAILED")]
    Failed(String),
}

impl Outcome {
    const fn word(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused(_) => "refused",
            Self::NotThere(_) => "n.a.",
            Self::Failed(_) => "FAILED",
        }
    }
}

/// A row, as it went.
#[derive(Debug, Serialize)]
struct Row {
    peer: String,
    /// What the peer is.
    side: &'static str,
    transport: &'static str,
    revision: String,
    cells: BTreeMap<&'static str, Outcome>,
    #[serde(skip)]
    wants: Option<&'static str>,
}

/// A peer that is to be driven, or drives.
struct Peer {
    name: &'static str,
    /// Without what it connects to; why it is not there.
    command: Tool,
    arguments: &'static [&'static str],
    /// Against a server of ours that serves this: with its own settings, or one era only.
    eras: &'static str,
    wants: Wants,
    /// The Inspector: one run for each cell.
    runs: bool,
}

/// The whole table.
pub(super) fn run(cx: &mut Context, python: Tool, rmcp: Tool, home: &Path) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-sim --example eras_server")?;
    cx.line("cargo build -p mcp-steady-stdio --example eras_client")?;
    cx.line("cargo build -p mcp-steady-http --example interop_older")?;
    let tools = tools(cx, python, rmcp, home);
    let ours = cx.workspace.program("examples/eras_server");
    let mut rows = Vec::new();
    for eras in ["", "modern", "legacy"] {
        let eras_argument = Some(eras).filter(|eras| !eras.is_empty());
        let stdio = Command::new(&ours).args(["stdio"]).args(eras_argument);
        let http = Command::new(&ours).args(["http"]).args(eras_argument);
        cx.announce(&http.to_string());
        let served = Served::start(&http)?;
        for peer in clients(&tools).into_iter().filter(|peer| peer.eras == eras) {
            rows.push(client_row(cx, &peer, "stdio", |command| stdio.clone().behind(command))?);
            rows.push(client_row(cx, &peer, "HTTP", |command| command.args([&served.url]))?);
        }
    }
    for (name, kind, server) in servers(&tools) {
        rows.push(server_row(cx, name, kind, server)?);
    }
    for (name, eras, server) in http_servers(cx, &tools)? {
        rows.push(http_server_row(cx, name, eras, server)?);
    }
    report(cx, &rows)
}

/// Every program that the table needs, or why it is not there.
struct Tools {
    node: Tool,
    /// The folder with the modules of node.
    modules: PathBuf,
    inspector: Tool,
    python: Tool,
    python_1: Tool,
    rmcp: Tool,
}

fn tools(cx: &mut Context, python: Tool, rmcp: Tool, home: &Path) -> Tools {
    let scripts = Path::new(CLIENTS).join("eras");
    let modules = home.join("eras");
    let client = node(cx, &scripts, "client.mjs", &modules).map_err(|why| why.to_string());
    let server = fs::copy(scripts.join("sdk_server.mjs"), modules.join("sdk_server.mjs"));
    let node = client.and_then(|client| server.map(|_| client).map_err(|why| why.to_string()));
    let inspector = node.clone().map(|_| conformance::node(&modules));
    let python_1 =
        python_in(cx, &scripts.join("requirements.txt"), &home.join("venv-1")).map_err(|why| why.to_string());
    Tools { node, modules, inspector, python, python_1, rmcp }
}

/// Clients of other SDKs. Each runs over both transports.
fn clients(tools: &Tools) -> Vec<Peer> {
    let node = |name, arguments: &'static [&'static str], eras, wants| {
        let command = tools.node.clone();
        Peer { name, command, arguments, eras, wants, runs: false }
    };
    let python = |name, arguments: &'static [&'static str], eras, wants| {
        let command = tools.python.clone();
        Peer { name, command, arguments, eras, wants, runs: false }
    };
    let rmcp = |name, arguments: &'static [&'static str], eras, wants| {
        let command = tools.rmcp.clone().map(|built| built.join("rmcp-eras"));
        Peer { name, command, arguments, eras, wants, runs: false }
    };
    let inspector = |name, arguments: &'static [&'static str], wants| {
        let command = tools.inspector.clone();
        Peer { name, command, arguments, eras: "", wants, runs: true }
    };
    let (modern, legacy) = (Wants::All(Some(MODERN)), Wants::All(Some(LEGACY)));
    // What is not spoken here is refused with the name of what is.
    let not_legacy = Wants::Refused(MODERN);
    let not_modern = Wants::Refused(LEGACY);
    vec![
        node("TypeScript 2.4.0, default", &["default"], "", legacy),
        node("TypeScript 2.4.0, auto", &["auto"], "", modern),
        node("TypeScript 2.4.0, pinned", &["pinned"], "", modern),
        node("@modelcontextprotocol/sdk 1.32.2", &["sdk"], "", legacy),
        inspector("Inspector 2.12.0, default", &[], Wants::All(None)),
        inspector("Inspector 2.12.0, modern", &["--protocol-era", "modern"], Wants::All(None)),
        python("Python 2.3.0, default (auto)", &["default"], "", modern),
        python("Python 2.3.0, legacy", &["legacy"], "", legacy),
        python("Python 2.3.0, pinned", &[MODERN], "", modern),
        rmcp("rmcp 3.11.0, initialize (default)", &["initialize"], "", legacy),
        rmcp("rmcp 3.11.0, discover", &["discover"], "", modern),
        rmcp("rmcp 3.11.0, auto", &["auto"], "", modern),
        node("TypeScript 2.4.0, default", &["default"], "modern", not_legacy),
        node("@modelcontextprotocol/sdk 1.32.2", &["sdk"], "modern", not_legacy),
        python("Python 2.3.0, legacy", &["legacy"], "modern", not_legacy),
        rmcp("rmcp 3.11.0, initialize (default)", &["initialize"], "modern", not_legacy),
        // It shows nothing of what it is told.
        node(
            "TypeScript 2.4.0, pinned",
            &["pinned"],
            "legacy",
            Wants::Refused("did not offer pinned protocol version"),
        ),
        node("TypeScript 2.4.0, auto", &["auto"], "legacy", legacy),
        python("Python 2.3.0, default (auto)", &["default"], "legacy", legacy),
        rmcp("rmcp 3.11.0, discover", &["discover"], "legacy", not_modern),
    ]
}

/// Servers of the older revisions, for our stdio client: what its tools are like, and its command line.
fn servers(tools: &Tools) -> Vec<(&'static str, &'static str, Result<Command, String>)> {
    let modules = &tools.modules;
    let everything = modules.join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let node = |script: PathBuf| tools.node.clone().map(|_| Command::new("node").arg(script));
    let python = Path::new(CLIENTS).join("eras/python_server.py");
    vec![
        ("server-everything 2026.8.31", "everything", node(everything).map(|server| server.args(["stdio"]))),
        ("@modelcontextprotocol/sdk 1.32.2", "tools", node(modules.join("sdk_server.mjs"))),
        ("Python 1.30.0", "tools", tools.python_1.clone().map(|venv| Command::new(venv).arg(python))),
    ]
}

/// A row's name, what our client speaks (`cells`: what the server does), and the server's command line.
type HttpServer = (String, &'static str, Result<Command, String>);

/// The same for our HTTP client. A server that speaks both eras is spoken to in the older one.
fn http_servers(cx: &mut Context, tools: &Tools) -> Result<Vec<HttpServer>, Error> {
    let script = Path::new(CLIENTS).join("eras/python_server.py");
    let python = tools.python_1.clone().map(|venv| Command::new(venv).arg(script).args(["http"]));
    let mut servers = vec![("Python 1.30.0".to_string(), "cells", python)];
    let both = compare::peers(cx)?;
    for name in ["rmcp 3.11.0", "Python 2.3.0"] {
        let server = both.iter().find(|(there, _)| *there == name).map(|(_, server)| server.clone());
        let server = server.ok_or_else(|| "see above".to_string());
        servers.push((format!("{name}; our client legacy only"), "legacy", server));
    }
    Ok(servers)
}

fn client_row(
    cx: &mut Context,
    peer: &Peer,
    transport: &'static str,
    against: impl Fn(Command) -> Command,
) -> Result<Row, Error> {
    let said = match &peer.command {
        Err(why) => format!("connect FAILED it cannot be had: {}", why.replace('\n', " ")),
        Ok(program) if peer.runs => inspect(cx, program, peer.arguments, transport, against)?,
        Ok(program) => {
            let script = |program: &Path| Command::new("node").arg(program);
            let command = match program.extension().and_then(|extension| extension.to_str()) {
                Some("mjs") => script(program),
                _ if program.ends_with("rmcp-eras") => Command::new(program),
                _ => Command::new(program).arg(Path::new(CLIENTS).join("eras/client.py")),
            };
            cx.attempt(&against(command.args(peer.arguments)))?.stdout
        }
    };
    let name = match peer.eras {
        "" => peer.name.to_string(),
        eras => format!("{}; our server {eras} only", peer.name),
    };
    Ok(row(name, "client", transport, peer.wants, &said))
}

/// The Inspector's command line does one thing a run, and neither shows progress nor cancels.
fn inspect(
    cx: &mut Context,
    node: &Path,
    arguments: &[&str],
    transport: &str,
    against: impl Fn(Command) -> Command,
) -> Result<String, Error> {
    let program = cx.workspace.target.join("interop/eras/node_modules/@modelcontextprotocol/inspector");
    let mut said = String::new();
    let calls: [(&str, &[&str], &str); 2] = [
        ("list", &["--method", "tools/list"], "\"echo\""),
        ("call", &["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "text=hello"], "hello"),
    ];
    for (cell, method, expected) in calls {
        let cli = Command::new(node).arg(program.join("clients/launcher/build/index.js")).args(["--cli"]);
        let mut command = against(cli);
        if transport == "HTTP" {
            command = command.args(["--transport", "http"]);
        }
        let done = cx.attempt(&command.args(arguments).args(method))?;
        said += &match done.success && done.stdout.contains(expected) {
            true => format!("{cell} ok\n"),
            false => format!("{cell} FAILED {}\n", done.all.trim().replace('\n', " ")),
        };
    }
    said += "progress n.a. its command line shows none\ncancel n.a. its command line cannot cancel\n";
    Ok(said)
}

fn server_row(cx: &mut Context, name: &'static str, kind: &str, server: Result<Command, String>) -> Result<Row, Error> {
    let client = Command::new(cx.workspace.program("examples/eras_client")).args([kind]);
    let said = match server {
        Err(why) => format!("connect FAILED it cannot be had: {}", why.replace('\n', " ")),
        Ok(server) => cx.attempt(&server.behind(client))?.stdout,
    };
    Ok(row(name.to_string(), "server", "stdio", Wants::All(None), &said))
}

fn http_server_row(cx: &mut Context, name: String, eras: &str, server: Result<Command, String>) -> Result<Row, Error> {
    let client = Command::new(cx.workspace.program("examples/interop_older"));
    let served = server.and_then(|server| {
        cx.announce(&server.to_string());
        Served::start(&server).map_err(|why| why.to_string())
    });
    let said = match &served {
        Err(why) => format!("connect FAILED it cannot be had: {}", why.replace('\n', " ")),
        Ok(served) => cx.attempt(&client.arg(&served.url).args([eras]))?.stdout,
    };
    Ok(row(name, "server", "HTTP", Wants::All(None), &said))
}

/// What a program said, as a row of the table.
fn row(peer: String, side: &'static str, transport: &'static str, wants: Wants, said: &str) -> Row {
    let said: BTreeMap<&str, &str> = said.lines().filter_map(|line| line.split_once(' ')).collect();
    let cells = CELLS.map(|cell| (cell, outcome(wants, &said, cell))).into_iter().collect();
    let revision = said.get("revision").copied().unwrap_or_default().to_string();
    let wants = match wants {
        Wants::All(revision) => revision,
        Wants::Refused(_) => None,
    };
    Row { peer, side, transport, revision, cells, wants }
}

fn outcome(wants: Wants, said: &BTreeMap<&str, &str>, cell: &str) -> Outcome {
    let failed = |name: &str| said.get(name).and_then(|said| said.strip_prefix("FAILED "));
    let connect = failed("connect");
    match wants {
        // A peer that asks nothing before its first request is refused there.
        Wants::Refused(words) => match connect.or_else(|| failed(cell)) {
            Some(why) if why.contains(words) => Outcome::Refused(why.to_string()),
            Some(why) => Outcome::Failed(format!("the refusal does not say {words:?}: {why}")),
            None => Outcome::Failed("it was to be refused".to_string()),
        },
        Wants::All(_) if connect.is_some() => Outcome::Failed(connect.unwrap_or_default().to_string()),
        Wants::All(_) => match said.get(cell) {
            Some(&"ok") => Outcome::Ok,
            Some(said) => match said.strip_prefix("n.a. ") {
                Some(why) => Outcome::NotThere(why.to_string()),
                None => Outcome::Failed(said.trim_start_matches("FAILED ").to_string()),
            },
            None => Outcome::Failed("the peer said nothing of it".to_string()),
        },
    }
}

/// Prints the table, keeps it, and says what should not be in it.
fn report(cx: &mut Context, rows: &[Row]) -> Result<(), Error> {
    let mut table = Table::new(&["peer", "is the", "over", "revision", "list", "call", "progress", "cancel"]);
    for row in rows {
        let head = [row.peer.clone(), row.side.into(), row.transport.into(), row.revision.clone()];
        table.row(head.into_iter().chain(CELLS.map(|cell| row.cells[cell].word().to_string())));
    }
    table.render().lines().for_each(|line| cx.say(line));
    for line in reasons(rows) {
        cx.say(&line);
    }
    let file = cx.workspace.scratch("verify")?.join("interop-eras.json");
    let json = serde_json::to_string_pretty(rows).map_err(|why| Error::check(why.to_string()))?;
    fs::write(&file, json).map_err(Error::file(&file))?;
    Error::unless_empty(findings(rows))
}

/// Why a cell is not `ok` and should not be, once for each reason.
fn reasons(rows: &[Row]) -> Vec<String> {
    let mut told = Vec::new();
    for row in rows {
        for (cell, outcome) in &row.cells {
            let line = match outcome {
                Outcome::Refused(why) => format!("{} over {}: refused: {why}", row.peer, row.transport),
                Outcome::NotThere(why) => format!("{}: {cell} n.a.: {why}", row.peer),
                Outcome::Ok | Outcome::Failed(_) => continue,
            };
            if !told.contains(&line) {
                told.push(line);
            }
        }
    }
    told
}

fn findings(rows: &[Row]) -> Vec<String> {
    let mut findings = Vec::new();
    for row in rows {
        let Row { peer, side, transport, revision, cells, wants } = row;
        let name = format!("{peer} as the {side} over {transport}");
        let before = findings.len();
        for (cell, outcome) in cells {
            if let Outcome::Failed(why) = outcome {
                findings.push(format!("{name}: {cell}: {why}"));
            }
        }
        if wants.is_some_and(|wanted| wanted != revision) && !revision.is_empty() {
            findings.push(format!("{name}: revision {revision:?} instead of {:?}", wants.unwrap_or_default()));
        }
        if wants.is_some() && revision.is_empty() {
            findings.push(format!("{name}: it does not say which revision it agreed on"));
        }
        if !cells.values().any(|cell| matches!(cell, Outcome::Ok | Outcome::Refused(_))) && findings.len() == before {
            findings.push(format!("{name}: not one cell says anything"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{LEGACY, MODERN, Outcome, Row, Wants, findings, reasons, row};

    const ALL: Wants = Wants::All(Some(LEGACY));
    const GOOD: &str = "revision 2025-11-25\nlist ok\ncall ok\nprogress ok\ncancel ok\n";

    fn row_of(wants: Wants, said: &str) -> Row {
        row("p".to_string(), "client", "stdio", wants, said)
    }

    fn found(wants: Wants, said: &str) -> String {
        findings(&[row_of(wants, said)]).join("\n")
    }

    #[test]
    fn a_row_is_good_if_all_of_it_is_as_expected() {
        assert_eq!(found(ALL, GOOD), "");
        let partly = GOOD.replace("cancel ok", "cancel n.a. it cannot");
        assert_eq!(found(ALL, &partly), "");
        assert_eq!(reasons(&[row_of(ALL, &partly)]), ["p: cancel n.a.: it cannot"]);
        let refused = "connect FAILED it speaks 2026-07-28 only\n";
        assert_eq!(found(Wants::Refused(MODERN), refused), "");
        assert_eq!(reasons(&[row_of(Wants::Refused(MODERN), refused)]).len(), 1, "one reason for four cells");
    }

    #[test]
    fn every_unexpected_cell_is_found() {
        for (said, expected) in [
            (GOOD.replace("list ok", "list FAILED none"), "p as the client over stdio: list: none"),
            (GOOD.replace("cancel ok\n", ""), "p as the client over stdio: cancel: the peer said nothing of it"),
            (GOOD.replace(LEGACY, MODERN), "revision \"2026-07-28\" instead of \"2025-11-25\""),
            (GOOD.replace("revision 2025-11-25\n", ""), "it does not say which revision"),
            ("connect FAILED no route\n".to_string(), "progress: no route"),
            (String::new(), "call: the peer said nothing of it"),
        ] {
            assert!(found(ALL, &said).contains(expected), "{said}: {}", found(ALL, &said));
        }
        assert!(found(Wants::Refused(MODERN), GOOD).contains("it was to be refused"));
        assert!(found(Wants::Refused(MODERN), "connect FAILED no\n").contains("does not say"));
        assert!(
            found(Wants::All(None), "progress n.a. x\ncancel n.a. x\nlist n.a. x\ncall n.a. x\n").contains("not one")
        );
    }

    #[test]
    fn a_cell_is_written_with_its_reason() {
        let cells = row_of(ALL, &GOOD.replace("list ok", "list FAILED none")).cells;
        assert_eq!(cells["list"], Outcome::Failed("none".to_string()));
        let json = serde_json::to_value(cells).unwrap();
        assert_eq!(json["list"], serde_json::json!({"outcome": "FAILED", "why": "none"}));
        assert_eq!(json["call"], serde_json::json!({"outcome": "ok"}));
    }
}
