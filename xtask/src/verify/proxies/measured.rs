//! What was measured at a proxy, for the step's table and for the evidence.

use crate::table::Table;
use serde::Serialize;
use std::collections::BTreeMap;

/// A proxy with its defaults, in front of our server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(super) proxy: &'static str,
    /// The headers of a stream of events, as the client gets them.
    pub(super) stream_headers: BTreeMap<String, String>,
    /// From the handler's report to the client.
    pub(super) event_delay: Times,
    /// From a client's hang-up to the handler.
    pub(super) hang_up_mid_stream: Times,
    pub(super) hang_up_before_first_byte: Times,
    /// What a call to a public host name gets, and one with a large body: told, not judged.
    pub(super) public_host_status: u16,
    pub(super) two_mib_body_status: u16,
    pub(super) idle: Option<Idle>,
}

/// Microseconds of a clock, never the same twice.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Times {
    samples: usize,
    median_us: u128,
    max_us: u128,
}

impl Times {
    pub(super) fn of(times: &[u128]) -> Self {
        Self { samples: times.len(), median_us: median(times), max_us: times.iter().copied().max().unwrap_or(0) }
    }

    fn shown(self) -> String {
        let ms = |time: u128| format!("{}.{} ms", time / 1000, time % 1000 / 100);
        format!("{}, max {}", ms(self.median_us), ms(self.max_us))
    }
}

/// A stream that is silent for longer than the proxy waits.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Idle {
    pub(super) timeout_s: u64,
    pub(super) silent_ms: u64,
    pub(super) comment_every_ms: u64,
    pub(super) with_comments: Ended,
    pub(super) without: Ended,
}

impl Idle {
    /// What is not as it must be.
    pub(super) fn findings(self) -> impl Iterator<Item = &'static str> {
        let cut = (self.with_comments == Ended::Cut).then_some("a silent stream is cut in spite of comments");
        let idle = "survives silence without comments: the check proves nothing";
        [cut, (self.without == Ended::Answered).then_some(idle)].into_iter().flatten()
    }
}

/// How a silent stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ended {
    Answered,
    Cut,
}

/// The step's table.
pub(super) fn table(rows: &[Measured]) -> String {
    let mut table = Table::new(&[
        "proxy",
        "event held back",
        "hang-up mid-stream",
        "before the first byte",
        "public Host",
        "2 MiB body",
    ]);
    for row in rows {
        let times = [row.event_delay, row.hang_up_mid_stream, row.hang_up_before_first_byte].map(Times::shown);
        let statuses = [row.public_host_status, row.two_mib_body_status].map(|status| status.to_string());
        table.row([row.proxy.to_string()].into_iter().chain(times).chain(statuses));
    }
    table.render()
}

pub(super) fn median(times: &[u128]) -> u128 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{Ended, Idle, Times, median};

    #[test]
    fn times_are_shown_in_milliseconds() {
        assert_eq!(median(&[3, 1, 2]), 2);
        assert_eq!(Times::of(&[1_250, 90_000, 1_100]).shown(), "1.2 ms, max 90.0 ms");
    }

    #[test]
    fn a_stream_must_survive_with_comments_and_be_cut_without() {
        let idle = |with_comments, without| {
            let (timeout_s, silent_ms, comment_every_ms) = (3, 7000, 500);
            Idle { timeout_s, silent_ms, comment_every_ms, with_comments, without }.findings().count()
        };
        assert_eq!(idle(Ended::Answered, Ended::Cut), 0);
        assert_eq!(idle(Ended::Cut, Ended::Answered), 2);
    }
}
