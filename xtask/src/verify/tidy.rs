//! The house rules that no lint knows.
//!
//! 1. A file of code has fewer than 500 lines.
//! 2. A Rust file opens with a `//!` doc.
//! 3. Nothing unfinished: no ignored test, no placeholder or debugging macro.
//! 4. In core, `kernel/sync.rs` alone names `std::sync` and `std::thread`.
//! 5. Every member takes the lints of the workspace.
//! 6. `unsafe` has its few homes, each of them named below and small; core has
//!    none.
//! 7. A member depends on no member and on no runtime, server or database that
//!    the table below does not let it have.
//! 8. No two programs and no two examples of the workspace have one name: cargo
//!    builds them into one folder.

use super::context::Context;
use super::source::code_only;
use crate::cargo::{METADATA, Package, Workspace};
use crate::error::Error;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const LINES_MAX: usize = 500;
const CODE: [&str; 5] = ["rs", "py", "mjs", "js", "sh"];
const UNFINISHED: [&str; 4] = ["#[ignore", "todo!", "unimplemented!", "dbg!"];
const SYNC_HOME: &str = "core/src/kernel/sync.rs";
/// Where `unsafe` may stand: one module for one thing that safe code cannot do.
const UNSAFE_HOMES: [&str; 3] =
    ["ledger/crash-vfs/src/vfs.rs", "transport-stdio/src/client/job.rs", "transport-stdio/src/client/orphan.rs"];
const NOT_OURS: [&str; 3] = ["target", "node_modules", ".git"];

/// The file layer that the ledger's tests put under SQLite; part of no release.
const TESTS_DISK: &str = "mcp-steady-crash-vfs";

/// The suite that every ledger passes; part of no release.
const TESTS_SUITE: &str = "mcp-steady-ledger-conformance";

/// What a member must do without, unless one of its features asks for it.
const BY_FEATURE: [(&str, &str); 1] = [("mcp-steady-ledger", "tokio")];

/// Which members a member may depend on, in any kind of dependency, and which
/// other crates it may not have as a normal one.
const MAY_DEPEND: [(&str, &[&str], &[&str]); 8] = [
    ("mcp-steady-core", &[], &["tokio", "rusqlite", "hyper", "http", "rand", "getrandom"]),
    (
        "mcp-steady-ledger",
        &["mcp-steady-core", TESTS_DISK, TESTS_SUITE],
        &["tokio", "hyper", "http", TESTS_DISK, TESTS_SUITE],
    ),
    (TESTS_SUITE, &[], &["tokio", "rusqlite", "hyper", "http"]),
    (TESTS_DISK, &[], &["tokio", "hyper", "http"]),
    ("mcp-steady-stdio", &["mcp-steady-core"], &["rusqlite", "hyper", "http"]),
    ("mcp-steady-http", &["mcp-steady-core"], &["rusqlite", "axum", "tower", "reqwest", "tracing"]),
    (
        "mcp-steady-sim",
        &["mcp-steady-core", "mcp-steady-ledger", "mcp-steady-stdio", "mcp-steady-http", TESTS_SUITE],
        &[TESTS_SUITE],
    ),
    ("xtask", &[], &[]),
];

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    cx.announce(METADATA);
    let workspace = &cx.workspace;
    let mut findings = package_findings(workspace)?;
    let files = files_of_code(&workspace.root)?;
    for path in &files {
        let source = fs::read_to_string(path).map_err(Error::file(path))?;
        findings.extend(file_findings(&relative(path, &workspace.root), &source));
    }
    let packages = workspace.packages.len();
    cx.say(&format!("{} files, {packages} packages", files.len()));
    Error::unless_empty(findings)
}

pub(crate) fn relative(path: &Path, root: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/")
}

/// All files of code below `root`, in a fixed order.
fn files_of_code(root: &Path) -> Result<Vec<PathBuf>, Error> {
    files_that_end(root, &CODE)
}

/// All files below `root` with one of these extensions, in a fixed order.
pub(crate) fn files_that_end(root: &Path, ends: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::file(&folder))? {
            let path = entry.map_err(Error::file(&folder))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let wanted = path.extension().is_some_and(|end| ends.iter().any(|wanted| end == *wanted));
            if path.is_dir() && !path.is_symlink() && !NOT_OURS.contains(&&*name) {
                folders.push(path);
            } else if path.is_file() && wanted {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// What rules 1 to 4 and 6 say about one file.
fn file_findings(name: &str, source: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let lines = source.lines().count();
    if lines >= LINES_MAX {
        findings.push(format!("{name}: {lines} lines, fewer than {LINES_MAX} allowed: split it by what it decides"));
    }
    if !name.ends_with(".rs") {
        return findings;
    }
    if !source.starts_with("//!") {
        findings.push(format!("{name}:1: opens without a `//!` doc: say what the file decides"));
    }
    let code = code_only(source);
    for (index, line) in code.lines().enumerate() {
        for word in UNFINISHED.iter().filter(|word| has_word(line, word)) {
            findings.push(format!("{name}:{}: `{word}` is for unfinished work", index + 1));
        }
    }
    if !UNSAFE_HOMES.contains(&name) && has_unsafe(&code) {
        findings.push(format!("{name}: has `unsafe`: only {UNSAFE_HOMES:?} may"));
    }
    if name.starts_with("core/src/") && name != SYNC_HOME {
        let named = std_uses(&code)
            .into_iter()
            .map(|module| format!("{name}: names std::{module}: go through {SYNC_HOME}, so that loom sees it too"));
        findings.extend(named);
    }
    findings
}

/// Whether the code has an `unsafe` block, function, impl or attribute.
fn has_unsafe(code: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.split(|c: char| !is_word(c)).any(|word| word == "unsafe")
}

/// Whether `word` occurs and is not the end of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// Which of `std::sync` and `std::thread` the code names, also in `std::{..}`.
fn std_uses(code: &str) -> Vec<&'static str> {
    let dense: String = code.split_whitespace().collect();
    let groups: Vec<&str> = dense.split("std::{").skip(1).map(first_group).collect();
    let named = |module: &&str| {
        let direct = dense.contains(&format!("std::{module}::")) || dense.contains(&format!("std::{module};"));
        let starts = |item: &str| item == *module || item.starts_with(&format!("{module}::"));
        direct || groups.iter().any(|group| group.split([',', '{']).any(starts))
    };
    ["sync", "thread"].into_iter().filter(named).collect()
}

/// The text up to the brace that closes the group.
fn first_group(text: &str) -> &str {
    let mut depth = 1usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// What rules 5, 7 and 8 say about the members.
fn package_findings(workspace: &Workspace) -> Result<Vec<String>, Error> {
    let mut findings = Vec::new();
    for package in &workspace.packages {
        let manifest = fs::read_to_string(&package.manifest_path).map_err(Error::file(&package.manifest_path))?;
        if !takes_workspace_lints(&manifest) {
            findings.push(format!("{}: add `[lints]` with `workspace = true`", package.name));
        }
        findings.extend(dependency_findings(package, &workspace.packages));
    }
    findings.extend(name_findings(&workspace.packages));
    Ok(findings)
}

/// Programs of one kind share a folder, where two of one name overwrite each other while they are built.
fn name_findings(packages: &[Package]) -> Vec<String> {
    let mut owners: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut findings = Vec::new();
    for package in packages {
        for target in &package.targets {
            for kind in target.kind.iter().filter(|kind| ["bin", "example"].contains(&kind.as_str())) {
                if let Some(other) = owners.insert((kind, &target.name), &package.name) {
                    let (owner, name) = (&package.name, &target.name);
                    findings.push(format!("{owner}: the {kind} `{name}` has the name of one in {other}: rename it"));
                }
            }
        }
    }
    findings
}

fn takes_workspace_lints(manifest: &str) -> bool {
    let lines = manifest.lines().map(str::trim).skip_while(|line| *line != "[lints]").skip(1);
    let mut section = lines.take_while(|line| !line.starts_with('['));
    section.any(|line| line.replace(' ', "") == "workspace=true")
}

fn dependency_findings(package: &Package, members: &[Package]) -> Vec<String> {
    let name = &package.name;
    let Some((_, may, never)) = MAY_DEPEND.iter().find(|(member, ..)| member == name) else {
        return vec![format!("{name}: not in the table of who depends on whom in xtask/src/verify/tidy.rs: add it")];
    };
    let mut findings = Vec::new();
    for dependency in &package.dependencies {
        let other = dependency.name.as_str();
        if members.iter().any(|member| member.name == other) && !may.contains(&other) {
            findings.push(format!("{name}: depends on {other}; it may depend on {may:?} only"));
        }
        let by_feature = dependency.optional && BY_FEATURE.contains(&(name.as_str(), other));
        if dependency.kind.is_none() && never.contains(&other) && !by_feature {
            findings.push(format!("{name}: depends on {other}, which it must do without"));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{Workspace, dependency_findings, file_findings, name_findings, std_uses, takes_workspace_lints};

    #[test]
    fn a_long_file_and_a_file_without_a_doc_are_found() {
        let long = format!("//! Doc.\n{}", "x\n".repeat(499));
        assert!(file_findings("core/src/a.rs", &long)[0].contains("500 lines"));
        assert_eq!(file_findings("core/src/a.rs", &long[..long.len() - 2]), [""; 0]);
        assert!(file_findings("core/src/a.rs", "fn a() {}\n")[0].contains("opens without"));
        assert_eq!(file_findings("a.py", "print()\n"), [""; 0]);
    }

    #[test]
    fn unfinished_work_is_found_in_code_alone() {
        let found = |code: &str| file_findings("sim/src/a.rs", &format!("//! Doc.\n{code}\n")).len();
        assert_eq!(found("#[ignore = \"slow\"]"), 1);
        assert_eq!(found("fn a() { todo!() }"), 1);
        assert_eq!(found("fn a() { dbg!(x); unimplemented!() }"), 2);
        assert_eq!(found("// todo!()"), 0);
        assert_eq!(found("let a = \"todo!()\";"), 0);
        assert_eq!(found("my_todo!()"), 0);
    }

    #[test]
    fn threads_and_locks_have_one_home_in_core() {
        assert_eq!(std_uses("use std::sync::Mutex;"), ["sync"]);
        assert_eq!(std_uses("use std::{fmt, thread};"), ["thread"]);
        assert_eq!(std_uses("use std::{io::{self, Read}, sync::{Arc, Mutex}};"), ["sync"]);
        assert_eq!(std_uses("use std::{fmt}; use loom::{sync, thread};"), [""; 0]);
        assert_eq!(std_uses("use alloc::sync::Arc; use core::task::Waker;"), [""; 0]);
        let source = "//! Doc.\nuse std::sync::Mutex;\n";
        assert_eq!(file_findings("core/src/kernel/slot.rs", source).len(), 1);
        assert_eq!(file_findings("core/src/kernel/sync.rs", source).len(), 0);
        assert_eq!(file_findings("ledger/src/lib.rs", source).len(), 0);
    }

    #[test]
    fn unsafe_code_is_found_outside_of_its_homes() {
        let found = |name: &str, code: &str| file_findings(name, &format!("//! Doc.\n{code}\n")).len();
        let block = "fn a() { unsafe { b() } }";
        assert_eq!(found("core/src/a.rs", block), 1);
        assert_eq!(found("transport-stdio/src/client/child.rs", "unsafe impl Send for A {}"), 1);
        assert_eq!(found("transport-stdio/src/client/orphan.rs", block), 0);
        assert_eq!(found("core/src/a.rs", "#![deny(unsafe_code)] // unsafe"), 0);
    }

    #[test]
    fn lints_are_taken_in_their_own_section() {
        assert!(takes_workspace_lints("[package]\n[lints]\nworkspace = true\n"));
        assert!(!takes_workspace_lints("[lints]\n[dependencies]\nworkspace = true\n"));
        assert!(!takes_workspace_lints("[package]\nworkspace = true\n"));
    }

    #[test]
    fn the_dependency_table_binds() {
        let text = r#"{"workspace_root":"/w","target_directory":"/w/target","packages":[
            {"name":"mcp-steady-core","manifest_path":"/w/core/Cargo.toml","targets":[],
             "dependencies":[{"name":"serde","kind":null},{"name":"tokio","kind":"dev"}]},
            {"name":"mcp-steady-stdio","manifest_path":"/w/s/Cargo.toml","targets":[],
             "dependencies":[{"name":"mcp-steady-core","kind":null},{"name":"mcp-steady-ledger","kind":"dev"},
                             {"name":"hyper","kind":null}]},
            {"name":"mcp-steady-ledger","manifest_path":"/w/l/Cargo.toml","targets":[],
             "dependencies":[{"name":"tokio","kind":null,"optional":true}]},
            {"name":"stranger","manifest_path":"/w/x/Cargo.toml","targets":[],"dependencies":[]}]}"#;
        let workspace = Workspace::parse(text).unwrap();
        let found = |at: usize| dependency_findings(&workspace.packages[at], &workspace.packages);
        assert_eq!(found(0), [""; 0]);
        assert_eq!(found(1).len(), 2, "{:?}", found(1));
        assert_eq!(found(2), [""; 0]);
        assert!(found(3)[0].contains("not in the table"));
        let always = Workspace::parse(&text.replace("true", "false")).unwrap();
        assert_eq!(dependency_findings(&always.packages[2], &always.packages).len(), 1);
    }

    #[test]
    fn two_examples_of_one_name_are_found() {
        let package = |name: &str, target: &str, kind: &str| {
            format!(
                r#"{{"name":"{name}","manifest_path":"/w/{name}","dependencies":[],
                    "targets":[{{"name":"{target}","kind":["{kind}"]}}]}}"#
            )
        };
        let found = |others: [String; 2]| {
            let packages = others.join(",");
            let text = format!(r#"{{"workspace_root":"/w","target_directory":"/w/target","packages":[{packages}]}}"#);
            name_findings(&Workspace::parse(&text).unwrap().packages)
        };
        let twice = found([package("a", "counter", "example"), package("b", "counter", "example")]);
        assert_eq!(twice, ["b: the example `counter` has the name of one in a: rename it"]);
        assert_eq!(found([package("a", "counter", "example"), package("b", "counter", "test")]), [""; 0]);
        assert_eq!(found([package("a", "counter", "bin"), package("b", "other", "bin")]), [""; 0]);
    }
}
