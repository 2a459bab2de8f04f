//! `steady-sim herd`: a fleet that loses its server, as a histogram: a line for each attempt, and their windows.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::value_parser;
use steady_core::backoff::Backoff;
use steady_sim::herd::{self, AttemptWindows, Herd, HerdReport, Retry};

use crate::show;

/// Lets a fleet of clients lose its server at one instant, in virtual time, and shows when each asks again.
///
/// Every client is the shipped machine. For each attempt: how many clients fall into the busiest 100 ms, and how many the
/// policy would let. Exit code 1 if that is more than a fifth too much, or if a client is back later than the policy's cap
/// and one window after the server. The default policy, 250 ms doubling to 8 s with full jitter, puts 40 % of a fleet into
/// the busiest 100 ms of the first attempt; --fleet starts at 2 s and 5 %.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many clients.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = value_parser!(u32).range(1..=2_000_000))]
    clients: u32,
    /// How long the server is away, in seconds.
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = value_parser!(u64).range(0..=3600))]
    outage: u64,
    /// The policy for large fleets: 2 s doubling to 8 s.
    #[arg(long)]
    fleet: bool,
    /// The mutant: every client asks again after exactly one second. It must not hold.
    #[arg(long, conflicts_with = "fleet")]
    fixed: bool,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> ExitCode {
    let report = herd::run(&Herd {
        clients: args.clients,
        outage: Duration::from_secs(args.outage),
        backoff: if args.fleet { Backoff::FLEET } else { Backoff::default() },
        retry: if args.fixed { Retry::Fixed(Duration::from_secs(1)) } else { Retry::Jittered },
        ..Herd::default()
    });
    let mut out = io::stdout().lock();
    let printed = if args.json {
        serde_json::to_string_pretty(&Json { holds: report.holds(), report: &report })
            .map_err(io::Error::from)
            .and_then(|text| writeln!(out, "{text}"))
    } else {
        people(&mut out, &report)
    };
    match printed {
        Ok(()) if !report.holds() => ExitCode::FAILURE,
        printed => show::finished(printed),
    }
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
    writeln!(
        out,
        "{questions} questions in all; what was missed was read before anything else by all but {}",
        report.before_refetch
    )?;
    writeln!(out, "{}", if report.holds() { "holds" } else { "DOES NOT HOLD" })
}

/// A histogram of one attempt; of a long one every few windows together.
fn draw(out: &mut impl Write, windows: &AttemptWindows) -> io::Result<()> {
    let (Some((first, _)), Some((last, _))) = (windows.windows.first_key_value(), windows.windows.last_key_value())
    else {
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
