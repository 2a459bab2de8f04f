//! The race explorer in a real browser: it loads without a network, keys pick an ordering, and what it says changes.

use super::context::Context;
use crate::error::Error;
use crate::process::Command;
use crate::webdriver::Browser;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Width and height of the screens that it has to fit.
const SCREENS: [(u32, u32); 2] = [(390, 844), (1280, 900)];
/// The arrow keys, as WebDriver writes them.
const DOWN: &str = "\u{e015}";
/// Longest page, in bytes.
const LONGEST: u64 = 1 << 20;

/// Writes the page and uses it.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let folder = cx.workspace.scratch("explore")?;
    let page = folder.join("explore.html");
    let command = Command::line("cargo run -p mcp-steady-sim --bin steady-sim -- explore --json --out").arg(&page);
    let done = cx.run(&command)?;
    let told: Value = serde_json::from_str(&done.stdout)
        .map_err(|why| Error::check(format!("explore --json does not print one JSON value: {why}")))?;
    let orderings = told.get("orderings").and_then(Value::as_u64).unwrap_or(0);
    let bytes = fs::metadata(&page).map_err(Error::file(&page))?.len();
    if bytes > LONGEST || orderings == 0 {
        return Err(Error::check(format!("{bytes} bytes, {orderings} orderings: too large, or empty")));
    }
    let profile = folder.join("profile");
    if profile.exists() {
        fs::remove_dir_all(&profile).map_err(Error::file(&profile))?;
    }
    cx.announce("chromedriver --port=0");
    let browser = Browser::start(&profile)?;
    let findings = used(&browser, &page)?;
    for (name, mutant, expected) in mutants(&page)? {
        let file = folder.join(name);
        fs::write(&file, mutant).map_err(Error::file(&file))?;
        if !used(&browser, &file)?.iter().any(|finding| finding.contains(expected)) {
            return Err(Error::check(format!("{name} is broken, and nothing here sees it: the check proves nothing")));
        }
    }
    drop(browser);
    cx.say(&format!("{orderings} orderings, {bytes} bytes; picked by keys and by clicks on {} screens", SCREENS.len()));
    Error::unless_empty(findings)
}

/// Pages that are broken on purpose, and what has to be said of each.
fn mutants(page: &Path) -> Result<[(&'static str, String, &'static str); 2], Error> {
    let text = fs::read_to_string(page).map_err(Error::file(page))?;
    let deaf = text.replace("addEventListener(\"input\", show)", "addEventListener(\"input\", () => {})");
    let loud = text.replace("\"use strict\";", "\"use strict\"; console.error(\"planted\");");
    if deaf == text || loud == text {
        return Err(Error::check("the places that the broken pages change are not in the page any more"));
    }
    Ok([("deaf.html", deaf, "after the arrow keys"), ("loud.html", loud, "planted")])
}

/// What is wrong with the page.
fn used(browser: &Browser, page: &Path) -> Result<Vec<String>, Error> {
    let mut findings = Vec::new();
    let page = page.canonicalize().map_err(Error::file(page))?;
    for (width, height) in SCREENS {
        browser.screen(width, height)?;
        browser.open(&format!("file://{}", page.display()))?;
        let said = browser.text("#outcome")?;
        if !said.contains("At the client") {
            findings.push(format!("at {width} px: no outcome is there after the page has loaded: {said:?}"));
        }
        let shapes = "document.querySelectorAll('#diagram line').length";
        if browser.value_of(shapes)?.as_u64().unwrap_or(0) < 3 {
            findings.push(format!("at {width} px: the diagram is empty"));
        }
        // From the first order, which completes, to one that begins otherwise.
        browser.press("#ordering", &DOWN.repeat(20))?;
        let by_keys = browser.text("#outcome")?;
        if by_keys == said {
            findings.push(format!("at {width} px: the outcome is the same after the arrow keys: {said:?}"));
        }
        browser.click("input[value=stdio]")?;
        let by_click = browser.text("#outcome")?;
        if by_click == by_keys {
            findings.push(format!("at {width} px: the outcome is the same on the other transport: {by_click:?}"));
        }
        let wide = browser.value_of("document.documentElement.scrollWidth")?.as_u64().unwrap_or(u64::MAX);
        if wide > width.into() {
            findings.push(format!("at {width} px: the page is {wide} px wide, so a reader has to scroll sideways"));
        }
        findings.extend(browser.complaints()?.into_iter().map(|said| format!("at {width} px, in the console: {said}")));
    }
    if browser.value_of("performance.getEntriesByType('resource').length")?.as_u64() != Some(0) {
        findings.push("the page loads something beside itself".to_string());
    }
    Ok(findings)
}
