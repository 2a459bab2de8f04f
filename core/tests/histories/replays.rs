//! Every kept history, again. The first word of a file's name says which machine it is for.

use std::path::PathBuf;

use super::history::{folder, replay};
use super::{attempts::Attempts, lifecycle::Lifecycle, recovery::Recovery, tasks::Tasks};

fn lists(folder_name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder().join(folder_name)).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut lists: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
    lists.sort();
    lists
}

fn run(path: &PathBuf) -> Result<(), String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    match name.split('-').next() {
        Some("attempts") => replay::<Attempts>(&text),
        Some("lifecycle") => replay::<Lifecycle>(&text),
        Some("recovery") => replay::<Recovery>(&text),
        Some("tasks") => replay::<Tasks>(&text),
        other => Err(format!("no machine {other:?}")),
    }
}

#[test]
fn replays_every_regression() {
    let lists = lists("regressions");
    assert!(lists.len() >= 3, "the lists are found");
    for path in lists {
        run(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
}

#[test]
fn replays_every_failure_that_is_still_kept() {
    for path in lists("failures") {
        run(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    }
}

#[test]
fn a_list_that_cannot_be_read_is_no_success() {
    for text in ["", "# nothing\n", "call", "call safe more", "call nobody", "leap"] {
        assert!(replay::<Attempts>(text).is_err(), "{text:?}");
    }
    assert_eq!(replay::<Attempts>("call safe # a comment\n\n  answer 0\n"), Ok(()));
}
