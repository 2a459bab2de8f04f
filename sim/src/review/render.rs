//! A review as Markdown.

use std::fmt::{self, Display, Formatter};

use super::{Finding, Fixture, Race, Review, Severity};

impl Display for Review {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let verdict = if self.ready { "ready" } else { "not ready" };
        writeln!(f, "# Reliability review: `{}`\n\nVerdict: **{verdict}**\n", self.operation)?;
        let count = |severity| self.findings.iter().filter(|finding| finding.severity == severity).count();
        writeln!(f, "{} findings block it, {} warn.\n", count(Severity::Blocks), count(Severity::Warns))?;
        races(f, &self.races)?;
        self.played.iter().try_for_each(|note| writeln!(f, "{note}\n"))?;
        let retry = &self.retry;
        writeln!(f, "## Retry classification\n\n**{}**: {}.\n", retry.class, retry.because)?;
        writeln!(f, "| attempt | what the client may do |\n|---|---|")?;
        writeln!(f, "| never sent | {} |\n| may have been sent | {} |\n", retry.never_sent, retry.maybe_sent)?;
        writeln!(f, "## Overload\n\n{}\n", self.overload.text(self.capacity))?;
        if !self.refetch.is_empty() {
            writeln!(f, "## Recovery plan\n\nA new listen request: a new id, the same filter, no `Last-Event-ID`.")?;
            writeln!(f, "Before anything after the gap is used, read: `{}`.\n", self.refetch.join("`, `"))?;
        }
        findings(f, &self.findings)?;
        fixtures(f, &self.findings)
    }
}

fn races(f: &mut Formatter<'_>, races: &[Race]) -> fmt::Result {
    writeln!(
        f,
        "## Races\n\n| race | at the client | final response | signal | ignored | then |\n|---|---|---|---|---|---|"
    )?;
    for Race { race, row, .. } in races {
        let (response, ignored) = (row.response_text(), row.ignored_text());
        let then = row.next.unwrap_or("nothing to do");
        writeln!(f, "| {race} | {} | {response} | {} | {ignored} | {then} |", row.client, row.signal.text())?;
    }
    writeln!(f)
}

fn findings(f: &mut Formatter<'_>, findings: &[Finding]) -> fmt::Result {
    writeln!(f, "## Findings\n")?;
    if findings.is_empty() {
        return writeln!(f, "None.");
    }
    for Finding { severity, area, rules, what, remedy, .. } in findings {
        let word = if *severity == Severity::Blocks { "blocks" } else { "warns" };
        writeln!(f, "- **{word}** ({}; {rules}): {what}.\n  To do: {remedy}.", area.title())?;
    }
    Ok(())
}

fn fixtures(f: &mut Formatter<'_>, findings: &[Finding]) -> fmt::Result {
    let mut shown: Vec<_> = findings.iter().filter_map(|finding| finding.fixture.as_ref()).collect();
    shown.sort_by_key(|fixture| fixture.name);
    shown.dedup();
    if shown.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "\n## Failure fixtures\n\nWhat it should look like: `steady-sim lab --script FILE` runs each of them."
    )?;
    shown.iter().try_for_each(|Fixture { name, failure, script, ends }| {
        writeln!(f, "\n{name}.lab ends as \"{ends}\".")?;
        failure.iter().try_for_each(|name| writeln!(f, "The failure itself: `steady-sim failures {name}`."))?;
        writeln!(f, "\n```text\n{script}```")
    })
}
