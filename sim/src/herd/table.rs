//! Policies against each other: what a replica has to take of a fleet that comes back, by jitter and by cap.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;
use steady_core::backoff::Backoff;

use super::{Herd, HerdReport, Retry, run};

/// How long all replicas are away in the second half of a row.
pub const OUTAGE: Duration = Duration::from_secs(10);
/// Of the clients that belong to a replica, so many of a thousand are taken by it in 100 ms in that half: all in 5 s.
const TAKEN_PERMILLE: u32 = 20;

/// The name of what ships.
pub const SHIPPED: &str = "full (shipped)";

const JITTER: [(&str, Retry); 3] =
    [("none", Retry::NoJitter), ("half of it", Retry::EqualJitter), (SHIPPED, Retry::Jittered)];
const PAUSES: [Backoff; 4] = [
    Backoff { base: Duration::from_millis(250), cap: Duration::from_secs(1) },
    Backoff { base: Duration::from_millis(250), cap: Duration::from_secs(8) },
    Backoff { base: Duration::from_millis(250), cap: Duration::from_secs(32) },
    Backoff::FLEET,
];

/// A policy, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// How much of a pause is drawn.
    pub jitter: &'static str,
    /// The ceiling of the first pause, in milliseconds.
    pub base_ms: u64,
    /// The largest ceiling, in milliseconds.
    pub cap_ms: u64,
    /// The load factor of the busiest replica, in thousandths, where the connections are lost and the replicas are there.
    pub at_once_permille: u64,
    /// The same once the replicas are back after [`OUTAGE`].
    pub after_outage_permille: u64,
    /// Questions of one client on average, until it was taken.
    pub questions_permille: u64,
    /// When the last client was back, after the replicas were, in milliseconds; they take a fifth of their clients in a
    /// second. Nothing if one was not within an hour.
    pub last_back_ms: Option<u64>,
}

/// Runs every policy with a fleet of this size.
#[must_use]
pub fn rows(clients: u32, replicas: u32) -> Vec<Row> {
    let policies = PAUSES.iter().flat_map(|backoff| JITTER.map(|(name, retry)| (name, retry, *backoff)));
    policies
        .map(|(name, retry, backoff)| row(name, Herd { clients, replicas, retry, backoff, ..Herd::default() }))
        .collect()
}

fn row(jitter: &'static str, herd: Herd) -> Row {
    let at_once = run(&Herd { outage: Duration::ZERO, ..herd });
    let takes = u64::from(herd.clients) * u64::from(TAKEN_PERMILLE) / 1000 / u64::from(herd.replicas.max(1));
    let accepts = Some(u32::try_from(takes.max(1)).unwrap_or(u32::MAX));
    let HerdReport { load, questions, back, last_back_ms, .. } = run(&Herd { outage: OUTAGE, accepts, ..herd });
    Row {
        jitter,
        base_ms: super::millis(herd.backoff.base),
        cap_ms: super::millis(herd.backoff.cap),
        at_once_permille: at_once.load.peak_permille,
        after_outage_permille: load.peak_open_permille,
        questions_permille: (questions * 1000).checked_div(herd.clients.into()).unwrap_or(0),
        last_back_ms: (back == herd.clients).then_some(last_back_ms),
    }
}

/// Whether what ships is gentler than the same pauses with less jitter where connections are lost, and everybody is back.
#[must_use]
pub fn holds(rows: &[Row]) -> bool {
    let gentler =
        rows.chunks(JITTER.len()).all(|same| same.is_sorted_by(|a, b| a.at_once_permille > b.at_once_permille));
    gentler && rows.iter().filter(|row| row.jitter == SHIPPED).all(|row| row.last_back_ms.is_some())
}

/// The rows as a table for people.
#[must_use]
pub fn markdown(rows: &[Row]) -> String {
    let mut text = String::from(
        "| jitter | first pause, cap | peak load factor, at once | after 10 s away | questions of a client | the last is back after |\n\
         |---|---|---|---|---|---|\n",
    );
    for row in rows {
        let Row { jitter, base_ms, cap_ms, at_once_permille, after_outage_permille, questions_permille, last_back_ms } =
            row;
        let last = last_back_ms.map_or_else(|| "more than an hour".to_owned(), |ms| format!("{} s", tenths(ms)));
        let (at_once, after) = (tenths(*at_once_permille), tenths(*after_outage_permille));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {jitter} | {base_ms} ms, {} s | {at_once} | {after} | {} | {last} |",
            cap_ms / 1000,
            tenths(*questions_permille)
        );
    }
    text
}

/// Thousandths as a decimal with one digit, rounded.
fn tenths(permille: u64) -> String {
    let tenths = (permille + 50) / 100;
    format!("{}.{}", tenths / 10, tenths % 10)
}
