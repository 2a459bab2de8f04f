//! The steps, from cheap to dear, and those of them that are one command.
//!
//! Everything builds in the dev profile, so that each crate is compiled once:
//! the smoke run of the benchmarks asks whether they run, not how fast.

use super::context::Context;
use super::step::{Step, Tool};
use super::test_log::TestResults;
use super::{
    compare, conformance, demo, docs_drift, evidence, explore, interop, invariants, outside, proxies, schema,
    statements, swarm, tidy,
};
use crate::error::Error;
use crate::loom;
use crate::process::{Command, Finished};
use crate::webdriver;

const RUSTFMT: Tool = Tool { name: "rustfmt", probe: &["cargo", "fmt", "--version"] };
const CLIPPY: Tool = Tool { name: "clippy", probe: &["cargo", "clippy", "--version"] };
const DENY: Tool = Tool { name: "cargo-deny", probe: &["cargo", "deny", "--version"] };
const PYTHON: Tool = Tool { name: "python3 >= 3.10 with venv", probe: &["python3", "-c", PYTHON_PROBE] };
const NODE: Tool = Tool { name: "node >= 20", probe: &["node", "-e", NODE_PROBE] };
const CHROME: Tool = Tool { name: "chromium and chromedriver", probe: &["sh", "-c", webdriver::PROBE] };
const NPM: Tool = Tool { name: "npm", probe: &["npm", "--version"] };

const SCHEMAS: Tool = Tool {
    name: "the official schemas, in the folder STEADY_SCHEMAS or shared/schema beside the checkout",
    probe: schema::PROBE,
};
const NGINX: Tool = Tool { name: "nginx", probe: proxies::NGINX };
const POSTGRES: Tool = Tool { name: "PostgreSQL >= 14 with its server programs", probe: &["sh", "-c", POSTGRES_PROBE] };
const MACOS: Tool = Tool { name: "target x86_64-apple-darwin", probe: &["sh", "-c", MACOS_PROBE] };
const WINDOWS: Tool = Tool { name: "target x86_64-pc-windows-gnu", probe: &["sh", "-c", WINDOWS_PROBE] };

const POSTGRES_PROBE: &str = "ls /usr/lib/postgresql/*/bin/initdb || command -v initdb || test -n \"$STEADY_PG_BIN\"";
const MACOS_PROBE: &str = "test -d \"$(rustc --print sysroot)/lib/rustlib/x86_64-apple-darwin/lib\"";
const WINDOWS_PROBE: &str = "test -d \"$(rustc --print sysroot)/lib/rustlib/x86_64-pc-windows-gnu/lib\"";
const PYTHON_PROBE: &str = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))";
const NODE_PROBE: &str = "process.exit(parseInt(process.versions.node) >= 20 ? 0 : 1)";

/// All steps in the order of a run.
pub(crate) const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        proves: "every file has the one format",
        required: true,
        tools: &[RUSTFMT],
        run: fmt,
        next: "run `cargo fmt --all`",
    },
    Step {
        name: "tidy",
        proves: "house rules: file sizes, docs, nothing unfinished, who may depend on whom",
        required: true,
        tools: &[],
        run: tidy::run,
        next: "each line names the file and the rule; the rules are at the top of xtask/src/verify/tidy.rs",
    },
    Step {
        name: "invariants",
        proves: "every invariant has a checker that tests call and that can fail, every cited id exists",
        required: true,
        tools: &[],
        run: invariants::run,
        next: "ids are declared in the docs of core/src; their checkers are in core/tests/support/invariants",
    },
    Step {
        name: "no-std",
        proves: "no clock, socket or thread is reachable from the machines of core",
        required: true,
        tools: &[],
        run: no_std,
        next: "move what needs std into core/src/kernel, behind feature `std`",
    },
    Step {
        name: "clippy",
        proves: "no lint warning in any target; each half of the transport and each feature of the ledger builds alone",
        required: true,
        tools: &[CLIPPY],
        run: clippy,
        next: "fix the warning, or `#[expect(.., reason = \"..\")]` it where it is wrong",
    },
    Step {
        name: "targets",
        proves: "the stdio transport type-checks for macOS and Windows, where nothing runs it here",
        required: false,
        tools: &[MACOS, WINDOWS],
        run: targets,
        next: "put what the target does not have behind its `cfg`",
    },
    Step {
        name: "docs",
        proves: "every item's documentation builds, with all its links",
        required: true,
        tools: &[],
        run: docs,
        next: "fix the link or the markup that rustdoc names",
    },
    Step {
        name: "docs-drift",
        proves: "the retry matrix, the limits and the failures in docs are what the code says; each term of the glossary leads to its type",
        required: true,
        tools: &[],
        run: docs_drift::run,
        next: "run `cargo run -p mcp-steady-sim --bin steady-sim -- pages --dir docs --write`",
    },
    Step {
        name: "test",
        proves: "all tests pass, those in the documentation too",
        required: true,
        tools: &[],
        run: test,
        next: "run the test by its name: `cargo test --workspace NAME`",
    },
    Step {
        name: "postgres",
        proves: "the ledger keeps its promises on PostgreSQL, while servers, connections and replicas are killed",
        required: true,
        tools: &[POSTGRES],
        run: postgres,
        next: "run the test by its name: `cargo test -p mcp-steady-ledger --all-features --test postgres NAME`",
    },
    Step {
        name: "features",
        proves: "files of the ledger are the same bytes however a program configures serde_json",
        required: true,
        tools: &[],
        run: other_features,
        next: "the vectors are in ledger/tests/support/golden.rs, the features in ledger/tests/features/Cargo.toml",
    },
    Step {
        name: "loom",
        proves: "every interleaving of the kernel's and the ledger's threads is right, and each model kills its mutants",
        required: true,
        tools: &[],
        run: search_interleavings,
        next: "run the model by its name: `cargo xtask loom NAME`; the models are in core/tests/loom and ledger/tests/loom",
    },
    Step {
        name: "statements",
        proves: "each of the 12 statements has a test that ran and passed",
        required: true,
        tools: &[],
        run: statements::run,
        next: "the tests of statement 7 are named statement_07_…: `cargo test --workspace statement_07_`",
    },
    Step {
        name: "demo",
        proves: "the demo shows every claim, checked by itself",
        required: true,
        tools: &[],
        run: demo::run,
        next: "run `cargo demo` and read the claim that does not hold",
    },
    Step {
        name: "explore",
        proves: "the race explorer works in a browser without a network: by keys, by clicks, on a phone and on a desk",
        required: true,
        tools: &[CHROME],
        run: explore::run,
        next: "open target/explore/explore.html in a browser and look at its console",
    },
    Step {
        name: "swarm",
        proves: "200 worlds under faults keep every promise and come to rest, and are the same in another process",
        required: true,
        tools: &[],
        run: swarm::run,
        next: "`cargo run -p mcp-steady-sim -- replay target/swarm/swarm-SEED.events` shows the failure step by step",
    },
    Step {
        name: "bench-smoke",
        proves: "every benchmark still runs, one pass each",
        required: true,
        tools: &[],
        run: bench_smoke,
        next: "run that benchmark alone: `cargo bench -p PACKAGE --bench NAME -- --test`",
    },
    Step {
        name: "deny",
        proves: "licences, banned crates and sources are as deny.toml allows",
        required: false,
        tools: &[DENY],
        run: |cx| cx.line("cargo deny check licenses bans sources").map(drop),
        next: "replace the crate, or allow it in deny.toml with the reason",
    },
    Step {
        name: "outside",
        proves: "a server needs one transport alone: neither the other, nor ledger or sim comes along",
        required: true,
        tools: &[],
        run: outside::run,
        next: "the crates are in target/outside, their templates in tests/outside-crate of the transports",
    },
    Step {
        name: "interop",
        proves: "over stdio and HTTP other SDKs drive our server, and our client drives theirs: at revision 2026-07-28, and with their own settings in either era, cell by cell (target/verify/interop-eras.json)",
        required: true,
        tools: &[PYTHON, NODE, NPM],
        run: interop::run,
        next: "run the line that is printed above the first FAILED alone; the scripts are in sim/tests/interop, transport-stdio/tests/interop and transport-http/tests/compare",
    },
    Step {
        name: "conformance",
        proves: "the official suite passes against our HTTP server (37 required, 3 pending and 10 tasks scenarios) and our client (7, and 25 of OAuth out of scope), counted",
        required: true,
        tools: &[NODE, NPM],
        run: conformance::run,
        next: "run one scenario alone: the printed command with `--scenario NAME` instead of `--requirements`",
    },
    Step {
        name: "compare",
        proves: "our HTTP server keeps what the official suite does not check; the others' servers are set beside it",
        required: true,
        tools: &[PYTHON, NODE, NPM],
        run: compare::run,
        next: "the note under the table says what was seen; the rows are in xtask/src/verify/compare",
    },
    Step {
        name: "schema",
        proves: "each message that our servers and our client send is valid by the official JSON schema",
        required: false,
        tools: &[SCHEMAS, PYTHON, NODE, NPM],
        run: schema::run,
        next: "the finding names the record in target/schema and the message; xtask/schema/validate.py reads it",
    },
    Step {
        name: "proxies",
        proves: "behind real proxies nothing is held back, a hang-up arrives, silence is survived, and a retry with a key reserves once",
        required: true,
        tools: &[NGINX],
        run: proxies::run,
        next: "the settings of each proxy are in xtask/src/verify/proxies/kinds.rs, the server in transport-http/examples/proxied.rs",
    },
    Step {
        name: "evidence",
        proves: "the records of target/evidence are the same in two runs, and answer every demand of the readiness verdict",
        required: true,
        tools: &[],
        run: evidence::run,
        next: "run the command that the finding or the file names; the records are made in sim/src/evidence",
    },
];

fn fmt(cx: &mut Context) -> Result<(), Error> {
    cx.line("cargo fmt --all --check")?;
    // Not part of the workspace, so cargo fmt does not know them.
    let templates = outside::templates().map(|template| format!("{template}/src/main.rs"));
    cx.line(&format!("rustfmt --edition 2024 --check {}", templates.join(" ")))?;
    let rmcp = format!("{}/rmcp-server/src", interop::SERVERS);
    let servers =
        format!("{rmcp}/main.rs {rmcp}/bin/rmcp-client.rs {rmcp}/bin/rmcp-eras.rs {}/src/main.rs", compare::RMCP);
    cx.line(&format!("rustfmt --edition 2024 --check {servers}")).map(drop)
}

/// With every feature, as tests run; core as most use it; the transport with one half only.
fn clippy(cx: &mut Context) -> Result<(), Error> {
    cx.line("cargo clippy --workspace --all-features --all-targets --keep-going -- -D warnings")?;
    cx.line("cargo clippy -p mcp-steady-core --all-targets -- -D warnings")?;
    for features in ["", "cli", "postgres"] {
        cx.line(&format!("cargo clippy -p mcp-steady-ledger --all-targets --features={features} -- -D warnings"))?;
    }
    for half in ["client", "server"] {
        cx.line(&format!("cargo clippy -p mcp-steady-stdio --no-default-features --features {half} -- -D warnings"))?;
    }
    Ok(())
}

/// The systems that tests do not run on: types and lints only.
fn targets(cx: &mut Context) -> Result<(), Error> {
    for target in ["x86_64-apple-darwin", "x86_64-pc-windows-gnu"] {
        cx.line(&format!("cargo clippy -p mcp-steady-stdio --all-features --target {target} -- -D warnings"))?;
    }
    Ok(())
}

/// Builds core without std, then again with a planted clock read, which must fail. That is what the step proves: of core
/// itself; its dependencies are built without their std features, for the same target.
fn no_std(cx: &mut Context) -> Result<(), Error> {
    cx.line("cargo check -p mcp-steady-core --no-default-features")?;
    cx.line("cargo check -p mcp-steady-sim --no-default-features")?;
    let planted =
        "cargo rustc -p mcp-steady-core --no-default-features --lib --profile check -- --cfg steady_planted_clock";
    let command = Command::line(planted);
    let done = cx.attempt(&command)?;
    // E0433: the path `std::time` leads nowhere. Any other failure would say nothing about the clock.
    if done.checked(&command).is_ok() || !done.all.contains("E0433") {
        return Err(Error::check("a planted clock read is not refused for its path: the check proves nothing"));
    }
    cx.say("a planted clock read does not build, as it must");
    Ok(())
}

fn docs(cx: &mut Context) -> Result<(), Error> {
    let command = Command::line("cargo doc --workspace --all-features --no-deps --document-private-items --keep-going");
    cx.run(&command.env("RUSTDOCFLAGS", "-D warnings")).map(drop)
}

/// Which tests to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestRun {
    All,
    Statements,
}

/// Runs tests with the runner that is there, to the last one.
pub(crate) fn run_tests(cx: &mut Context, which: TestRun) -> Result<(TestResults, Result<(), Error>), Error> {
    let nextest = Command::line("cargo nextest --version").works();
    let command = test_command(nextest, which);
    let done: Finished = cx.attempt(&command)?;
    let read = if nextest { TestResults::from_nextest } else { TestResults::from_cargo_test };
    Ok((read(&done.all), done.checked(&command)))
}

fn test_command(nextest: bool, which: TestRun) -> Command {
    let command = if nextest {
        // Those on PostgreSQL have a step of their own.
        Command::line("cargo nextest run --workspace --all-features --no-fail-fast --status-level all -E")
            .args(["not binary(postgres)"])
            .env("NEXTEST_HIDE_PROGRESS_BAR", "1")
    } else {
        Command::line("cargo test --workspace --all-features --no-fail-fast")
    };
    match which {
        TestRun::All => command,
        TestRun::Statements => command.args(["statement_"]),
    }
}

fn test(cx: &mut Context) -> Result<(), Error> {
    let nextest = Command::line("cargo nextest --version").works();
    let (tests, done) = run_tests(cx, TestRun::All)?;
    cx.say(&format!("{} tests ran", tests.len()));
    cx.tests = Some(tests);
    // Without nextest these have run already.
    let docs = if nextest { cx.line("cargo test --doc --workspace --all-features").map(drop) } else { Ok(()) };
    done.and(docs)
}

/// One program with one server for all its tests: a runner that gives each test a process would start one for each. Built
/// with the features of the whole workspace, it is the one that the step `test` has built.
fn postgres(cx: &mut Context) -> Result<(), Error> {
    let command = Command::line("cargo test --workspace --all-features --test postgres").env("STEADY_PG_REQUIRED", "1");
    cx.run(&command).map(drop)
}

/// Features that a crate of the workspace asked for would be on for all of them, so this is a package apart. It shares the
/// target folder, so what the workspace has built is not built again.
fn other_features(cx: &mut Context) -> Result<(), Error> {
    let manifest = cx.workspace.root.join("ledger/tests/features/Cargo.toml");
    let target = cx.workspace.target.clone();
    let command =
        Command::line("cargo test --locked --manifest-path").arg(&manifest).args(["--target-dir"]).arg(&target);
    cx.run(&command).map(drop)
}

fn search_interleavings(cx: &mut Context) -> Result<(), Error> {
    let target = cx.workspace.target.clone();
    let table = loom::verify(&target, &mut |command| cx.attempt(command))?;
    table.lines().for_each(|line| cx.say(line));
    Ok(())
}

fn bench_smoke(cx: &mut Context) -> Result<(), Error> {
    let packages = cx.workspace.packages.iter();
    let benches: Vec<String> = packages.flat_map(|package| package.benches()).map(String::from).collect();
    if benches.is_empty() {
        return Err(Error::check("no package has a [[bench]] target, so nothing is measured"));
    }
    cx.say(&format!("benchmarks: {}", benches.join(", ")));
    let command = Command::line("cargo bench --workspace --all-features");
    cx.run(&command.args(["--bench", "*", "--", "--test"])).map(drop)
}

#[cfg(test)]
mod tests {
    use super::{STEPS, TestRun, test_command};
    use std::collections::BTreeSet;

    #[test]
    fn step_names_are_unique_and_one_word() {
        let names: BTreeSet<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
        assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')));
    }

    #[test]
    fn what_needs_files_or_tools_of_others_is_optional() {
        let optional: Vec<&str> = STEPS.iter().filter(|step| !step.required).map(|step| step.name).collect();
        assert_eq!(optional, ["targets", "deny", "schema"]);
    }

    #[test]
    fn statements_come_after_the_tests_that_they_read() {
        let at = |name| STEPS.iter().position(|step| step.name == name).unwrap();
        assert!(at("test") < at("loom") && at("loom") < at("statements"));
    }

    #[test]
    fn statements_alone_run_by_their_name() {
        assert!(test_command(false, TestRun::Statements).to_string().ends_with(" statement_"));
        assert!(test_command(true, TestRun::Statements).to_string().ends_with(" statement_"));
        assert!(!test_command(true, TestRun::All).to_string().contains("statement_"));
    }
}
