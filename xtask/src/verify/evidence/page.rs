//! The page that a person reads: the verdict, every record with its claims, the statements, and what was measured apart.

use super::{COMMAND, Demand, Record};
use crate::verify::statements::Statement;
use serde_json::Value;
use std::fmt::Write as _;

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}\
    table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8886;\
    vertical-align:top}code,pre{font-size:.85rem;overflow-wrap:anywhere;white-space:pre-wrap}:root{color-scheme:light dark}";

/// The whole page. It loads nothing.
pub(super) fn render(
    ready: bool,
    records: &[Record],
    demands: &[Demand],
    statements: &[Statement],
    measured: &Value,
) -> String {
    let verdict = if ready { "ready" } else { "NOT READY" };
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>Evidence: {verdict}</title>\n<style>{STYLE}</style>\n\
         <h1>Evidence</h1>\n<p>Verdict: <strong>{verdict}</strong> (<a href=\"readiness.json\">readiness.json</a>). Made by \
         <code>{COMMAND}</code>.</p>\n"
    );
    heading(&mut page, "What the verdict demands", &["demand", "holds", "same bytes in two runs", "files"]);
    for demand in demands {
        let links: Vec<String> = demand.files.iter().map(|file| link(file)).collect();
        row(&mut page, &[escaped(demand.demand), yes(demand.holds), yes(demand.identical), links.join(", ")]);
    }
    page.push_str("</table>\n<h2>Records</h2>\n");
    records.iter().for_each(|record| one(&mut page, record));
    heading(&mut page, "Statements", &["", "statement", "result"]);
    for (number, statement) in (1..).zip(statements) {
        row(&mut page, &[format!("{number}"), escaped(statement.text()), escaped(statement.result())]);
    }
    page.push_str("</table>\n<p><a href=\"statements.json\">statements.json</a></p>\n");
    apart(&mut page, measured);
    page.push_str("</html>\n");
    page
}

/// A heading and the head of the table below it.
fn heading(page: &mut String, title: &str, columns: &[&str]) {
    let cells: String = columns.iter().map(|column| format!("<th scope=\"col\">{column}</th>")).collect();
    // Writing to a String cannot fail.
    let _ = writeln!(page, "<h2>{title}</h2>\n<table>\n<tr>{cells}</tr>");
}

fn row(page: &mut String, cells: &[String]) {
    let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    let _ = writeln!(page, "<tr>{cells}</tr>");
}

fn one(page: &mut String, record: &Record) {
    let Record { file, title, regenerate, claims, .. } = record;
    let held = claims.iter().filter(|claim| claim.get("holds") == Some(&Value::Bool(true))).count();
    let _ = writeln!(
        page,
        "<details><summary>{}: {held} of {} claims hold</summary>\n<p>{}, made anew by <code>{}</code></p>\n<ul>",
        escaped(title),
        claims.len(),
        link(file),
        escaped(regenerate)
    );
    for claim in claims {
        let text = |member: &str| claim.get(member).and_then(Value::as_str).map(escaped).unwrap_or_default();
        let holds = claim.get("holds") == Some(&Value::Bool(true));
        let _ = writeln!(page, "<li>{}: {} (holds: {})</li>", text("text"), text("found"), yes(holds));
    }
    page.push_str("</ul></details>\n");
}

fn apart(page: &mut String, measured: &Value) {
    page.push_str("<h2>Measured, and apart from the verdict</h2>\n<p><a href=\"proxy-sse.json\">proxy-sse.json</a>: ");
    page.push_str("streams behind real proxies, and how long they may be silent.</p>\n");
    let rows = measured.get("proxies").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        page.push_str("<p>Not measured: no proxy is on this machine.</p>\n");
    }
    for proxy in rows {
        let name = proxy.get("proxy").and_then(Value::as_str).unwrap_or_default();
        let text = serde_json::to_string_pretty(proxy).unwrap_or_default();
        let _ = writeln!(page, "<details><summary>{}</summary><pre>{}</pre></details>", escaped(name), escaped(&text));
    }
}

fn link(file: &str) -> String {
    let file = escaped(file);
    format!("<a href=\"{file}\">{file}</a>")
}

fn yes(it: bool) -> String {
    if it { "yes" } else { "<strong>no</strong>" }.to_string()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::{Record, render};
    use serde_json::json;

    #[test]
    fn a_page_names_each_record_its_command_and_its_failing_claims_and_runs_no_text() {
        let record = Record {
            file: "key-record.json".into(),
            title: "<script>a title</script>".into(),
            gate: None,
            holds: false,
            identical: true,
            regenerate: "steady-sim evidence --only key-record".into(),
            claims: vec![json!({"text": "it is so", "found": "false, not true", "holds": false})],
        };
        let page = render(false, &[record], &[], &[], &json!({"proxies": []}));
        assert!(page.contains("NOT READY") && page.contains("--only key-record"), "{page}");
        assert!(page.contains("0 of 1 claims hold") && page.contains("<strong>no</strong>"), "{page}");
        assert!(!page.contains("<script>") && page.contains("Not measured"), "{page}");
    }
}
