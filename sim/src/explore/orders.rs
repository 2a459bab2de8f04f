//! Every ordering of the events, and what the machines make of each.

use std::time::Duration;

use steady_core::client::Transport;
use steady_core::time::Instant;

use crate::experiment::{self, Found, Lane, Limit, Moment, Promise, Row, Script, Side, Signal, Step};

/// One of the events that are put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(clippy::exhaustive_enums, reason = "the explorer has these")]
pub enum Event {
    /// The handler reports.
    Progress,
    /// The handler returns.
    Complete,
    /// The application gives up.
    Cancel,
    /// The client's clock runs out.
    Clock,
    /// The network breaks the response stream (HTTP).
    Break,
}

/// Which clock runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a request has two")]
pub enum Clock {
    /// No progress for too long.
    Idle,
    /// The maximum from the start.
    Maximum,
}

/// How far apart the events are; a message takes `LATENCY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "the explorer has two")]
pub enum Spacing {
    /// What an event causes has arrived before the next.
    Apart,
    /// Messages cross.
    Crossing,
}

/// How long a message takes, one way.
pub(super) const LATENCY: Duration = Duration::from_millis(5);
/// When the first event happens: the handler is waiting by then.
const START: Duration = Duration::from_millis(10);
const NAME: &str = "A";

impl Spacing {
    /// From one event to the next.
    #[must_use]
    pub const fn gap(self) -> Duration {
        match self {
            Self::Apart => Duration::from_millis(20),
            Self::Crossing => Duration::from_millis(2),
        }
    }
}

impl Event {
    fn name(self, clock: Clock) -> &'static str {
        match (self, clock) {
            (Self::Progress, _) => "progress",
            (Self::Complete, _) => "complete",
            (Self::Cancel, _) => "cancel",
            (Self::Clock, Clock::Idle) => "idle limit",
            (Self::Clock, Clock::Maximum) => "maximum",
            (Self::Break, _) => "break",
        }
    }

    fn step(self) -> Option<Step> {
        match self {
            Self::Progress => Some(Step::Progress(NAME.into())),
            Self::Complete => Some(Step::Complete(NAME.into())),
            Self::Cancel => Some(Step::Cancel(NAME.into())),
            Self::Break => Some(Step::Break(NAME.into())),
            // The client's own; time alone brings it.
            Self::Clock => None,
        }
    }
}

/// Where something of the diagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    ToServer,
    ToClient,
    Client,
    Server,
    /// An event of the ordering at the client, the server, or in between.
    EventAtClient,
    EventAtServer,
    EventBetween,
}

impl Place {
    pub(super) const fn number(self) -> u8 {
        match self {
            Self::ToServer => 0,
            Self::ToClient => 1,
            Self::Client => 2,
            Self::Server => 3,
            Self::EventAtClient => 4,
            Self::EventAtServer => 5,
            Self::EventBetween => 6,
        }
    }
}

/// One entry of the diagram.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) at: Duration,
    pub(super) lane: Place,
    pub(super) text: String,
    pub(super) label: String,
    /// A message that the break took with it.
    pub(super) lost: bool,
}

/// One ordering, and what came of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Ordering {
    /// Between client and server.
    pub transport: Transport,
    /// How far apart.
    pub spacing: Spacing,
    /// Which clock.
    pub clock: Clock,
    /// The events.
    pub events: Vec<Event>,
    /// What became of the request.
    pub row: Row,
    pub(super) moments: Vec<Drawn>,
}

/// All orderings: on both transports, with both clocks, with both spacings.
///
/// # Panics
/// Never: each is a script that names one request, which is called first.
#[must_use]
pub fn orderings() -> Vec<Ordering> {
    let http = [Event::Progress, Event::Complete, Event::Cancel, Event::Clock, Event::Break];
    let mut all = Vec::new();
    for (transport, events) in [(Transport::Http, &http[..]), (Transport::Stdio, &http[..4])] {
        for spacing in [Spacing::Apart, Spacing::Crossing] {
            for clock in [Clock::Idle, Clock::Maximum] {
                let orders = permutations(events);
                all.extend(orders.into_iter().filter_map(|events| Ordering::run(transport, spacing, clock, events)));
            }
        }
    }
    all
}

/// All orders of these, the first one as given.
fn permutations(events: &[Event]) -> Vec<Vec<Event>> {
    let Some((_, _)) = events.split_first() else { return vec![vec![]] };
    let mut all = Vec::new();
    for (index, first) in events.iter().enumerate() {
        let rest: Vec<Event> =
            events.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, event)| *event).collect();
        all.extend(permutations(&rest).into_iter().map(|mut order| {
            order.insert(0, *first);
            order
        }));
    }
    all
}

/// When each event happens, and the client's two limits.
struct Plan {
    times: Vec<Duration>,
    idle: Option<Duration>,
    maximum: Option<Duration>,
}

impl Plan {
    fn of(spacing: Spacing, clock: Clock, events: &[Event]) -> Self {
        let (mut times, mut idle, mut maximum) = (Vec::new(), None, None);
        let mut next = START;
        for event in events {
            if *event == Event::Clock {
                match clock {
                    Clock::Maximum => maximum = Some(next),
                    Clock::Idle => {
                        let reset = reset(events, &times).filter(|reset| *reset <= next);
                        // The clock starts twice: it may not run out before the progress is there.
                        let limit = reset.map_or(next, |reset| (reset + Duration::from_millis(1)).max(next - reset));
                        next = reset.unwrap_or_default() + limit;
                        idle = Some(limit);
                    }
                }
            }
            times.push(next);
            next += spacing.gap();
        }
        Self { times, idle, maximum }
    }
}

/// When progress reaches the client that the server accepted, of the events that have a time.
fn reset(events: &[Event], times: &[Duration]) -> Option<Duration> {
    let before = events.iter().zip(times).take_while(|(event, _)| matches!(event, Event::Progress | Event::Clock));
    before.filter(|(event, _)| **event == Event::Progress).map(|(_, at)| *at + LATENCY).next()
}

impl Ordering {
    fn run(transport: Transport, spacing: Spacing, clock: Clock, events: Vec<Event>) -> Option<Self> {
        let plan = Plan::of(spacing, clock, &events);
        let limit = |length: Option<Duration>| length.map_or(Limit::Usual, Limit::After);
        let (idle, max) = (limit(plan.idle), limit(plan.maximum));
        let mut steps = vec![Step::Call { name: NAME.into(), idle, max, contract: Promise::Unsafe, attempts: None }];
        let mut now = Duration::ZERO;
        for (event, at) in events.iter().zip(&plan.times) {
            steps.push(Step::Wait(at.saturating_sub(now)));
            now = *at;
            steps.extend(event.step());
        }
        let found = experiment::run(&Script { transport, latency: LATENCY, steps, lines: vec![] }).ok()?;
        let Found { rows, moments, .. } = found;
        let row = rows.into_iter().next()?;
        let mut ordering = Self { transport, spacing, clock, events, row, moments: Vec::new() };
        ordering.draw(&moments, &plan.times);
        Some(ordering)
    }

    /// Whether it is over HTTP.
    #[must_use]
    pub const fn is_http(&self) -> bool {
        matches!(self.transport, Transport::Http)
    }

    /// The events in their order, as people read them.
    #[must_use]
    pub fn name(&self) -> String {
        let names: Vec<&str> = self.events.iter().map(|event| event.name(self.clock)).collect();
        names.join(", ")
    }

    fn time_of(&self, times: &[Duration], wanted: Event) -> Option<Duration> {
        self.events.iter().zip(times).find(|(event, _)| **event == wanted).map(|(_, at)| *at)
    }

    fn draw(&mut self, moments: &[Moment], times: &[Duration]) {
        let mut drawn: Vec<Drawn> = moments.iter().filter_map(draw).collect();
        if drawn.iter().any(|drawn| drawn.label == NO_STREAM) {
            // What the network says about it stands for the step.
            drawn.retain(|drawn| drawn.label != BREAKS);
        }
        if let Some(at) = self.time_of(times, Event::Clock) {
            let label = Event::Clock.name(self.clock);
            let over = drawn.iter().any(|drawn| drawn.at < at && drawn.text.starts_with("the application is told"));
            let note = if over { ", and nobody waits any more" } else { "" };
            let entry = Drawn {
                at,
                lane: Place::EventAtClient,
                text: format!("the {label} of the client runs out{note}"),
                label: label.into(),
                lost: false,
            };
            let index = drawn.iter().position(|drawn| drawn.at >= at).unwrap_or(drawn.len());
            drawn.insert(index, entry);
        }
        self.moments = drawn;
    }

    /// What to say about it, a sentence each: who wins at either end, what crossed, what was suppressed or ignored.
    #[must_use]
    pub fn outcome(&self) -> Vec<String> {
        let Row { client, response, signal, next, ignored, .. } = &self.row;
        let winner = match *client {
            "completed" => "the completion",
            "cancelled" => "the cancellation",
            "idle timeout" => "the idle deadline",
            "maximum timeout" => "the maximum",
            "unknown" => "the break of the stream",
            _ => "nothing yet",
        };
        let told = self.moments.iter().find_map(|moment| moment.text.split_once("is told to stop: "));
        let server = match (response, told) {
            (true, _) => "the completion".to_owned(),
            (false, Some((_, why))) => format!("the stop signal ({why})"),
            (false, None) => "nothing".to_owned(),
        };
        let mut lines = vec![
            format!("At the client {winner} wins: {client}."),
            format!("At the server {server} wins: {} final response was sent.", if *response { "one" } else { "no" }),
            match signal {
                Signal::None => "No cancel signal crossed the wire.".to_owned(),
                Signal::Notification => "The cancel signal was a notifications/cancelled message.".to_owned(),
                Signal::ClosedStream => "The cancel signal was the closed response stream, and no message.".to_owned(),
            },
        ];
        let lost = self.moments.iter().filter(|moment| moment.lost).count();
        if lost > 0 {
            let what = if lost == 1 { "message was" } else { "messages were" };
            lines.push(format!("{lost} {what} lost with the stream."));
        }
        if self.moments.iter().any(|moment| moment.label == NO_STREAM) {
            lines.push("The break found no open stream.".into());
        }
        lines.extend(ignored.iter().map(|ignored| {
            let (side, verb) = match ignored.by {
                Side::Client => ("client", "ignored"),
                // What a handler says about a request that is over is never sent.
                Side::Server if ignored.event == "the late cancellation" => ("server", "ignored"),
                Side::Server => ("server", "suppressed"),
            };
            format!("The {side} {verb} {}.", ignored.event)
        }));
        lines.extend(next.map(|next| format!("What the caller may do next, without a key: {next}.")));
        lines
    }
}

const BREAKS: &str = "stream breaks";
const NO_STREAM: &str = "no stream to break";

fn draw(moment: &Moment) -> Option<Drawn> {
    let at = moment.at.saturating_since(Instant::ZERO);
    let text = moment.text.clone();
    let (lane, label) = match moment.lane {
        Lane::ToServer => (Place::ToServer, label(&text)),
        Lane::ToClient => (Place::ToClient, label(&text)),
        Lane::Client => (Place::Client, note(&text)),
        Lane::Server => (Place::Server, note(&text)),
        Lane::Network => (Place::EventBetween, NO_STREAM.to_owned()),
        Lane::Step => match text.split(' ').next()? {
            word @ ("progress" | "complete") => (Place::EventAtServer, word.to_owned()),
            "break" => (Place::EventBetween, BREAKS.to_owned()),
            "cancel" => (Place::EventAtClient, "cancel".to_owned()),
            _ => (Place::EventAtClient, "call".to_owned()),
        },
    };
    Some(Drawn { at, lane, text, label, lost: moment.lost })
}

/// A message in a few words.
fn label(text: &str) -> String {
    let words = [
        ("(closes", "closes the stream"),
        ("\"method\":\"tools/call\"", "tools/call"),
        ("\"method\":\"notifications/cancelled\"", "cancelled"),
        ("\"method\":\"notifications/progress\"", "progress"),
        ("\"result\":", "result"),
        ("\"error\":", "error"),
    ];
    words.iter().find(|(part, _)| text.contains(part)).map_or("message", |(_, label)| label).to_owned()
}

/// A note without the name of the one request that there is.
fn note(text: &str) -> String {
    let words = [
        ("the application is told: A is ", "told: "),
        ("the application sees ", "sees "),
        ("the handler of A is told to stop: ", "stop: "),
        ("the client ignores ", "ignores "),
        ("the server ignores ", "ignores "),
    ];
    let short = words.iter().find_map(|(start, word)| text.strip_prefix(start).map(|rest| format!("{word}{rest}")));
    short.unwrap_or_else(|| text.to_owned()).trim_end_matches(" of A").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(transport: Transport, spacing: Spacing, clock: Clock, events: &[Event]) -> Ordering {
        let same = |ordering: &Ordering| {
            (ordering.transport, ordering.spacing, ordering.clock) == (transport, spacing, clock)
                && ordering.events == events
        };
        orderings().into_iter().find(same).expect("it is enumerated")
    }

    #[test]
    fn every_ordering_is_there_once_and_has_one_end() {
        let all = orderings();
        assert_eq!(all.len(), 4 * 120 + 4 * 24);
        for ordering in &all {
            let what = format!("{:?} {:?} {}", ordering.transport, ordering.spacing, ordering.name());
            assert_ne!(ordering.row.client, "in flight", "{what}");
            let told = ordering.moments.iter().filter(|moment| moment.text.starts_with("the application is told"));
            assert_eq!(told.count(), 1, "{what}");
            let responses = ordering.moments.iter().filter(|moment| moment.label == "result").count();
            assert_eq!(responses, usize::from(ordering.row.response), "{what}");
        }
    }

    #[test]
    fn events_that_are_apart_are_won_by_the_first_that_ends_the_request() {
        for ordering in orderings().iter().filter(|ordering| ordering.spacing == Spacing::Apart) {
            let first = ordering.events.iter().find(|event| **event != Event::Progress);
            let expected = match (first, ordering.clock) {
                (Some(Event::Complete), _) => "completed",
                (Some(Event::Cancel), _) => "cancelled",
                (Some(Event::Clock), Clock::Idle) => "idle timeout",
                (Some(Event::Clock), Clock::Maximum) => "maximum timeout",
                (Some(Event::Break), _) => "unknown",
                (Some(Event::Progress) | None, _) => unreachable!("it was filtered"),
            };
            assert_eq!(ordering.row.client, expected, "{:?} {}", ordering.transport, ordering.name());
        }
    }

    #[test]
    fn messages_that_cross_leave_each_end_with_its_own_winner() {
        use Event::{Cancel, Clock as Runs, Complete, Progress};
        let events = [Complete, Cancel, Progress, Runs];
        let ordering = find(Transport::Stdio, Spacing::Crossing, Clock::Maximum, &events);
        assert_eq!((ordering.row.client, ordering.row.response), ("cancelled", true));
        let outcome = ordering.outcome().join(" ");
        for part in ["the cancellation wins", "the completion wins", "client ignored the late response"] {
            assert!(outcome.contains(part), "{part}: {outcome}");
        }
    }

    #[test]
    fn what_is_on_its_way_when_the_stream_breaks_is_lost() {
        use Event::{Break, Cancel, Clock as Runs, Complete, Progress};
        let events = [Complete, Break, Cancel, Progress, Runs];
        let ordering = find(Transport::Http, Spacing::Crossing, Clock::Idle, &events);
        assert_eq!((ordering.row.client, ordering.row.response), ("unknown", true));
        assert!(ordering.outcome().iter().any(|line| line == "1 message was lost with the stream."));
    }

    /// What one sentence of the outcome counts, and what another says of the same message, cannot contradict each other.
    #[test]
    fn no_message_is_lost_and_then_ignored_or_seen() {
        for ordering in orderings() {
            let outcome = ordering.outcome().join(" ");
            let what = format!("{:?} {:?} {}: {outcome}", ordering.transport, ordering.spacing, ordering.name());
            let sent = |label: &str, lost: bool| {
                ordering.moments.iter().filter(|moment| moment.label == label && moment.lost == lost).count()
            };
            let noted = |label: &str| ordering.moments.iter().filter(|moment| moment.label.contains(label)).count();
            let (results, reports) = (sent("result", false), sent("progress", false));
            assert!(noted("ignores the late response") + noted("told: completed") <= results, "{what}");
            let reports_heard = ordering.moments.iter().filter(|moment| {
                moment.lane == Place::Client && (moment.label.starts_with("sees") || moment.label.contains("progress"))
            });
            // The handler's own report stands at the server.
            assert!(reports_heard.count() <= reports, "{what}");
            let breaks = noted(BREAKS) == 1;
            let all_lost = ordering.moments.iter().filter(|moment| moment.lost).count();
            assert!(breaks || all_lost == 0, "{what}");
            assert_eq!(ordering.is_http(), breaks || noted(NO_STREAM) == 1, "{what}");
            assert_eq!(all_lost > 0, outcome.contains("lost with the stream"), "{what}");
        }
    }

    #[test]
    fn a_client_that_has_closed_its_stream_loses_nothing_to_a_later_break() {
        use Event::{Break, Cancel, Clock as Runs, Complete, Progress};
        let events = [Progress, Cancel, Runs, Complete, Break];
        let ordering = find(Transport::Http, Spacing::Crossing, Clock::Idle, &events);
        let outcome = ordering.outcome();
        assert!(outcome.iter().any(|line| line == "The client ignored the late response."), "{outcome:?}");
        assert!(!outcome.iter().any(|line| line.contains("lost with the stream")), "{outcome:?}");
        assert!(outcome.iter().any(|line| line == "The break found no open stream."), "{outcome:?}");
    }
}
