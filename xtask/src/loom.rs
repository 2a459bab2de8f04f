//! `cargo xtask loom`: every interleaving of the kernel's threads and of the ledger's, and the mutants that show that the
//! models can fail.
//!
//! A model (`tests/loom` of a package) prints one line about its search. It names the mutants that it must kill: faults in
//! the shipped code that a variable switches on. Each runs in a process of its own, since a caught one may abort.

use crate::cargo::Workspace;
use crate::console::Console;
use crate::error::Error;
use crate::process::{Command, Finished, Sink};
use crate::table::Table;
use crate::verify::files_that_end;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;

/// The packages with models, each with the folder where its faults are, from the root of the workspace.
const SUITES: [Suite; 2] = [
    Suite { package: "mcp-steady-core", faults: "core/src/kernel" },
    Suite { package: "mcp-steady-ledger", faults: "ledger/src/writer" },
];

#[derive(Clone, Copy, Debug)]
struct Suite {
    package: &'static str,
    faults: &'static str,
}

/// How a fault is named there.
const HOOKS: [&str; 2] = ["mutant::is(", ".keep("];
/// What a model's line begins with.
const MARK: &str = "loom-model ";

/// Search every interleaving of the kernel's and the ledger's threads, and kill the mutants
#[derive(clap::Args)]
#[command(
    long_about = "Search every interleaving of the kernel's and the ledger's threads, and kill the mutants.\n\n\
        Each model of core/tests/loom and ledger/tests/loom is searched: two threads in full, three with at most two \
        preemptions. Then it runs under each mutant that it must kill, a fault in the shipped code that \
        STEADY_MUTANT=NAME switches on. A mutant that lives shows a model that is blind.",
    after_long_help = "Examples:\n  \
        cargo xtask loom              all models, all mutants\n  \
        cargo xtask loom cancel       the models with `cancel` in their name\n\n\
        To see the failing interleaving, run the printed command with LOOM_LOG=trace LOOM_LOCATION=1.\n\n\
        The exit code is 0 if every model holds and every mutant is killed, 1 if not, 2 if the run could not start."
)]
pub(crate) struct Options {
    /// Only models with this in their name
    #[arg(value_name = "NAME", default_value = "")]
    filter: String,
}

/// Runs them; false if a model fails or a mutant lives.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let console = Console::stdout();
    let workspace = Workspace::enter()?;
    let log = workspace.scratch("loom")?.join("run.log");
    let sink = Sink::new(File::create(&log).map_err(Error::file(&log))?, None);
    let mut attempt = |command: &Command| {
        console.say(&format!("$ {command}"));
        command.run(&sink)
    };
    let proof = prove(&workspace.target, &options.filter, &mut attempt)?;
    console.say(&format!("\n{}\n\nlog: {}", proof.table(), log.display()));
    let findings = proof.findings(&hooks()?, options.filter.is_empty());
    findings.iter().for_each(|finding| console.say(finding));
    Ok(findings.is_empty())
}

/// The same as a step of `verify`: the table, or what is wrong.
pub(crate) fn verify(
    target: &Path,
    attempt: &mut dyn FnMut(&Command) -> Result<Finished, Error>,
) -> Result<String, Error> {
    let proof = prove(target, "", attempt)?;
    Error::unless_empty(proof.findings(&hooks()?, true))?;
    Ok(proof.table())
}

/// A model as its search reported it, and what became of its mutants.
#[derive(Debug)]
struct Model {
    name: String,
    package: &'static str,
    bound: String,
    iterations: u64,
    millis: u64,
    /// Each with how it died; `None`: it lives.
    mutants: Vec<(String, Option<String>)>,
}

#[derive(Debug)]
struct Proof {
    models: Vec<Model>,
}

/// Searches the models, then runs each under its mutants.
fn prove(
    target: &Path,
    filter: &str,
    attempt: &mut dyn FnMut(&Command) -> Result<Finished, Error>,
) -> Result<Proof, Error> {
    let target = target.join("loom");
    let mut models = Vec::new();
    for Suite { package, .. } in SUITES {
        let search = cargo_test(package, &target).args(["--", "--nocapture"]);
        let search = if filter.is_empty() { search } else { search.args([filter]) };
        let done = attempt(&search)?;
        done.checked(&search)?;
        models.extend(done.all.lines().filter_map(|line| Model::parse(line, package)));
    }
    models.sort_by(|a, b| (a.package, &a.name).cmp(&(b.package, &b.name)));
    if models.is_empty() {
        return Err(Error::check(format!("no model was searched (`{filter}`)")));
    }
    for model in &mut models {
        for (mutant, killed) in &mut model.mutants {
            let command = cargo_test(model.package, &target).env("STEADY_MUTANT", mutant.as_str());
            let command = command.args(["--", "--nocapture", "--exact", &model.name]);
            let done = attempt(&command)?;
            *killed = death(&done, &model.name)?;
        }
    }
    Ok(Proof { models })
}

/// Its own folder, or every run would build the workspace anew. What is slow here is the compiler, not the models.
fn cargo_test(package: &str, target: &Path) -> Command {
    Command::line(&format!("cargo test -p {package} --release --test loom --target-dir"))
        .arg(target)
        .env("RUSTFLAGS", "--cfg steady_loom")
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
}

/// How a mutant was killed, if it was. A process that failed before it came to the model shows nothing.
fn death(done: &Finished, model: &str) -> Result<Option<String>, Error> {
    if !done.all.lines().any(|line| line == "running 1 test") {
        return Err(Error::check(format!("{model}: the model did not run under its mutant; see the log")));
    }
    if done.success {
        return Ok(None);
    }
    let why = panic_message(&done.all).unwrap_or("aborted");
    // Where it happened is in the log.
    let why = why.split(" at ").next().unwrap_or(why).trim_end_matches(':');
    Ok(Some(why.chars().take(60).collect()))
}

/// The first line of the first panic: the line after the one that names the place.
fn panic_message(output: &str) -> Option<&str> {
    let mut lines = output.lines().skip_while(|line| !line.contains(" panicked at "));
    let message = lines.nth(1)?.split(';').next()?.trim();
    // What the standard library says before our own words.
    let ours = message.split_once("` failed: ").filter(|(assertion, _)| assertion.starts_with("assertion `"));
    Some(ours.map_or(message, |(_, ours)| ours))
}

impl Model {
    /// Reads `loom-model NAME bound=.. iterations=.. ms=.. kills=a,b`, wherever in the line it begins.
    fn parse(line: &str, package: &'static str) -> Option<Self> {
        let (_, text) = line.split_once(MARK)?;
        let mut words = text.split_whitespace();
        let name = words.next()?.to_string();
        let fields: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
        let field = |name: &str| fields.iter().find(|(field, _)| *field == name).map(|(_, value)| *value);
        let kills = field("kills")?.split(',').filter(|name| !name.is_empty());
        Some(Self {
            name,
            package,
            bound: field("bound")?.to_string(),
            iterations: field("iterations")?.parse().ok()?,
            millis: field("ms")?.parse().ok()?,
            mutants: kills.map(|name| (name.to_string(), None)).collect(),
        })
    }
}

impl Proof {
    fn table(&self) -> String {
        let mut table = Table::new(&["model", "preemptions", "iterations", "time", "mutant", "killed by"]);
        for model in &self.models {
            let short = model.name.replace("::models::", ": ").replace('_', " ");
            let time = format!("{:6.2} s", f64::from(u32::try_from(model.millis).unwrap_or(u32::MAX)) / 1000.0);
            let mut search = [short, model.bound.clone(), model.iterations.to_string(), time];
            for (mutant, killed) in &model.mutants {
                let killed = killed.clone().unwrap_or_else(|| "LIVES".to_string());
                table.row(search.into_iter().chain([mutant.clone(), killed]));
                search = Default::default();
            }
        }
        table.render()
    }

    /// What is wrong; that every fault has a model is asked of a run of `all` models only.
    fn findings(&self, hooks: &BTreeSet<String>, all: bool) -> Vec<String> {
        let mut findings = Vec::new();
        let mut named = BTreeSet::new();
        for model in &self.models {
            if model.mutants.is_empty() {
                findings.push(format!("{}: names no mutant that it kills, so it may be blind", model.name));
            }
            for (mutant, killed) in &model.mutants {
                named.insert(mutant.clone());
                if killed.is_none() {
                    findings.push(format!("{}: the mutant {mutant} lives", model.name));
                }
            }
        }
        let orphans = hooks.iter().filter(|hook| all && !named.contains(*hook));
        findings.extend(orphans.map(|hook| format!("no model kills the mutant {hook}")));
        findings
    }
}

/// The names of the faults in the shipped code.
fn hooks() -> Result<BTreeSet<String>, Error> {
    let mut names = BTreeSet::new();
    for folder in SUITES.map(|suite| Path::new(suite.faults)) {
        for path in files_that_end(folder, &["rs"])? {
            names.extend(hook_names(&fs::read_to_string(&path).map_err(Error::file(&path))?));
        }
    }
    Ok(names)
}

fn hook_names(source: &str) -> Vec<String> {
    let calls = HOOKS.iter().flat_map(|hook| source.split(hook).skip(1));
    let literal = |call: &str| {
        let arguments = call.split(')').next()?;
        Some(arguments.split('"').nth(1)?.to_string())
    };
    calls.filter_map(literal).collect()
}

#[cfg(test)]
mod tests {
    use super::{Model, Proof, death, hook_names, panic_message};
    use crate::process::Command;
    use std::collections::BTreeSet;

    const LINE: &str = "test a ... loom-model queue::models::a bound=2 iterations=43 ms=1234 kills=x,y";

    fn proof(deaths: [Option<&str>; 2]) -> Proof {
        let mut model = Model::parse(LINE, "p").unwrap();
        for ((_, killed), death) in model.mutants.iter_mut().zip(deaths) {
            *killed = death.map(ToString::to_string);
        }
        Proof { models: vec![model] }
    }

    #[test]
    fn a_models_line_is_read() {
        let model = Model::parse(LINE, "p").unwrap();
        assert_eq!((model.name.as_str(), model.bound.as_str()), ("queue::models::a", "2"));
        assert_eq!((model.iterations, model.millis, model.mutants.len()), (43, 1234, 2));
        assert!(Model::parse("test a ... ok", "p").is_none());
        assert!(Model::parse("loom-model a bound=2 iterations=many ms=1 kills=x", "p").is_none());
    }

    #[test]
    fn one_row_a_mutant() {
        let table = proof([Some("deadlock"), None]).table();
        let expected = "\
model     preemptions  iterations  time      mutant  killed by
--------  -----------  ----------  --------  ------  ---------
queue: a  2            43            1.23 s  x       deadlock
                                             y       LIVES";
        assert_eq!(table, expected);
    }

    #[test]
    fn a_mutant_that_lives_or_has_no_model_is_found() {
        let hooks = |names: &[&str]| names.iter().map(ToString::to_string).collect::<BTreeSet<_>>();
        let dead = proof([Some("deadlock"), Some("REQ-2")]);
        assert_eq!(dead.findings(&hooks(&["x", "y"]), true), [""; 0]);
        assert_eq!(dead.findings(&hooks(&["x", "z"]), true), ["no model kills the mutant z"]);
        assert_eq!(dead.findings(&hooks(&["z"]), false), [""; 0]);
        let lives = proof([Some("deadlock"), None]);
        assert_eq!(lives.findings(&hooks(&[]), true), ["queue::models::a: the mutant y lives"]);
        let blind = Proof { models: vec![Model::parse(&LINE.replace("x,y", ""), "p").unwrap()] };
        assert!(blind.findings(&hooks(&[]), true)[0].contains("may be blind"));
    }

    #[test]
    fn only_a_model_that_ran_and_failed_kills() {
        let run = |script: &str| Command::new("sh").args(["-c", script]).capture().unwrap();
        let killed =
            run("echo 'running 1 test'; echo; echo 'thread a panicked at b:1:2:'; echo 'deadlock; x'; exit 101");
        assert_eq!(death(&killed, "a").unwrap().as_deref(), Some("deadlock"));
        let placed =
            run("echo 'running 1 test'; echo 'thread a panicked at b:1:2:'; echo 'REQ-1: at (1, 2)'; exit 101");
        assert_eq!(death(&placed, "a").unwrap().as_deref(), Some("REQ-1"));
        assert_eq!(death(&run("echo 'running 1 test'"), "a").unwrap(), None);
        assert_eq!(death(&run("echo 'running 1 test'; exit 134"), "a").unwrap().as_deref(), Some("aborted"));
        assert!(death(&run("echo 'running 0 tests'"), "a").is_err());
        assert!(death(&run("exit 101"), "a").is_err(), "it does not compile");
        assert_eq!(panic_message("all is well"), None);
        let compared = "thread a panicked at b:1:2:\nassertion `left == right` failed: REQ-1: why\n  left: 1\n";
        assert_eq!(panic_message(compared), Some("REQ-1: why"));
    }

    #[test]
    fn faults_are_known_by_their_names() {
        let source = "if mutant::is(\"a\") {}\nlet state = self.state.keep(state, \"b\");\nfn is(name: &str)\n";
        assert_eq!(hook_names(source), ["a", "b"]);
        assert_eq!(hook_names("if !mutant::is(mutant) {}"), [""; 0]);
    }
}
