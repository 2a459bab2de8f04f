//! Where an example of this package is, and whether it is of now: cargo builds examples with a whole test run alone.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The program of this example. It fails where a test would run without it, or on an older one than its sources.
pub(crate) fn example(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_steady-sim")).with_file_name("examples");
    let program = folder.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    let build = format!("build it: cargo build -p mcp-steady-sim --example {name}");
    let Some(built) = changed(&program) else { panic!("{} is missing; {build}", program.display()) };
    // Cargo writes beside it what it was built from. Without that, or without the sources, there is nothing to compare.
    let sources = std::fs::read_to_string(folder.join(format!("{name}.d"))).unwrap_or_default();
    let newer = sources_of(&sources).find(|source| changed(source).is_some_and(|at| at > built));
    if let Some(source) = newer {
        panic!("{} is older than {}; {build}", program.display(), source.display());
    }
    program
}

fn changed(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|data| data.modified()).ok()
}

/// The files after the colon of a rule of make; a space in a name stands behind a backslash.
fn sources_of(rules: &str) -> impl Iterator<Item = PathBuf> + '_ {
    const SPACE: &str = "\u{0}";
    rules.lines().filter_map(|line| line.split_once(": ")).flat_map(|(_, files)| {
        let files = files.replace("\\ ", SPACE);
        let files: Vec<PathBuf> = files.split(' ').map(|file| file.replace(SPACE, " ").into()).collect();
        files
    })
}

#[test]
fn an_example_is_built_from_the_files_of_its_rule() {
    let files: Vec<PathBuf> = sources_of("/target/a: /src/a.rs /my\\ src/b.rs\n\n").collect();
    assert_eq!(files, [PathBuf::from("/src/a.rs"), PathBuf::from("/my src/b.rs")]);
}

#[test]
#[should_panic(expected = "is missing; build it: cargo build -p mcp-steady-sim --example nothing")]
fn an_example_that_is_missing_says_how_to_build_it() {
    let _never = example("nothing");
}
