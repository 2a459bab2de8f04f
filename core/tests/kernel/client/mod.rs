//! The client's loop over a virtual link and clock: to the nanosecond, what the caller hears and what the server reads.

mod changes;
mod eras;
mod lapses;
mod links;
mod listens;
#[cfg(feature = "metrics")]
mod metrics;
mod propagation;
mod questions;
mod stats;
mod streams;
mod tasks;
#[cfg(feature = "tracing")]
mod trace;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use steady_core::backoff::{Backoff, Jitter};
use steady_core::client::{Config, Transport};
use steady_core::id::ClientId;
use steady_core::kernel::client::{CallError, Caller, ClientConfig, Driver, LinkEnd, Pending, Request, Turn};
use steady_core::retry::{BudgetConfig, Verdict};

use super::ms;
use super::support::{Driven, Frame, VirtualLink, World};

/// The loop as a future that a test drives.
struct Loop(Driver<VirtualLink>);

impl Future for Loop {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        self.0.poll(cx)
    }
}

struct Client {
    world: World,
    driver: Option<Driven<Loop>>,
    caller: Caller,
}

fn config() -> ClientConfig {
    let defaults = ClientConfig::new(Transport::Stdio);
    let no_pause = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
    let budget = BudgetConfig { capacity: 1000, ..BudgetConfig::default() };
    let calls = Config { progress_interval: Duration::ZERO, backoff: no_pause, budget, ..defaults.calls };
    ClientConfig { calls, probe: None, ..defaults }
}

fn jitter() -> Jitter {
    Jitter::seeded(ClientId::new(1), 0)
}

impl Client {
    /// A client whose first link is there.
    fn new(config: ClientConfig) -> Self {
        let world = World::default();
        let (mut driver, caller) = Driver::new(config, world.ports().timer, jitter()).expect("fine settings");
        driver.attach(world.link());
        Self { world, driver: Some(Driven::new(Loop(driver))), caller }
    }

    /// Runs the loop until it waits, or stops.
    fn run(&mut self) -> Option<Turn> {
        for _ in 0..100_000 {
            match self.driver.as_mut()?.turn() {
                Some(Poll::Ready(turn)) => return Some(turn),
                Some(Poll::Pending) => {}
                None => return None,
            }
        }
        panic!("it does not come to rest");
    }

    fn at(&mut self, millis: u64) -> Option<Turn> {
        self.world.advance(ms(millis));
        self.run()
    }

    fn say(&mut self, message: &Value) {
        self.world.send(message.to_string());
        assert!(self.run().is_none(), "the link holds");
    }

    /// What the server reads, in short: `1 tools/call`, `cancelled 1`, `7 server/discover`.
    fn heard(&mut self) -> Vec<String> {
        self.run();
        let lines = self.world.lines();
        let brief = |line: &String| {
            let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            match message.get("id") {
                None => format!("cancelled {}", message["params"]["requestId"]),
                Some(id) => format!("{id} {}", message["method"].as_str().unwrap_or_default()),
            }
        };
        lines.iter().map(brief).collect()
    }

    /// Loses the link, and gets another one.
    fn relink(&mut self, again: bool) {
        let Some(Turn::Lost(end)) = self.run() else { panic!("it is not lost") };
        let mut driver = self.driver.take().expect("it was there").into_inner().0;
        driver.detach(end.to_string(), String::new(), again);
        self.world.lock().written.clear();
        self.world.allow(None);
        if again {
            driver.attach(self.world.link());
        }
        self.driver = Some(Driven::new(Loop(driver)));
        self.run();
    }

    fn lose(&mut self, again: bool) {
        self.world.feed(Frame::Closed);
        self.relink(again);
    }
}

fn call() -> Request {
    Request::raw("tools/call", "{}")
}

fn answer(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "complete"}})
}

fn progress(token: u64, value: f64, message: &str) -> Value {
    let params = json!({"progressToken": token, "progress": value, "message": message});
    json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
}

/// The end of a call, if it is there.
fn end(call: &mut Pending) -> Option<Result<String, CallError>> {
    match Pin::new(call).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(end) => Some(end.map(|raw| raw.get().to_owned())),
        Poll::Pending => None,
    }
}

fn now<F: Future>(future: F) -> Option<F::Output> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// The progress that is there, as value and message.
fn reports(call: &mut Pending) -> Vec<(f64, String)> {
    let mut all = Vec::new();
    while let Some(Some(report)) = now(call.progress()) {
        all.push((report.progress, report.message.into()));
    }
    all
}

#[test]
fn a_limit_ends_its_call_on_a_stuck_link_and_the_cancellation_follows_what_was_out() {
    let mut client = Client::new(config());
    client.world.allow(Some(10));
    let limit = Some(Duration::from_millis(300));
    let mut half_out = client.caller.call(call().idle(limit));
    assert!(client.run().is_none());
    let mut behind = client.caller.call(call().max(limit));
    client.at(299);
    assert!(end(&mut half_out).is_none() && end(&mut behind).is_none());
    client.at(300);
    let half_out = end(&mut half_out);
    assert!(
        matches!(half_out, Some(Err(CallError::IdleTimeout { verdict: Verdict::ReconcileFirst, limit })) if limit == Duration::from_millis(300))
    );
    assert!(matches!(end(&mut behind), Some(Err(CallError::MaxTimeout { verdict: Verdict::Retry, .. }))));
    assert_eq!(client.world.lock().written.len(), 10, "the link has not moved");
    client.world.allow(None);
    assert_eq!(client.heard(), ["1 tools/call", "cancelled 1"], "no trace of the one behind");
}

#[test]
fn every_call_that_is_out_has_its_place_for_a_cancellation_whatever_waits_behind() {
    let calls = Config { in_flight: 50, ..config().calls };
    let mut client = Client::new(ClientConfig { calls, ..config() });
    let out: Vec<Pending> = (0..50).map(|_| client.caller.call(call())).collect();
    assert_eq!(client.heard().len(), 50);
    client.world.allow(Some(0));
    drop(out);
    for _ in 0..1000 {
        let _dropped_behind_a_stuck_link = client.caller.call(call());
    }
    let refused = client.caller.stats().refused;
    assert_eq!(refused, 0);
    client.world.allow(None);
    let expected: Vec<String> = (1..=50).map(|id| format!("cancelled {id}")).collect();
    assert_eq!(client.heard(), expected);
}

#[test]
fn a_cancellation_before_the_first_request_sends_neither() {
    let mut client = Client::new(ClientConfig { probe: Some(Duration::from_secs(10)), ..config() });
    assert_eq!(client.heard(), ["\"discover-1\" server/discover"]);
    let mut given_up = client.caller.call(call());
    given_up.cancel("at once");
    assert!(matches!(end(&mut given_up), Some(Err(CallError::Cancelled { verdict: Verdict::Retry }))));
    client.say(&json!({"jsonrpc": "2.0", "id": "discover-1", "result": {"supportedVersions": ["2026-07-28"]}}));
    assert_eq!(client.heard(), [""; 0]);
    drop(client.caller.call(call()));
    let _next = client.caller.call(call());
    assert_eq!(client.heard(), ["2 tools/call"], "nothing of the two that were given up");
}

#[test]
fn an_answer_in_hand_beats_a_timer_that_was_not_handled() {
    let mut client = Client::new(config());
    let mut pending = client.caller.call(call().max(Some(Duration::from_millis(10))));
    client.run();
    client.world.send(answer(1).to_string());
    client.at(10_000);
    assert!(matches!(end(&mut pending), Some(Ok(_))));
}

#[test]
fn a_flood_does_not_hold_the_maximum_back() {
    let mut client = Client::new(config());
    let mut pending = client.caller.call(call().max(Some(Duration::from_millis(10))));
    client.run();
    client.world.lock().endless = Some(progress(1, 1.0, "again").to_string());
    client.world.lock().step = 10_000;
    client.world.send(progress(1, 1.0, "first").to_string());
    for _ in 0..10_000 {
        client.driver.as_mut().expect("it is there").turn();
        if let Some(ended) = end(&mut pending) {
            assert!(matches!(ended, Err(CallError::MaxTimeout { .. })), "{ended:?}");
            let late = client.world.lock().reads;
            assert!(late <= 1000 + 2 * 64, "{late} messages of 10 us each, and a turn or two");
            return;
        }
    }
    panic!("the flood holds it back");
}

#[test]
fn progress_resets_the_idle_clock_and_what_does_not_increase_does_nothing() {
    let mut client = Client::new(config());
    let mut pending = client.caller.call(call().idle(Some(Duration::from_millis(100))));
    client.run();
    for (at, value, message) in [(90, 1.0, "one"), (180, 2.0, "two"), (200, 2.0, "two again"), (210, 0.5, "back")] {
        client.at(at);
        client.say(&progress(1, value, message));
    }
    client.say(&progress(7, 3.0, "foreign"));
    assert_eq!(reports(&mut pending), [(1.0, "one".to_owned()), (2.0, "two".to_owned())]);
    client.at(279);
    assert!(end(&mut pending).is_none());
    client.at(280);
    assert!(matches!(end(&mut pending), Some(Err(CallError::IdleTimeout { .. }))));
    assert_eq!(client.caller.stats().calls.refused_progress, 2);
}

#[test]
fn the_rate_holds_progress_back_and_gives_the_newest_with_its_text() {
    let calls = Config { progress_interval: Duration::from_millis(50), ..config().calls };
    let mut client = Client::new(ClientConfig { calls, ..config() });
    let mut pending = client.caller.call(call());
    client.run();
    for (value, message) in [(1.0, "one"), (2.0, "two"), (4.0, "four"), (3.0, "three")] {
        client.say(&progress(1, value, message));
    }
    assert_eq!(reports(&mut pending), [(1.0, "one".to_owned())]);
    client.at(50);
    assert_eq!(reports(&mut pending), [(4.0, "four".to_owned())]);
    client.say(&progress(1, 5.0, "five"));
    client.say(&answer(1));
    assert_eq!(reports(&mut pending), [(5.0, "five".to_owned())], "the last one before the answer is not lost");
    assert!(matches!(end(&mut pending), Some(Ok(_))));
}

#[test]
fn a_lost_link_ends_what_may_have_run_and_sends_again_what_only_reads() {
    let mut client = Client::new(config());
    let (mut mutation, mut read) = (client.caller.call(call()), client.caller.call(call().safe()));
    assert_eq!(client.heard(), ["1 tools/call", "2 tools/call"]);
    client.lose(true);
    let Some(Err(CallError::Unknown { loss, verdict })) = end(&mut mutation) else { panic!("it may have run") };
    assert_eq!((loss.generation, verdict), (1, Verdict::ReconcileFirst));
    assert_eq!(client.heard(), ["3 tools/call"], "a fresh id");
    // What an older server still says is nobody's answer.
    client.say(&answer(1));
    client.say(&answer(2));
    assert!(end(&mut read).is_none());
    client.say(&answer(3));
    assert!(matches!(end(&mut read), Some(Ok(_))));
    assert_eq!((client.caller.stats().calls.late_answers, client.caller.stats().generation), (2, 2));
}

#[test]
fn a_cancellation_that_waits_for_a_link_is_gone_with_it() {
    let mut client = Client::new(config());
    let given_up = client.caller.call(call());
    assert_eq!(client.heard(), ["1 tools/call"]);
    client.world.allow(Some(0));
    // What is taken for the next write stands before the cancellation.
    let next = client.caller.call(call());
    client.run();
    drop(given_up);
    client.run();
    client.lose(true);
    assert_eq!(client.heard(), ["3 tools/call"], "the next server knows nothing of it");
    drop(next);
    assert_eq!(client.heard(), ["cancelled 3"]);
}

#[test]
fn what_did_not_leave_goes_to_the_next_link_and_half_a_line_may_have_run() {
    let mut client = Client::new(config());
    client.world.allow(Some(10));
    let mut half_out = client.caller.call(call());
    client.run();
    let mut behind = client.caller.call(call());
    client.run();
    client.lose(true);
    assert!(matches!(end(&mut half_out), Some(Err(CallError::Unknown { .. }))));
    assert_eq!(client.heard(), ["3 tools/call"], "a fresh id for a fresh link");
    client.say(&answer(3));
    assert!(matches!(end(&mut behind), Some(Ok(_))));
}

#[test]
fn what_was_taken_for_one_write_and_did_not_leave_was_never_sent() {
    let mut client = Client::new(config());
    client.world.allow(Some(10));
    // Both are taken into one batch, and the write ends inside of the first.
    let (mut first, mut second) = (client.caller.call(call()), client.caller.call(call()));
    client.run();
    client.lose(true);
    assert!(matches!(end(&mut first), Some(Err(CallError::Unknown { .. }))));
    assert_eq!(client.heard(), ["3 tools/call"], "the second, under a fresh id");
    client.lose(false);
    let second = end(&mut second);
    assert!(matches!(second, Some(Err(CallError::Unknown { .. }))), "{second:?}");
}

#[test]
fn without_a_next_link_every_call_ends_and_later_ones_are_refused() {
    let mut client = Client::new(config());
    client.world.allow(Some(0));
    let mut never = client.caller.call(call().safe());
    client.run();
    client.lose(false);
    assert!(matches!(end(&mut never), Some(Err(CallError::NeverSent { .. }))));
    assert!(matches!(end(&mut client.caller.call(call())), Some(Err(CallError::Closed(_)))));
    assert_eq!(client.caller.stats().in_flight, 0);
}

#[test]
fn calls_wait_for_the_answer_to_discover_and_its_silence_ends_the_link() {
    let with_probe = ClientConfig { probe: Some(Duration::from_secs(10)), ..config() };
    let mut client = Client::new(with_probe);
    let mut pending = client.caller.call(call());
    assert_eq!(client.heard(), ["\"discover-1\" server/discover"]);
    assert!(client.at(9_999).is_none());
    let Some(Turn::Lost(LinkEnd::NoAnswer(_))) = client.at(10_000) else { panic!("it waits for ever") };
    assert!(end(&mut pending).is_none(), "its transport says what happened");
    let mut driver = client.driver.take().expect("it was there").into_inner().0;
    driver.detach("silent".into(), String::new(), true);
    driver.attach(client.world.link());
    client.driver = Some(Driven::new(Loop(driver)));
    assert_eq!(client.heard(), ["\"discover-2\" server/discover"]);
    let result = json!({"supportedVersions": ["2026-07-28"], "capabilities": {}});
    // An answer to the older question is none to this one.
    client.say(&json!({"jsonrpc": "2.0", "id": "discover-1", "result": result}));
    assert_eq!(client.heard(), [""; 0]);
    client.say(&json!({"jsonrpc": "2.0", "id": "discover-2", "result": result}));
    assert_eq!(client.heard(), ["1 tools/call"]);
    assert_eq!(client.caller.server().expect("it answered").supported_versions, ["2026-07-28"]);
    client.say(&answer(1));
    assert!(matches!(end(&mut pending), Some(Ok(_))));
}

#[test]
fn a_link_that_takes_nothing_is_lost_at_the_write_stall_limit() {
    let mut client = Client::new(ClientConfig { write_stall: Duration::from_secs(1), ..config() });
    client.world.allow(Some(10));
    let _pending = client.caller.call(call());
    client.run();
    assert!(client.at(999).is_none());
    client.world.allow(Some(1));
    assert!(client.at(1_000).is_none(), "one byte is a sign of life");
    assert!(client.at(1_998).is_none());
    assert!(matches!(client.at(2_000), Some(Turn::Lost(LinkEnd::Stalled(_)))));
}

#[test]
fn closing_cancels_and_the_last_handle_ends_the_loop_after_the_last_call() {
    let mut client = Client::new(config());
    let mut pending = client.caller.call(call());
    assert_eq!(client.heard(), ["1 tools/call"]);
    client.caller.close();
    assert!(matches!(client.run(), Some(Turn::Done)));
    assert!(matches!(end(&mut pending), Some(Err(CallError::Cancelled { .. }))));
    assert_eq!(client.world.lines().len(), 1, "the server was told");
    assert!(matches!(end(&mut client.caller.call(call())), Some(Err(CallError::Closed(_)))));

    let Client { world, driver, caller } = Client::new(config());
    let mut driver = driver.expect("it is there");
    let pending = caller.call(call());
    drop(caller);
    while let Some(turn) = driver.turn() {
        assert!(turn.is_pending(), "a call keeps it");
    }
    drop(pending);
    assert!(matches!(driver.turn(), Some(Poll::Ready(Turn::Done))));
    assert_eq!(world.lines().len(), 2, "the call and its cancellation");
}
