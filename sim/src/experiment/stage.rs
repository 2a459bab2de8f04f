//! Where an experiment happens: a client, a server and a network in virtual time, moved step by step.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use steady_core::client::{CallOptions, CancelSignal, Input, Outcome, Transport};
use steady_core::deadline::Limits;
use steady_core::id::{CallId, WireId};
use steady_core::idempotency::Key;
use steady_core::kernel::Tools;
use steady_core::retry::{Contract, Verdict};
use steady_core::time::Instant;

use super::board::{Board, Event, Order, TOOL};
use super::row::{Ignored, Lane, Moment, Row, Side, Signal};
use super::{Found, Promise, ScriptError, Step};
use crate::wire::Answer;
use crate::world::{Network, NetworkOptions, Wire};

/// How long everything may take to come to rest after the last step: longer than any default limit.
const REST: Duration = Duration::from_secs(3600);
/// Requests of one experiment at most.
const REQUESTS: usize = 1000;

/// A request of the experiment, and what is known of it.
struct Request {
    call: CallId,
    /// Its last attempt.
    attempt: Option<WireId>,
    /// Whether its final response was sent.
    response: bool,
    signal: Signal,
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
    /// The request of each call, and of each attempt.
    calls: BTreeMap<CallId, String>,
    attempts: BTreeMap<WireId, String>,
    timeline: BTreeMap<(Instant, u64), Moment>,
    notes: u64,
    /// Where in the timeline each message is, in the order of the network's list.
    crossed: Vec<(Instant, u64)>,
    /// Cancel signals that are under way or have arrived, and nobody has answered yet: of which request, and when they arrive.
    signals: Vec<(String, Instant)>,
    told: Told,
}

/// What of the network's lists is in the timeline.
#[derive(Default)]
struct Told {
    attempts: usize,
    lost: usize,
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
            calls: BTreeMap::new(),
            attempts: BTreeMap::new(),
            timeline: BTreeMap::new(),
            notes: 0,
            crossed: Vec::new(),
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
            Step::Call { name, idle, max, contract, attempts } => {
                let defaults = CallOptions::default();
                let Limits { idle: usual_idle, maximum: usual_max } = defaults.limits;
                let limits = Limits { idle: idle.or(usual_idle), maximum: max.or(usual_max) };
                let attempts = attempts.unwrap_or(defaults.attempts);
                self.call(name, contract, CallOptions { limits, attempts, ..defaults })?;
            }
            Step::Progress(name) => self.tell(name, Order::Progress)?,
            Step::Complete(name) => self.tell(name, Order::Complete)?,
            Step::Fail(name) => self.tell(name, Order::Fail)?,
            Step::Cancel(name) => {
                let call = self.find(name)?.call;
                self.network.cancel(call);
            }
            Step::Break(name) => {
                let attempt = self.find(name)?.attempt;
                if !attempt.is_some_and(|wire| self.network.break_stream(wire)) {
                    self.note(now, Lane::Network, format!("nothing to break: {name} has no open stream"));
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
        let rows = self.rows();
        let moments: Vec<Moment> = self.timeline.into_values().collect();
        Found { timeline: moments.iter().map(ToString::to_string).collect(), rows, moments }
    }

    /// What is known of each request by now.
    #[must_use]
    pub fn rows(&self) -> Vec<Row> {
        self.order.iter().map(|name| self.row(name)).collect()
    }

    fn call(&mut self, name: &str, promise: &Promise, options: CallOptions) -> Result<(), ScriptError> {
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
        let options = CallOptions { contract, ..options };
        let call = self.network.call(TOOL, &arguments, options);
        let Some(call) = call else { return Err(ScriptError::new("the client has no room for another call")) };
        let request = Request { call, attempt: None, response: false, signal: Signal::None, ignored: vec![] };
        self.requests.insert(name.into(), request);
        self.calls.insert(call, name.into());
        self.order.push(name.into());
        Ok(())
    }

    fn find(&self, name: &str) -> Result<&Request, ScriptError> {
        let near = || self.order.iter().find(|known| crate::suggest::is_near(name, known));
        self.requests.get(name).ok_or_else(|| {
            let hint = near().map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            ScriptError::new(format!("no request `{name}` was called before this step{hint}"))
        })
    }

    fn tell(&mut self, name: &str, order: Order) -> Result<(), ScriptError> {
        self.find(name)?;
        self.board.order(name, order);
        Ok(())
    }

    fn note(&mut self, at: Instant, lane: Lane, text: String) {
        self.notes += 1;
        self.timeline.insert((at, self.notes), Moment { at, lane, text, lost: false });
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
        for (call, wire) in self.network.attempts.iter().skip(self.told.attempts) {
            self.told.attempts += 1;
            let Some(name) = self.calls.get(call) else { continue };
            self.attempts.insert(*wire, name.clone());
            if let Some(request) = self.requests.get_mut(name) {
                request.attempt = Some(*wire);
            }
        }
        let wires: Vec<Wire> = self.network.wires.iter().skip(self.crossed.len()).cloned().collect();
        wires.iter().for_each(|wire| self.message(wire));
        for index in self.network.lost.iter().skip(self.told.lost) {
            self.told.lost += 1;
            if let Some(moment) = self.crossed.get(*index).and_then(|place| self.timeline.get_mut(place)) {
                moment.lost = true;
            }
        }
        let ignored: Vec<_> = self.network.ignored.iter().skip(self.told.ignored).cloned().collect();
        self.told.ignored += ignored.len();
        for (at, wire, what) in ignored {
            let event = if what == "progress" { "late progress" } else { "the late response" };
            if let Some(name) = self.attempts.get(&wire).cloned() {
                self.ignore(at, &name, Side::Client, event);
            }
        }
        let progress: Vec<_> = self.network.progress.iter().skip(self.told.progress).copied().collect();
        self.told.progress += progress.len();
        for (at, call, value) in progress {
            let name = self.calls.get(&call).map_or("", String::as_str);
            let text = format!("the application sees progress {} of {name}", value.value());
            self.note(at, Lane::Client, text);
        }
        self.handlers();
        self.late_signals();
        self.settled();
    }

    /// A message that was sent off.
    fn message(&mut self, wire: &Wire) {
        let lane = if wire.from_client { Lane::ToServer } else { Lane::ToClient };
        self.note(wire.at, lane, short(&wire.text));
        self.crossed.push((wire.at, self.notes));
        let Some(name) = wire.request.and_then(|request| self.attempts.get(&request)) else { return };
        let Some(request) = self.requests.get_mut(name) else { return };
        if let Some(signal) = wire.signal {
            request.signal = match signal {
                CancelSignal::Notify => Signal::Notification,
                CancelSignal::CloseStream => Signal::ClosedStream,
            };
            self.signals.push((name.clone(), wire.at + self.latency));
        }
        let is_final = || matches!(crate::wire::read(&wire.text), Some(Input::Response { .. }));
        request.response = request.response || (!wire.from_client && is_final());
    }

    /// A cancellation that arrived, of a request for which a response exists: the response was first, or there were none.
    fn late_signals(&mut self) {
        let now = self.now();
        for (name, at) in std::mem::take(&mut self.signals) {
            if at > now {
                self.signals.push((name, at));
            } else if self.requests.get(&name).is_some_and(|request| request.response) {
                self.ignore(at, &name, Side::Server, "the late cancellation");
            }
        }
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
        if self.told.finished.len() == self.network.finished.len() {
            return;
        }
        let new: Vec<(CallId, Instant)> = self
            .network
            .finished
            .iter()
            .filter(|(call, _)| !self.told.finished.contains(call))
            .map(|(call, (at, _))| (*call, *at))
            .collect();
        for (call, at) in new {
            self.told.finished.insert(call);
            if let Some(name) = self.calls.get(&call).cloned() {
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
        let request = self.requests.get(name);
        let mut ignored = request.map(|request| request.ignored.clone()).unwrap_or_default();
        ignored.sort_by_key(|(at, ignored)| (*at, ignored.by));
        Row {
            request: name.into(),
            client: self.state(name),
            response: request.is_some_and(|request| request.response),
            signal: request.map_or(Signal::None, |request| request.signal),
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

/// A message without its metadata, which is the same in all.
fn short(text: &str) -> String {
    let Some((start, _)) = text.split_once(",\"_meta\":") else { return text.into() };
    format!("{start}, ...}}")
}
