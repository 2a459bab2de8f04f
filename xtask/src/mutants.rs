//! `cargo xtask mutants`: are the tests able to fail? Each mutant is a small
//! change of the code; one that no test notices shows what is not tested.
//!
//! A mutant costs an incremental build, a link for each test binary, and the tests up to the first that fails. So the
//! tests near the code come first, and only what survives those meets the whole suite. All of it happens in a copy of
//! the checkout under `target/mutants`, and what is noticed stays noted there until the file of the mutant changes.

mod ledger;

use crate::cargo::Workspace;
use crate::console::Console;
use crate::error::Error;
use crate::process::{Command, Sink};
use crate::table::Table;
use ledger::{Ledger, Pass, Score};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

const CORE: &str = "mcp-steady-core";

/// A part of core, and the test binaries that are likely to notice a change in it; `lib` stands for the unit tests of its
/// modules, `lib::MODULE` for those of another one.
struct Area {
    name: &'static str,
    modules: &'static [&'static str],
    near: &'static [&'static str],
}

const AREAS: &[Area] = &[
    Area { name: "coordinator", modules: &["coordinator"], near: &["coordinator", "leaves"] },
    Area { name: "client", modules: &["client"], near: &["client"] },
    Area {
        name: "outbound",
        modules: &["outbound"],
        near: &["outbound", "lib::kernel::queue", "retention", "allocations"],
    },
    Area {
        name: "leaves",
        modules: &["request", "deadline", "progress", "retry", "backoff", "follow", "id", "time", "transport"],
        near: &["lib", "leaves", "invariants"],
    },
    Area {
        name: "subscription",
        modules: &["subscription", "listener"],
        near: &["lib", "subscription", "listener", "leaves"],
    },
    Area { name: "task", modules: &["task"], near: &["task", "leaves"] },
    Area { name: "idempotency", modules: &["idempotency"], near: &["lib"] },
    Area { name: "mrtr", modules: &["mrtr"], near: &["mrtr"] },
    Area { name: "rpc", modules: &["rpc", "lib"], near: &["lib", "wire"] },
    Area { name: "legacy", modules: &["legacy"], near: &["lib", "legacy"] },
    Area { name: "kernel", modules: &["kernel"], near: &["lib::kernel", "kernel", "outbound", "retention"] },
];

/// Mutants that say nothing: what is printed for a developer, and faults that are faults already.
const UNTOLD: [&str; 4] =
    ["--exclude-re", r"impl (core::)?(fmt::)?Debug|planted_clock", "--exclude", "core/src/kernel/mutant.rs"];

/// What builds fastest: the searches are slower without optimisation, but most mutants do not live to see them.
const PROFILE: [&str; 2] = ["--config", "profile.dev.package.mcp-steady-core.opt-level=0"];

/// Change the code in small ways and see which changes no test notices
#[derive(clap::Args)]
#[command(
    long_about = "Change the code in small ways and see which changes no test notices.\n\n\
        It runs cargo-mutants on a copy of the checkout, with nextest where that is installed: first with the tests near \
        the changed code, then what those did not notice with all tests of the package. It prints the score and the mutants that \
        survived. What was noticed is not run again until its file changes, so a run may be stopped and \
        started again.",
    after_long_help = help()
)]
pub(crate) struct Options {
    /// Areas of core; all of them, one after the other, if none is named
    #[arg(value_name = "AREA", value_parser = names())]
    areas: Vec<String>,
    /// Another package, as one area and with all of its tests at once
    #[arg(long, value_name = "NAME", conflicts_with = "areas")]
    package: Option<String>,
    /// How long a build or the tests of one mutant may take, in seconds; a mutant that takes longer counts as noticed
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u32).range(10..))]
    timeout: u32,
    /// Only the tests near the code: what they do not notice stays open
    #[arg(long)]
    near: bool,
    /// Run nothing: print each mutant with what is known of it
    #[arg(long)]
    list: bool,
    /// Options of cargo-mutants that choose among the mutants, after `--`
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

fn names() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(AREAS.iter().map(|area| area.name))
}

fn help() -> String {
    let lines: Vec<String> =
        AREAS.iter().map(|area| format!("  {:13} near tests: {}", area.name, area.near.join(", "))).collect();
    format!(
        "Areas:\n{}\n\nExamples:\n  \
        cargo xtask mutants                              all of core; about an hour of one core\n  \
        cargo xtask mutants task -- --re 'in Task::handle'   some mutants of one area\n  \
        cargo xtask mutants -- --in-diff my.diff         those in the lines that a diff touches\n  \
        cargo xtask mutants --list rpc                   what is known, and run nothing\n\n\
        A survivor is answered by a test that fails under it, or by code that has no such place. The score leaves out \
        mutants that do not compile.\n\n\
        The exit code is 0 if every mutant was noticed, 1 if one survived, 2 if the run could not be made.",
        lines.join("\n")
    )
}

/// Runs cargo-mutants; false if a mutant survived.
pub(crate) fn run(options: &Options) -> Result<bool, Error> {
    let workspace = Workspace::enter()?;
    if !Command::line("cargo mutants --version").works() {
        return Err(Error::check("mutants need cargo-mutants: cargo install cargo-mutants --locked"));
    }
    let folder = workspace.root.join(workspace.scratch("mutants")?);
    let log = folder.join("run.log");
    let bench = Bench {
        tree: folder.join("tree"),
        folder,
        package: options.package.clone().unwrap_or_else(|| CORE.into()),
        nextest: Command::line("cargo nextest --version").works(),
        timeout: options.timeout,
        sink: Sink::new(File::create(&log).map_err(Error::file(&log))?, None),
    };
    bench.copy(&workspace.root)?;
    let passed = bench.folder.join("passed");
    if !options.list && !passed.exists() {
        bench.baseline()?;
        fs::write(&passed, "the tests of the copy, without any mutant").map_err(Error::file(&passed))?;
    }
    let open = |shard: Shard| bench.ledger(&shard, &options.args).map(|ledger| (shard, ledger));
    let mut areas = options.shards().into_iter().map(open).collect::<Result<Vec<_>, _>>()?;
    let passes: &[Pass] = if options.near { &[Pass::Near] } else { &[Pass::Near, Pass::All] };
    for pass in passes.iter().filter(|_| !options.list) {
        for (shard, ledger) in &mut areas {
            bench.pass(shard, *pass, ledger)?;
        }
    }
    let console = Console::stdout();
    if options.list {
        let all = areas.iter().flat_map(|(_, ledger)| ledger.mutants());
        all.for_each(|(name, fate)| console.say(&format!("{:9} {name}", fate.word())));
    }
    console.say(&format!("\n{}\nlog: {}", report(&areas), log.display()));
    Ok(options.list || areas.iter().all(|(_, ledger)| ledger.survivors().next().is_none()))
}

/// The score of each area and of all, and who survived.
fn report(areas: &[(Shard, Ledger)]) -> String {
    let mut table = Table::new(&["area", "mutants", "noticed", "timeout", "unviable", "survived", "open", "score"]);
    let (mut total, mut survivors) = (Score::default(), String::new());
    for (shard, ledger) in areas {
        let score = Score::of(ledger);
        score.row(&shard.name, &mut table);
        total.add(score);
        survivors.extend(ledger.survivors().map(|(name, fate)| format!("{}: {name}\n", fate.word())));
    }
    total.row("all", &mut table);
    format!("{}\n\n{survivors}", table.render())
}

/// The files and tests of one area.
struct Shard {
    name: String,
    /// Globs; none for all files of the package.
    files: Vec<String>,
    /// None if all tests run at once.
    near: Vec<String>,
    /// Of the near tests only these, as nextest names them: of the unit tests those of the area's own modules.
    only: Option<String>,
}

impl Options {
    fn shards(&self) -> Vec<Shard> {
        if let Some(package) = &self.package {
            return vec![Shard { name: package.clone(), files: vec![], near: vec![], only: None }];
        }
        let chosen = |area: &&Area| self.areas.is_empty() || self.areas.iter().any(|name| name == area.name);
        AREAS.iter().filter(chosen).map(Area::shard).collect()
    }
}

impl Area {
    fn shard(&self) -> Shard {
        let globs = |module| [format!("core/src/{module}.rs"), format!("core/src/{module}/**")];
        let unit_tests = |test: &str| test == "lib" || test.starts_with("lib::");
        let own = self.modules.iter().copied().filter(|_| self.near.contains(&"lib"));
        let modules: Vec<&str> = own.chain(self.near.iter().filter_map(|test| test.strip_prefix("lib::"))).collect();
        let only = format!("not kind(lib) or test(/^({})::/)", modules.join("|"));
        let near = |test: &&str| if unit_tests(test) { "--lib".to_string() } else { format!("--test={test}") };
        Shard {
            name: self.name.to_string(),
            files: self.modules.iter().flat_map(globs).collect(),
            near: self.near.iter().map(near).collect(),
            only: (!modules.is_empty()).then_some(only),
        }
    }
}

/// Where mutants are tried, and how.
struct Bench {
    folder: PathBuf,
    /// The copy in which the code is changed. It keeps its own build.
    tree: PathBuf,
    package: String,
    nextest: bool,
    timeout: u32,
    sink: Sink,
}

impl Bench {
    /// Makes the copy like the checkout. A file that is as it was keeps its time, so cargo builds only what changed.
    fn copy(&self, root: &Path) -> Result<(), Error> {
        let line = "git ls-files --cached --others --exclude-standard";
        let listed = Command::line(line).capture()?.success_or_exit(line)?;
        let wanted: BTreeSet<&Path> = listed.lines().map(Path::new).filter(|path| root.join(path).is_file()).collect();
        let mut changes = remove_all_but(&self.tree, &self.tree, &wanted)?;
        for path in wanted {
            let (from, to) = (root.join(path), self.tree.join(path));
            let content = fs::read(&from).map_err(Error::file(&from))?;
            if fs::read(&to).is_ok_and(|old| old == content) {
                continue;
            }
            let parent = to.parent().unwrap_or(&self.tree);
            fs::create_dir_all(parent).map_err(Error::file(parent))?;
            fs::write(&to, content).map_err(Error::file(&to))?;
            changes += 1;
        }
        let passed = self.folder.join("passed");
        if changes > 0 && passed.exists() {
            fs::remove_file(&passed).map_err(Error::file(&passed))?;
        }
        Ok(())
    }

    /// What each command sees: builds without debug information go to the copy's own folder.
    fn settled(&self, command: Command) -> Command {
        let target = self.tree.join("target").display().to_string();
        let command = command.env("CARGO_TARGET_DIR", target).env("RUST_BACKTRACE", "0");
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "1")
    }

    /// All tests pass without a mutant.
    fn baseline(&self) -> Result<(), Error> {
        let line = if self.nextest { "cargo nextest run --tests" } else { "cargo test --tests" };
        let manifest = self.tree.join("Cargo.toml");
        let command = Command::line(line).args(PROFILE).args(["--package", &self.package, "--manifest-path"]);
        let command = self.settled(command.arg(manifest));
        Console::stdout().say(&format!("$ {command}"));
        let done = command.run(&self.sink)?;
        done.checked(&command).map_err(|why| Error::check(format!("the tests fail without any mutant: {why}")))
    }

    fn mutants(&self, shard: &Shard) -> Command {
        let command = Command::line("cargo mutants --package").args([&self.package]).args(UNTOLD);
        let command = command.args(["--exclude", "**/benches/**", "--exclude", "**/fuzz/**", "--dir"]).arg(&self.tree);
        command.args(shard.files.iter().flat_map(|glob| ["--file", glob]))
    }

    /// The lines that cargo-mutants lists for an area.
    fn listed(&self, what: &str, shard: &Shard, choice: &[String]) -> Result<Vec<String>, Error> {
        let list = self.mutants(shard).args(["--no-config", what]).args(choice);
        let text = list.capture()?.success_or_exit(&list.to_string())?;
        Ok(text.lines().map(str::to_string).collect())
    }

    /// The mutants of an area and what is known of each, also from a run that was stopped.
    fn ledger(&self, shard: &Shard, choice: &[String]) -> Result<Ledger, Error> {
        let folder = self.folder.join(&shard.name);
        fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
        let names = self.listed("--list", shard, choice)?;
        Ledger::open(folder, self.prints(shard)?, names)
    }

    /// Tries the mutants of an area that this pass has to try.
    fn pass(&self, shard: &Shard, pass: Pass, ledger: &mut Ledger) -> Result<(), Error> {
        let names = ledger.to_try();
        if names.is_empty() || (pass == Pass::Near && shard.near.is_empty()) {
            return Ok(());
        }
        Console::stdout().say(&format!("{}: {} mutants, {} tests", shard.name, names.len(), pass.word()));
        let config = ledger.folder.join("config.toml");
        fs::write(&config, examine(&names)).map_err(Error::file(&config))?;
        let output = ledger.folder.join(pass.word());
        let command = self.mutants(shard).args(["--in-place", "--baseline", "skip", "--timeout"]);
        let command = command.args([self.timeout.to_string()]).arg("--config").arg(&config).arg("--output").arg(output);
        let all = ["--tests".to_string()];
        let tests = if pass == Pass::Near { &shard.near[..] } else { &all };
        let cargo = PROFILE.into_iter().chain(tests.iter().map(String::as_str)).map(|arg| format!("-C={arg}"));
        let tool = if self.nextest { "nextest" } else { "cargo" };
        let only = shard.only.iter().filter(|_| self.nextest && pass == Pass::Near);
        let only = only.flat_map(|only| ["--", "-E", only]);
        let command = self.settled(command.args(["--test-tool", tool]).args(cargo).args(only));
        self.sink.line(&format!("$ {command}"));
        let done = command.run(&self.sink)?;
        let tried = ledger.harvest()?;
        if names.iter().all(|name| tried.contains(name)) {
            return Ok(());
        }
        // It says by its status, too, that mutants survived.
        Err(done.checked(&command).err().unwrap_or_else(|| Error::check(format!("`{command}` left mutants untried"))))
    }

    /// For each file of an area, a number for its content.
    fn prints(&self, shard: &Shard) -> Result<BTreeMap<String, String>, Error> {
        let print = |name: String| {
            let path = self.tree.join(&name);
            let mut hasher = DefaultHasher::new();
            fs::read(&path).map_err(Error::file(&path))?.hash(&mut hasher);
            Ok((name, format!("{:016x}", hasher.finish())))
        };
        self.listed("--list-files", shard, &[])?.into_iter().map(print).collect()
    }
}

/// Deletes the files below `folder` that are not wanted, and counts them; the build of the copy stays.
fn remove_all_but(tree: &Path, folder: &Path, wanted: &BTreeSet<&Path>) -> Result<usize, Error> {
    let mut removed = 0;
    if !folder.exists() {
        return Ok(removed);
    }
    for entry in fs::read_dir(folder).map_err(Error::file(folder))? {
        let path = entry.map_err(Error::file(folder))?.path();
        let name = path.strip_prefix(tree).unwrap_or(&path);
        if path.is_dir() && name != Path::new("target") {
            removed += remove_all_but(tree, &path, wanted)?;
        } else if path.is_file() && !wanted.contains(name) {
            fs::remove_file(&path).map_err(Error::file(&path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// A configuration of cargo-mutants that chooses these mutants and no others.
fn examine(names: &[String]) -> String {
    let escape = |name: &String| {
        let special = |c: char| r"\.+*?()|[]{}^$#&-~".contains(c);
        let pattern = name.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c]));
        // A string of JSON is one of TOML.
        format!("  {},\n", serde_json::Value::from(format!("^{}$", pattern.collect::<String>())))
    };
    format!("examine_re = [\n{}]\n", names.iter().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::{AREAS, examine};
    use std::fs;
    use std::path::{Path, PathBuf};

    fn core() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../core")
    }

    #[test]
    fn each_module_of_core_is_in_one_area_and_each_near_test_exists() {
        let mut modules: Vec<&str> = AREAS.iter().flat_map(|area| area.modules).copied().collect();
        modules.sort_unstable();
        let files = fs::read_dir(core().join("src")).unwrap().map(|entry| entry.unwrap().path());
        let mut stems: Vec<String> = files
            .filter(|path| path.is_file())
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_string())
            .collect();
        stems.sort_unstable();
        assert_eq!(modules, stems);
        for test in AREAS.iter().flat_map(|area| area.near).filter(|test| !test.starts_with("lib")) {
            let path = core().join("tests").join(test);
            assert!(path.join("main.rs").exists() || path.with_extension("rs").exists(), "{test}");
        }
    }

    #[test]
    fn a_name_is_chosen_to_the_letter() {
        let name = r#"a.rs:1:2: replace f -> Option<&'a str> with Some("") in <A as B>::f"#.to_string();
        let expected = r#"  "^a\\.rs:1:2: replace f \\-> Option<\\&'a str> with Some\\(\"\"\\) in <A as B>::f$","#;
        assert_eq!(examine(&[name]), format!("examine_re = [\n{expected}\n]\n"));
    }
}
