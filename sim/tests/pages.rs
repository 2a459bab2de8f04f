//! The generated pages say what the code says, and a page that says something else is found.
#![cfg(feature = "live")]

use std::fs;
use std::path::Path;

use steady_sim::pages::{self, Page, check, write};

fn all() -> Vec<Page> {
    pages::all().expect("every fixture runs")
}

#[test]
fn the_pages_of_the_repository_say_what_the_code_says() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let drifts = check(&docs, &all()).expect("they can be read");
    assert_eq!(drifts, [], "write them anew: steady-sim pages --dir docs --write");
}

#[test]
fn a_planted_drift_is_found_with_its_line() {
    let dir = tempfile::tempdir().expect("a folder");
    let all = all();
    write(dir.path(), &all).expect("written");
    assert_eq!(check(dir.path(), &all).expect("read"), []);
    let limits = dir.path().join("limits.md");
    let text = fs::read_to_string(&limits).expect("read");
    let planted = text.replacen("`.in_flight` | 1,024 |", "`.in_flight` | 1,000 |", 1);
    assert_ne!(planted, text, "the row is there to be changed");
    fs::write(&limits, &planted).expect("written");
    let drifts = check(dir.path(), &all).expect("read");
    assert_eq!(drifts.len(), 1);
    let line = planted.lines().nth(drifts[0].line - 1);
    assert!(line.is_some_and(|line| line.contains("1,000")), "{drifts:?}");

    fs::write(&limits, text.trim_end().rsplit_once('\n').expect("lines").0).expect("written");
    assert_eq!(check(dir.path(), &all).expect("read").len(), 1, "a page that ends early");
    fs::remove_file(&limits).expect("removed");
    assert_eq!(check(dir.path(), &all).expect("read").len(), 1, "a page that is not there");
}

#[test]
fn every_source_that_a_page_links_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut links = 0;
    for page in all() {
        for link in page.text.split("](../").skip(1) {
            let path = link.split(')').next().expect("an end");
            assert!(root.join(path).exists(), "{}: {path}", page.file);
            links += 1;
        }
    }
    assert!(links > 50);
}
