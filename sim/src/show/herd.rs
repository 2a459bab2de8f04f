//! The herd as a histogram: a line for each attempt, and the busiest windows of the first ones.

use std::io::{self, Write};
use std::process::ExitCode;

use steady_sim::herd::{AttemptWindows, HerdReport};

/// Prints a report; exit code 1 if it does not hold.
pub(crate) fn report(report: &HerdReport, json: bool) -> ExitCode {
    let mut out = io::stdout().lock();
    let printed = if json {
        serde_json::to_string_pretty(&Json { holds: report.holds(), report })
            .map_err(io::Error::from)
            .and_then(|text| writeln!(out, "{text}"))
    } else {
        people(&mut out, report)
    };
    super::finished(printed, report.holds())
}

#[derive(serde::Serialize)]
struct Json<'a> {
    holds: bool,
    #[serde(flatten)]
    report: &'a HerdReport,
}

/// Windows that are drawn for an attempt at most, and the longest bar.
const LINES: usize = 12;
const BAR: u32 = 50;

fn people(out: &mut impl Write, report: &HerdReport) -> io::Result<()> {
    let HerdReport { clients, outage_ms, .. } = report;
    writeln!(out, "{clients} clients lose one server at the same instant; it is back after {outage_ms} ms")?;
    writeln!(out)?;
    writeln!(out, "attempt  clients  busiest 100 ms         share   policy")?;
    for windows in &report.attempts {
        let AttemptWindows { attempt, clients, busiest, busiest_at_ms, share_permille, policy_permille, .. } = windows;
        let mark = if windows.keeps_its_share() { "" } else { "  MORE THAN 1.2 TIMES THE POLICY" };
        let (share, policy) = (percent(*share_permille), percent(*policy_permille));
        writeln!(out, "{attempt:>7} {clients:>8} {busiest:>8} at {busiest_at_ms:>6} ms {share:>7} {policy:>8}{mark}")?;
    }
    for windows in &report.attempts {
        draw(out, windows)?;
    }
    writeln!(out)?;
    let HerdReport { back, last_back_ms, allowed_back_ms, questions, .. } = report;
    writeln!(
        out,
        "{back} of {clients} are back, the last {last_back_ms} ms after the server; the cap and one window are {allowed_back_ms} ms"
    )?;
    writeln!(out, "{questions} questions in all; what was missed was read before anything else by all but {}", report.before_refetch)?;
    writeln!(out, "{}", if report.holds() { "holds" } else { "DOES NOT HOLD" })
}

/// A histogram of one attempt; of a long one every few windows together.
fn draw(out: &mut impl Write, windows: &AttemptWindows) -> io::Result<()> {
    let (Some((first, _)), Some((last, _))) = (windows.windows.first_key_value(), windows.windows.last_key_value()) else {
        return Ok(());
    };
    let span = (last - first) / 100 + 1;
    let step = span.div_ceil(LINES as u64) * 100;
    writeln!(out)?;
    writeln!(out, "attempt {}, {} ms a line", windows.attempt, step)?;
    let mut lines = std::collections::BTreeMap::<u64, u32>::new();
    for (start, count) in &windows.windows {
        *lines.entry(first + (start - first) / step * step).or_default() += count;
    }
    let most = lines.values().copied().max().unwrap_or(1).max(1);
    for (start, count) in lines {
        let bar = "#".repeat(usize::try_from(count * BAR / most).unwrap_or_default());
        writeln!(out, "{start:>8} ms {count:>8} {bar}")?;
    }
    Ok(())
}

fn percent(permille: u32) -> String {
    format!("{}.{} %", permille / 10, permille % 10)
}
