//! `steady-sim herd`: a fleet that loses its server, as a histogram: a line for each attempt, and their windows.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{ValueEnum, value_parser};
use serde::Serialize;
use steady_core::backoff::Backoff;
use steady_sim::herd::table::{self, Row};
use steady_sim::herd::{self, AttemptWindows, Herd, HerdReport, Load, Retry};

use crate::show;

/// Lets a fleet of clients lose its server at one instant, in virtual time, and shows when each asks again.
///
/// Every client is the shipped machine. For each attempt: how many clients fall into the busiest 100 ms, and how many the
/// policy would let. The default policy, 250 ms doubling to 8 s with full jitter, puts 40 % of a fleet into the busiest 100 ms
/// of the first attempt; --fleet starts at 2 s and 5 %.
///
/// The load factor compares fleets of any size: the rate at the busiest replica in its busiest 100 ms, over the rate at which
/// its share of the fleet would come evenly within one second. --table compares policies by it; docs/scale.md says what to
/// make of it. A million clients and a hundred replicas take less than a minute in a release build.
///
/// Exit codes: 0 it holds; 1 an attempt has more than its share in a window (a fifth more, or five standard
/// deviations where a fleet is small; clients in step can be told from chance from 50 on), or a client is back later than the
/// policy's cap and one window after the server (with --accepts: not within an hour); 2 a wrong argument.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many clients.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = value_parser!(u32).range(1..=2_000_000))]
    clients: u32,
    /// Replicas behind a load balancer, all of them lost at once.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000))]
    replicas: u32,
    /// Questions that one replica takes in 100 ms; it refuses what is over [default: all of them].
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..))]
    accepts: Option<u32>,
    /// How long the server is away, in seconds.
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = value_parser!(u64).range(0..=3600))]
    outage: u64,
    /// How much of a pause is drawn. Without full jitter it does not hold.
    #[arg(long, value_enum, default_value_t = Drawn::Full, value_name = "HOW")]
    jitter: Drawn,
    /// The ceiling of the first pause, in milliseconds [default: 250].
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(1..=3_600_000))]
    base_ms: Option<u64>,
    /// The largest ceiling, in milliseconds [default: 8000].
    #[arg(long, value_name = "MS", value_parser = value_parser!(u64).range(1..=3_600_000))]
    cap_ms: Option<u64>,
    /// The policy for large fleets: 2 s doubling to 8 s.
    #[arg(long, conflicts_with_all = ["base_ms", "cap_ms"])]
    fleet: bool,
    /// The mutant: every client asks again after exactly one second. It must not hold.
    #[arg(long, conflicts_with_all = ["fleet", "base_ms", "cap_ms", "jitter"])]
    fixed: bool,
    /// Compare policies by the load factor instead, as a table.
    #[arg(long, conflicts_with_all = ["outage", "accepts", "jitter", "base_ms", "cap_ms", "fleet", "fixed"])]
    table: bool,
    /// Print one JSON object for machines.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Drawn {
    /// Anything up to the ceiling, as shipped.
    Full,
    /// Half of the ceiling, and anything up to the other half.
    Half,
    /// The ceiling itself.
    None,
}

impl Args {
    fn herd(&self) -> Herd {
        let Backoff { base, cap } = if self.fleet { Backoff::FLEET } else { Backoff::default() };
        let or = |ms: Option<u64>, otherwise| ms.map_or(otherwise, Duration::from_millis);
        let retry = match (self.fixed, self.jitter) {
            (true, _) => Retry::Fixed(Duration::from_secs(1)),
            (false, Drawn::Full) => Retry::Jittered,
            (false, Drawn::Half) => Retry::EqualJitter,
            (false, Drawn::None) => Retry::NoJitter,
        };
        Herd {
            clients: self.clients,
            replicas: self.replicas,
            accepts: self.accepts,
            outage: Duration::from_secs(self.outage),
            backoff: Backoff { base: or(self.base_ms, base), cap: or(self.cap_ms, cap) },
            retry,
            ..Herd::default()
        }
    }
}

pub(super) fn run(args: &Args) -> ExitCode {
    if args.table {
        return compare(args);
    }
    let begun = Instant::now();
    let report = herd::run(&args.herd());
    let cost = Cost::since(begun);
    let mut out = io::stdout().lock();
    let printed = if args.json {
        show::json(&mut out, &Json { holds: report.holds(), cost: &cost, report: &report })
    } else {
        people(&mut out, &report, &cost)
    };
    show::exit(printed, report.holds())
}

/// Policies against each other.
fn compare(args: &Args) -> ExitCode {
    let begun = Instant::now();
    let rows = table::rows(args.clients, args.replicas);
    let cost = Cost::since(begun);
    let (clients, replicas, holds) = (args.clients, args.replicas, table::holds(&rows));
    let mut out = io::stdout().lock();
    let printed = if args.json {
        show::json(&mut out, &Table { holds, clients, replicas, cost: &cost, rows: &rows })
    } else {
        writeln!(out, "{clients} clients, {replicas} replicas\n\n{}\n{cost}", table::markdown(&rows))
    };
    show::exit(printed, holds)
}

#[derive(Serialize)]
struct Table<'a> {
    holds: bool,
    clients: u32,
    replicas: u32,
    #[serde(flatten)]
    cost: &'a Cost,
    rows: &'a [Row],
}

#[derive(Serialize)]
struct Json<'a> {
    holds: bool,
    #[serde(flatten)]
    cost: &'a Cost,
    #[serde(flatten)]
    report: &'a HerdReport,
}

/// What the run took.
#[derive(Serialize)]
struct Cost {
    wall_ms: u128,
    /// The most memory that the process had, in KiB; on Linux only.
    peak_rss_kib: Option<u64>,
}

impl Cost {
    fn since(begun: Instant) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next()?.parse().ok());
        Self { wall_ms: begun.elapsed().as_millis(), peak_rss_kib: peak }
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ms on one thread", self.wall_ms)?;
        match self.peak_rss_kib {
            Some(kib) => write!(f, ", {} MiB of memory at most", kib / 1024),
            None => Ok(()),
        }
    }
}

/// Windows that are drawn for an attempt at most, and the longest bar.
const LINES: usize = 12;
const BAR: u32 = 50;

fn people(out: &mut impl Write, report: &HerdReport, cost: &Cost) -> io::Result<()> {
    let HerdReport { clients, outage_ms, .. } = report;
    writeln!(out, "{clients} clients lose one server at the same instant; it is back after {outage_ms} ms")?;
    writeln!(out)?;
    writeln!(out, "attempt  clients  busiest 100 ms         share   policy")?;
    for windows in &report.attempts {
        let AttemptWindows { attempt, clients, busiest, busiest_at_ms, share_permille, policy_permille, .. } = windows;
        let mark = if windows.keeps_its_share() { "" } else { "  MORE THAN THE POLICY LETS" };
        let (share, policy) = (percent(*share_permille), percent(*policy_permille));
        writeln!(out, "{attempt:>7} {clients:>8} {busiest:>8} at {busiest_at_ms:>6} ms {share:>7} {policy:>8}{mark}")?;
    }
    for windows in &report.attempts {
        draw(out, windows)?;
    }
    writeln!(out)?;
    let HerdReport { back, last_back_ms, allowed_back_ms, questions, load, .. } = report;
    let allowed = allowed_back_ms.map(|ms| format!("; the cap and one window are {ms} ms")).unwrap_or_default();
    writeln!(out, "{back} of {clients} are back, the last {last_back_ms} ms after the server{allowed}")?;
    writeln!(
        out,
        "{questions} questions in all; what was missed was read before anything else by all but {}",
        report.before_refetch
    )?;
    let Load {
        replicas, busiest, busiest_at_ms, peak_permille, busiest_open, peak_open_permille, refused_full, ..
    } = load;
    writeln!(
        out,
        "{replicas} replicas: at most {busiest} questions in 100 ms at one, at {busiest_at_ms} ms, load factor {}",
        factor(*peak_permille)
    )?;
    writeln!(
        out,
        "once they are back at most {busiest_open}, load factor {}; {refused_full} refused for being over the limit",
        factor(*peak_open_permille)
    )?;
    writeln!(out, "{cost}")?;
    writeln!(out, "{}", if report.holds() { "holds" } else { "DOES NOT HOLD" })
}

fn factor(permille: u64) -> String {
    format!("{}.{:02}", permille / 1000, permille % 1000 / 10)
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
