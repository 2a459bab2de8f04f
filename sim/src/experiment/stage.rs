//! Where an experiment happens: a client, a server and a network in virtual time, moved step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use steady_core::client::{CallOptions, Outcome, Transport};
use steady_core::deadline::Limits;
use steady_core::id::{CallId, WireId};
use steady_core::idempotency::Key;
use steady_core::kernel::Tools;
use steady_core::retry::{Contract, Verdict};
use steady_core::time::Instant;

use super::board::{Board, Event, Order, TOOL};
use super::{Found, Promise, ScriptError, Step};
use crate::wire::Answer;
use crate::world::{Network, NetworkOptions, Wire};

/// How long everything may take to come to rest after the last step: longer than any default limit.
const REST: Duration = Duration::from_secs(3600);
/// Requests of one experiment at most.
const REQUESTS: usize = 1000;

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The request.
    pub request: String,
    /// Its terminal state at the client.
    pub client: &'static str,
    /// Whether a final response for it crossed the wire.
    pub response: bool,
    /// How the client told the server that it is given up.
    pub signal: Signal,
    /// What the contract allows the client to do next; `None` after an answer.
    pub next: Option<&'static str>,
    /// What happened to it and changed nothing, in order.
    pub ignored: Vec<Ignored>,
}

/// The cancel signal that crossed the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "the protocol has these")]
pub enum Signal {
    /// None.
    None,
    /// A `notifications/cancelled` message (rule C2).
    Notification,
    /// The end of the response stream, and no message (rule C1).
    ClosedStream,
}

impl Signal {
    /// As people read it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Notification => "notifications/cancelled",
            Self::ClosedStream => "stream closed",
        }
    }
}

/// An event that came too late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ignored {
    /// Who ignored it.
    pub by: Side,
    /// What it was.
    pub event: &'static str,
}

/// One end of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "there are two")]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// One entry of what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moment {
    /// When.
    pub at: Instant,
    /// Where.
    pub lane: Lane,
    /// What, as people read it; of a message its text without the metadata.
    pub text: String,
}

/// Where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there are two ends, two directions, and the script")]
pub enum Lane {
    /// A step of the script.
    Step,
    /// A message that leaves the client, or what the client does instead of sending one.
    ToServer,
    /// A message that leaves the server.
    ToClient,
    /// At the client.
    Client,
    /// At the server.
    Server,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lead = match self.lane {
            Lane::Step => "* ",
            Lane::ToServer => "  client -> server  ",
            Lane::ToClient => "  client <- server  ",
            Lane::Client | Lane::Server => "  ",
        };
        write!(f, "{:>12}  {lead}{}", self.at.to_string(), self.text)
    }
}

/// A request of the experiment.
struct Request {
    call: CallId,
    ignored: Vec<(Instant, Ignored)>,
}

/// An experiment under way.
pub struct Stage {
    network: Network<Tools>,
    board: Board,
    transport: Transport,
    latency: Duration,
    requests: BTreeMap<String, Request>,
    order: Vec<String>,
    timeline: BTreeMap<(Instant, u64), Moment>,
    notes: u64,
    /// Cancel signals that are under way or have arrived, and nobody has answered yet: of which request, and when they arrive.
    signals: Vec<(String, Instant)>,
    told: Told,
}

/// What of the network's lists is in the timeline.
#[derive(Default)]
struct Told {
    wires: usize,
    ignored: usize,
    progress: usize,
    finished: BTreeSet<CallId>,
}

impl Stage {
    /// A client and a server that have said nothing yet.
    #[must_use]
    pub fn new(transport: Transport, latency: Duration) -> Self {
        let board = Board::default();
        let options =
            NetworkOptions { transport, to_server: latency, to_client: latency, held_by_proxy: Duration::ZERO };
        Self {
            network: Network::new(board.server(), options),
            board,
            transport,
            latency,
            requests: BTreeMap::new(),
            order: Vec::new(),
            timeline: BTreeMap::new(),
            notes: 0,
            signals: Vec::new(),
            told: Told::default(),
        }
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.network.now()
    }

    /// Lets one thing happen, and what follows from it at the same instant.
    ///
    /// # Errors
    /// [`ScriptError`] if the step names a request that was never called, or calls one twice.
    pub fn step(&mut self, step: &Step) -> Result<(), ScriptError> {
        let now = self.now();
        if !matches!(step, Step::Wait(_)) {
            self.note(now, Lane::Step, step.to_string());
        }
        match step {
            Step::Call { name, idle, max, contract } => {
                let defaults = CallOptions::default().limits;
                let limits = Limits { idle: idle.or(defaults.idle), maximum: max.or(defaults.maximum) };
                self.call(name, limits, contract)?;
            }
            Step::Progress(name) => self.tell(name, Order::Progress)?,
            Step::Complete(name) => self.tell(name, Order::Complete)?,
            Step::Fail(name) => self.tell(name, Order::Fail)?,
            Step::Cancel(name) => {
                let call = self.find(name)?;
                self.network.cancel(call);
            }
            Step::Break(name) => {
                let call = self.find(name)?;
                if let Some(wire) = self.attempt(call) {
                    self.network.break_stream(wire);
                }
            }
            Step::Wait(length) => self.network.run_until(now + *length),
        }
        self.network.run_until(self.now());
        self.look();
        Ok(())
    }

    /// What happened since the experiment began, a line each.
    pub fn timeline(&self) -> impl Iterator<Item = &Moment> {
        self.timeline.values()
    }

    /// Lets everything come to rest, and says what became of each request.
    #[must_use]
    pub fn finish(mut self) -> Found {
        let until = self.now() + REST;
        self.network.run_until(until);
        self.look();
        let rows = self.order.clone().iter().map(|name| self.row(name)).collect();
        let moments: Vec<Moment> = self.timeline.into_values().collect();
        Found { timeline: moments.iter().map(ToString::to_string).collect(), rows, moments }
    }

    /// What is known of each request by now.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.order.iter().map(|name| self.row(name)).collect()
    }

    fn call(&mut self, name: &str, limits: Limits, promise: &Promise) -> Result<(), ScriptError> {
        if self.requests.contains_key(name) {
            return Err(ScriptError::new(format!("`{name}` is called already; give each request a name of its own")));
        }
        if self.order.len() == REQUESTS {
            return Err(ScriptError::new(format!("an experiment has {REQUESTS} requests at most")));
        }
        let contract = match promise {
            Promise::Unsafe => Contract::Unsafe,
            Promise::Safe => Contract::Safe,
            Promise::Key(key) => {
                let key = Key::parse(key);
                Contract::Conditional(key.map_err(|why| ScriptError::new(format!("the key of `{name}`: {why}")))?)
            }
        };
        let arguments = serde_json::json!({ "request": name }).to_string();
        let options = CallOptions { limits, contract, ..CallOptions::default() };
        let call = self.network.call(TOOL, &arguments, options);
        let Some(call) = call else { return Err(ScriptError::new("the client has no room for another call")) };
        self.requests.insert(name.into(), Request { call, ignored: vec![] });
        self.order.push(name.into());
        Ok(())
    }

    fn find(&self, name: &str) -> Result<CallId, ScriptError> {
        let near = || self.order.iter().find(|known| crate::suggest::is_near(name, known));
        self.requests.get(name).map(|request| request.call).ok_or_else(|| {
            let hint = near().map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            ScriptError::new(format!("no request `{name}` was called before this step{hint}"))
        })
    }

    fn tell(&mut self, name: &str, order: Order) -> Result<(), ScriptError> {
        self.find(name)?;
        self.board.order(name, order);
        Ok(())
    }

    /// The last attempt of a call.
    fn attempt(&self, call: CallId) -> Option<WireId> {
        self.network.attempts.iter().rev().find(|(of, _)| *of == call).map(|(_, wire)| *wire)
    }

    fn name_of(&self, wire: WireId) -> Option<String> {
        let call = self.network.attempts.iter().find(|(_, of)| *of == wire).map(|(call, _)| *call)?;
        self.name_of_call(call)
    }

    fn name_of_call(&self, call: CallId) -> Option<String> {
        self.requests.iter().find(|(_, request)| request.call == call).map(|(name, _)| name.clone())
    }

    fn note(&mut self, at: Instant, lane: Lane, text: String) {
        self.notes += 1;
        self.timeline.insert((at, self.notes), Moment { at, lane, text });
    }

    fn ignore(&mut self, at: Instant, name: &str, by: Side, event: &'static str) {
        let (lane, who) = if by == Side::Client { (Lane::Client, "client") } else { (Lane::Server, "server") };
        self.note(at, lane, format!("the {who} ignores {event} of {name}"));
        if let Some(request) = self.requests.get_mut(name) {
            request.ignored.push((at, Ignored { by, event }));
        }
    }

    /// Writes down what is new.
    fn look(&mut self) {
        let wires: Vec<Wire> = self.network.wires.iter().skip(self.told.wires).cloned().collect();
        self.told.wires += wires.len();
        wires.iter().for_each(|wire| self.crossed(wire));
        let ignored: Vec<_> = self.network.ignored.iter().skip(self.told.ignored).cloned().collect();
        self.told.ignored += ignored.len();
        for (at, wire, what) in ignored {
            let event = if what == "progress" { "late progress" } else { "the late response" };
            if let Some(name) = self.name_of(wire) {
                self.ignore(at, &name, Side::Client, event);
            }
        }
        let progress: Vec<_> = self.network.progress.iter().skip(self.told.progress).copied().collect();
        self.told.progress += progress.len();
        for (at, call, value) in progress {
            let name = self.name_of_call(call).unwrap_or_default();
            self.note(at, Lane::Client, format!("the application sees progress {} of {name}", value.value()));
        }
        self.handlers();
        self.late_signals();
        self.settled();
    }

    fn crossed(&mut self, wire: &Wire) {
        let lane = if wire.from_client { Lane::ToServer } else { Lane::ToClient };
        self.note(wire.at, lane, short(&wire.text));
        if let Some(name) = self.given_up(wire) {
            self.signals.push((name, wire.at + self.latency));
        }
    }

    /// A cancellation that arrived, of a request for which a response exists: the response was first, or there were none.
    fn late_signals(&mut self) {
        let now = self.now();
        for (name, at) in std::mem::take(&mut self.signals) {
            if at > now {
                self.signals.push((name, at));
            } else if self.response(&name).is_some() {
                self.ignore(at, &name, Side::Server, "the late cancellation");
            }
        }
    }

    /// The request that this message of the client gives up.
    fn given_up(&self, wire: &Wire) -> Option<String> {
        if !wire.from_client || signal_of(&wire.text) == Signal::None {
            return None;
        }
        self.order.iter().find(|name| self.attempt_is_named(name, &wire.text)).cloned()
    }

    fn attempt_is_named(&self, name: &str, text: &str) -> bool {
        let call = self.requests.get(name).map(|request| request.call);
        let wires = self.network.attempts.iter().filter(|(of, _)| Some(*of) == call);
        wires.into_iter().any(|(_, wire)| {
            let number = wire.number();
            text.ends_with(&format!("request {number})")) || text.contains(&format!("\"requestId\":{number},"))
        })
    }

    /// When the final response of a request was sent, if there is one.
    fn response(&self, name: &str) -> Option<Instant> {
        let call = self.requests.get(name)?.call;
        let wires: Vec<WireId> =
            self.network.attempts.iter().filter(|(of, _)| *of == call).map(|(_, wire)| *wire).collect();
        let answers = |text: &str| match crate::wire::read(text) {
            Some(steady_core::client::Input::Response { wire, .. }) => wires.contains(&wire),
            _ => false,
        };
        self.network.wires.iter().find(|wire| !wire.from_client && answers(&wire.text)).map(|wire| wire.at)
    }

    fn handlers(&mut self) {
        for seen in self.board.take_seen() {
            let name = seen.request.clone();
            match seen.what {
                Event::Told(why) => {
                    self.note(seen.at, Lane::Server, format!("the handler of {name} is told to stop: {why}"));
                }
                Event::Reported { accepted: true } | Event::Returned { late: false } => {}
                Event::Reported { accepted: false } => self.ignore(seen.at, &name, Side::Server, "late progress"),
                Event::Returned { late: true } => self.ignore(seen.at, &name, Side::Server, "the late completion"),
            }
        }
    }

    fn settled(&mut self) {
        let new: Vec<(CallId, Instant)> = self
            .network
            .finished
            .iter()
            .filter(|(call, _)| !self.told.finished.contains(call))
            .map(|(call, (at, _))| (*call, *at))
            .collect();
        for (call, at) in new {
            self.told.finished.insert(call);
            if let Some(name) = self.name_of_call(call) {
                let state = self.state(&name);
                self.note(at, Lane::Client, format!("the application is told: {name} is {state}"));
            }
        }
    }

    fn state(&self, name: &str) -> &'static str {
        let call = self.requests.get(name).map(|request| request.call);
        let finished = call.and_then(|call| self.network.finished.get(&call));
        finished.map_or("in flight", |(_, finished)| match finished.outcome {
            Outcome::Answered(Answer::Result(_)) => "completed",
            Outcome::Answered(Answer::Error(_)) => "failed",
            Outcome::Cancelled => "cancelled",
            Outcome::IdleTimeout => "idle timeout",
            Outcome::MaxTimeout => "maximum timeout",
            Outcome::NeverSent => "never sent",
            Outcome::Unknown => "unknown",
        })
    }

    fn row(&self, name: &str) -> Row {
        let signals = self.network.wires.iter().filter(|wire| self.given_up(wire).is_some_and(|of| of == name));
        let mut ignored = self.requests.get(name).map(|request| request.ignored.clone()).unwrap_or_default();
        ignored.sort_by_key(|(at, ignored)| (*at, ignored.by));
        Row {
            request: name.into(),
            client: self.state(name),
            response: self.response(name).is_some(),
            signal: signals.map(|wire| signal_of(&wire.text)).next_back().unwrap_or(Signal::None),
            next: self.next(name),
            ignored: ignored.into_iter().map(|(_, ignored)| ignored).collect(),
        }
    }

    fn next(&self, name: &str) -> Option<&'static str> {
        let call = self.requests.get(name)?.call;
        let (_, finished) = self.network.finished.get(&call)?;
        finished.verdict.map(|verdict| match verdict {
            Verdict::Retry => "retry",
            Verdict::RetrySameKey => "retry with the same key",
            Verdict::ReconcileFirst => "reconcile first",
        })
    }

    /// The transport between client and server.
    #[must_use]
    pub const fn transport(&self) -> Transport {
        self.transport
    }
}

fn signal_of(text: &str) -> Signal {
    if text.starts_with("(closes") {
        Signal::ClosedStream
    } else if text.contains("\"method\":\"notifications/cancelled\"") {
        Signal::Notification
    } else {
        Signal::None
    }
}

/// A message without its metadata, which is the same in all.
fn short(text: &str) -> String {
    let Some((start, _)) = text.split_once(",\"_meta\":") else { return text.into() };
    format!("{start}, ...}}")
}
