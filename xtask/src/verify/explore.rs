//! The race explorer in a real browser: it loads without a network, keys pick an ordering, what it says changes, and it can be
//! read: on a small screen, in the dark, and by a screen reader. Each check has a page that is broken so that it must see it.

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
fn mutants(page: &Path) -> Result<Vec<(&'static str, String, &'static str)>, Error> {
    let text = fs::read_to_string(page).map_err(Error::file(page))?;
    let broken = |(name, place, instead, seen): (&'static str, &str, &str, &'static str)| {
        let broken = text.replace(place, instead);
        let same = broken == text;
        let gone = || Error::check(format!("the place that {name} changes is not in the page any more: {place}"));
        if same { Err(gone()) } else { Ok((name, broken, seen)) }
    };
    MUTANTS.into_iter().map(broken).collect()
}

/// A name, what is changed, into what, and what has to be said of it.
const MUTANTS: [(&str, &str, &str, &str); 9] = [
    ("deaf.html", "addEventListener(\"input\", show)", "addEventListener(\"input\", () => {})", "after the arrow keys"),
    ("loud.html", "\"use strict\";", "\"use strict\"; console.error(\"planted\");", "planted"),
    ("wide.html", "</style>", "svg { min-width: 60rem; }</style>", "scroll sideways"),
    ("loading.html", "</main>", "<img src=\"x.png\" alt=\"\"></main>", "loads something"),
    ("empty.html", "function draw(run) {", "function draw(run) { return;", "the diagram is empty"),
    ("day.html", "(prefers-color-scheme: dark)", "(prefers-color-scheme: none)", "does not follow"),
    ("pale.html", "--soft: #5b6570", "--soft: #c9cfd6", "contrast"),
    ("nameless.html", " for=\"ordering\"", "", "no name"),
    ("piled.html", "const hidden = () => {", "const hidden = () => { return 0;", "on each other"),
];

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
    findings.extend(readable(browser)?);
    if browser.value_of(LOADED)?.as_u64() != Some(0) {
        findings.push("the page loads something beside itself".to_string());
    }
    Ok(findings)
}

/// The least contrast of a text and what is behind it.
const CONTRAST: &str = "(() => {
  const light = (color) => {
    const [r, g, b] = color.match(/[0-9.]+/g).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const clear = 'rgba(0, 0, 0, 0)';
  const behind = (node) => {
    while (node && getComputedStyle(node).backgroundColor === clear) node = node.parentElement;
    return getComputedStyle(node ?? document.body).backgroundColor;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor);
  const texts = [...document.querySelectorAll('h1, p, label, legend, figcaption, summary, select, svg text')];
  const ratios = texts.filter((node) => node.textContent.trim()).map((node) => {
    const style = getComputedStyle(node);
    const [a, b] = [light(node instanceof SVGElement ? style.fill : style.color), light(behind(node))];
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.slice(0, 40)];
  });
  const [least, text] = ratios.reduce((least, next) => next[0] < least[0] ? next : least);
  return { paper, least, text };
})()";

/// Two texts of a diagram that lie on each other, in one of the orders that the list has now.
const PILED: &str = "(() => {
  const list = document.getElementById('ordering');
  const before = list.selectedIndex;
  let found = null;
  for (let index = 0; index < list.options.length && !found; index += 1) {
    list.selectedIndex = index;
    list.dispatchEvent(new Event('input'));
    const boxes = [...document.querySelectorAll('#diagram text')].map((node) => [node.getBBox(), node.textContent]);
    for (const [at, [a, first]] of boxes.entries()) for (const [b, second] of boxes.slice(at + 1)) {
      const wide = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
      const high = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
      // Letters do not fill their boxes.
      if (wide > 2 && high > 6) found = `${list.options[index].text}: ${first} / ${second}`;
    }
  }
  list.selectedIndex = before;
  list.dispatchEvent(new Event('input'));
  return found;
})()";

/// What the page has loaded, and what it would load: what is missing is in no list of the browser's.
const LOADED: &str = "performance.getEntriesByType('resource').length \
    + document.querySelectorAll('[src], [srcset], link[href]:not([href^=\"data:\"])').length";

/// What keeps somebody from reading the page that is open.
fn readable(browser: &Browser) -> Result<Vec<String>, Error> {
    let mut findings = Vec::new();
    for dark in [false, true] {
        browser.dark(dark)?;
        let scheme = if dark { "dark" } else { "light" };
        let seen = browser.value_of(CONTRAST)?;
        let number = |name| seen.get(name).and_then(Value::as_f64);
        if number("paper").is_none_or(|paper| (paper < 0.5) != dark) {
            findings.push(format!("the page does not follow the reader's wish for {scheme} colours: {seen}"));
        }
        if number("least").is_none_or(|least| least < 4.5) {
            findings.push(format!("in {scheme} colours a text has a contrast below 4.5 to 1: {seen}"));
        }
    }
    browser.dark(false)?;
    for transport in ["http", "stdio"] {
        browser.click(&format!("input[value={transport}]"))?;
        if let Some(piled) = browser.value_of(PILED)?.as_str() {
            findings.push(format!("two texts of a diagram lie on each other, over {transport}: {piled}"));
        }
    }
    // What is closed is not there for anybody.
    browser.value_of("document.querySelectorAll('details').forEach((details) => { details.open = true; })")?;
    let nameless = browser.nameless("input, select, summary, [tabindex], svg[role=img], fieldset, form")?;
    findings.extend(nameless.into_iter().map(|html| format!("it has no name for a screen reader: {html}")));
    Ok(findings)
}
