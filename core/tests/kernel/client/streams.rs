//! A link on which each request has a stream of its own (Streamable HTTP): what one stream does is its own call's affair.

use std::time::Duration;

use steady_core::client::Transport;
use steady_core::deadline::Limits;
use steady_core::id::RequestId;
use steady_core::kernel::Unanswered;
use steady_core::kernel::client::{CallError, ClientConfig, InputAsked, LinkEnd, ListenEvent, Turn};
use steady_core::retry::Verdict;
use steady_core::subscription::{self, End, Filter};

use super::{Client, answer, call, config, end, jitter, now};
use crate::support::Frame;

fn streams() -> ClientConfig {
    let mut config = config();
    config.calls.transport = Transport::Http;
    config
}

impl Client {
    fn unanswered(&mut self, id: i64, end: Unanswered) {
        self.world.feed(Frame::Unanswered(RequestId::Integer(id), end));
        assert!(self.run().is_none(), "the link holds");
    }

    /// The requests whose streams were closed since the last call.
    fn closed(&mut self) -> Vec<RequestId> {
        self.run();
        std::mem::take(&mut self.world.lock().closed)
    }
}

#[test]
fn giving_up_closes_the_stream_of_that_request_and_writes_nothing() {
    let mut client = Client::new(streams());
    let limits = Limits { idle: Some(Duration::from_millis(10)), maximum: None };
    let (cancelled, dropped) = (client.caller.call(call()), client.caller.call(call()));
    let mut timed = client.caller.call(call().idle(limits.idle));
    let mut lives = client.caller.call(call());
    assert_eq!(client.heard().len(), 4);
    cancelled.cancel("enough");
    drop(dropped);
    assert_eq!(client.closed(), [RequestId::Integer(1), RequestId::Integer(2)]);
    client.at(10);
    assert_eq!(client.closed(), [RequestId::Integer(3)]);
    assert!(matches!(end(&mut timed), Some(Err(CallError::IdleTimeout { .. }))));
    client.say(&answer(4));
    assert!(matches!(end(&mut lives), Some(Ok(_))));
    drop((cancelled, lives));
    assert_eq!((client.closed(), client.heard()), (Vec::new(), Vec::new()), "once each, and no message");
    // One that was never handed to the link has no stream.
    client.world.allow(Some(0));
    let stuck = client.caller.call(call());
    client.run();
    let behind = client.caller.call(call());
    drop(behind);
    client.run();
    drop(stuck);
    client.world.allow(None);
    assert_eq!(client.heard(), ["5 tools/call"]);
    assert_eq!(client.closed(), [RequestId::Integer(5)], "after its request, although it was given up before");
}

#[test]
fn a_stream_that_ends_without_an_answer_settles_its_own_call_at_once() {
    let mut client = Client::new(streams());
    let mut calls: Vec<_> = (0..5).map(|_| client.caller.call(call().attempts(1))).collect();
    assert_eq!(client.heard().len(), 5);
    client.unanswered(1, Unanswered::Lost("it was cut".into()));
    client.unanswered(2, Unanswered::NotSent("nobody listens".into()));
    client.unanswered(3, Unanswered::Refused("HTTP 403".into()));
    client.unanswered(4, Unanswered::TooLong);
    let Some(Err(CallError::Unknown { loss, verdict: Verdict::ReconcileFirst })) = end(&mut calls[0]) else { panic!() };
    assert_eq!((&*loss.what, loss.generation), ("it was cut", 1));
    let Some(Err(CallError::NeverSent { loss, .. })) = end(&mut calls[1]) else { panic!() };
    assert_eq!(&*loss.what, "nobody listens");
    let refused = end(&mut calls[2]);
    assert!(matches!(&refused, Some(Err(CallError::Refused(why))) if &**why == "HTTP 403"), "{refused:?}");
    assert!(matches!(end(&mut calls[3]), Some(Err(CallError::AnswerTooLong))));
    // For ids that are not in use: nothing.
    client.unanswered(1, Unanswered::Lost("again".into()));
    client.unanswered(99, Unanswered::Refused("who?".into()));
    assert!(end(&mut calls[4]).is_none());
    client.say(&answer(5));
    assert!(matches!(end(&mut calls[4]), Some(Ok(_))));
    let stats = client.caller.stats();
    assert_eq!((stats.unknown, stats.never_sent, stats.refused_elsewhere, stats.too_long), (1, 1, 1, 1));
    assert_eq!((client.closed(), stats.in_flight), (Vec::new(), 0));
}

#[test]
fn what_was_not_sent_and_what_only_reads_goes_out_again_under_a_fresh_id() {
    let mut client = Client::new(streams());
    let (mut mutation, mut read) = (client.caller.call(call()), client.caller.call(call().safe()));
    assert_eq!(client.heard(), ["1 tools/call", "2 tools/call"]);
    client.unanswered(1, Unanswered::NotSent("refused".into()));
    client.unanswered(2, Unanswered::Lost("cut".into()));
    assert_eq!(client.heard(), ["3 tools/call", "4 tools/call"]);
    client.unanswered(3, Unanswered::Lost("cut".into()));
    assert!(matches!(end(&mut mutation), Some(Err(CallError::Unknown { .. }))));
    client.say(&answer(4));
    assert!(matches!(end(&mut read), Some(Ok(_))));
    assert_eq!(client.heard(), [""; 0]);
}

#[test]
fn a_listen_whose_stream_was_too_long_is_lost_and_not_over() {
    let mut client = Client::new(streams());
    let filter = Filter::parse(r#"{"toolsListChanged":true}"#).expect("a filter");
    let no_pause = config().calls.backoff;
    let listens = subscription::Config { backoff: no_pause, ..subscription::Config::default() };
    let listener = client.caller.listen(filter, listens, jitter()).expect("room");
    assert_eq!(client.heard(), ["1 subscriptions/listen"]);
    client.unanswered(1, Unanswered::TooLong);
    client.at(1);
    assert_eq!(client.heard(), ["2 subscriptions/listen"]);
    drop(listener);
}

#[test]
fn a_listen_comes_back_after_a_loss_and_not_after_a_refusal() {
    let mut client = Client::new(streams());
    let filter = Filter::parse(r#"{"toolsListChanged":true}"#).expect("a filter");
    let no_pause = config().calls.backoff;
    let listens = subscription::Config { backoff: no_pause, ..subscription::Config::default() };
    let mut listener = client.caller.listen(filter, listens, jitter()).expect("room");
    assert_eq!(client.heard(), ["1 subscriptions/listen"]);
    client.unanswered(1, Unanswered::Lost("cut".into()));
    client.at(1);
    assert_eq!(client.heard(), ["2 subscriptions/listen"]);
    client.unanswered(2, Unanswered::Refused("HTTP 405".into()));
    assert_eq!(now(listener.next()), Some(ListenEvent::Ended(End::Refused)));
    drop(listener);
    client.at(100_000);
    assert_eq!((client.heard(), client.closed()), (Vec::new(), Vec::new()));
}

#[test]
fn the_probe_that_gets_no_answer_ends_the_link() {
    let mut client = Client::new(ClientConfig { probe: Some(Duration::from_secs(1)), ..streams() });
    let mut waits = client.caller.call(call());
    client.world.feed(Frame::Unanswered(RequestId::from("discover-1"), Unanswered::Lost("HTTP 502".into())));
    let Some(Turn::Lost(LinkEnd::Failed(error))) = client.run() else { panic!("there is no server") };
    assert_eq!(error.to_string(), "HTTP 502");
    let mut driver = client.driver.take().expect("it was there").into_inner().0;
    driver.detach("HTTP 502".to_owned(), String::new(), false);
    assert!(matches!(end(&mut waits), Some(Err(CallError::NeverSent { .. }))));
}

#[test]
fn a_call_with_input_asks_and_goes_out_again_whatever_the_transport() {
    for transport in [Transport::Stdio, Transport::Http] {
        let mut config = config();
        config.calls.transport = transport;
        config.capabilities = r#"{"roots":{}}"#.into();
        let mut client = Client::new(config);
        let caller = client.caller.clone();
        let answers = async |asked: InputAsked| {
            assert_eq!((&*asked.key, asked.params.get()), ("where", "{}"));
            Some(r#"{"roots":[]}"#.to_owned())
        };
        let mut asked = Box::pin(caller.call_with_input(call(), answers));
        assert!(now(asked.as_mut()).is_none());
        assert_eq!(client.heard(), ["1 tools/call"]);
        let demand = serde_json::json!({"jsonrpc": "2.0", "id": 1, "result": {
            "resultType": "input_required", "inputRequests": {"where": {"method": "roots/list"}}, "requestState": "s"}});
        client.say(&demand);
        assert!(now(asked.as_mut()).is_none());
        client.run();
        let line = client.world.lines().concat();
        assert!(line.contains(r#""inputResponses":{"where":{"roots":[]}},"requestState":"s""#), "{line}");
        assert!(line.contains(r#""id":2,"#), "{line}");
        client.say(&answer(2));
        assert!(matches!(now(asked.as_mut()), Some(Ok(_))), "{transport:?}");
    }
}

#[test]
fn closings_by_the_hundred_keep_nothing_behind_them_waiting() {
    let mut client = Client::new(streams());
    let many: Vec<_> = (0..700).map(|_| client.caller.call(call())).collect();
    assert_eq!(client.heard().len(), 700);
    drop(many);
    let _after_them = client.caller.call(call());
    assert_eq!(client.heard(), ["701 tools/call"]);
    assert_eq!(client.closed().len(), 700);
}

/// A demand for input of an older server, which waits for the answer: see the adapter of those revisions.
fn parked(id: u64) -> serde_json::Value {
    serde_json::json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "input_required",
        "inputRequests": {"where": {"method": "roots/list"}}, "requestState": "mcp-steady-session:1:7"}})
}

#[test]
fn a_server_that_waits_for_input_hears_of_it_if_the_answer_does_not_leave() {
    let abandoned = |client: &Client| std::mem::take(&mut client.world.lock().abandoned);
    let config = || ClientConfig { capabilities: r#"{"roots":{}}"#.into(), max_request: 1000, ..config() };
    // It is too long.
    let mut client = Client::new(config());
    let caller = client.caller.clone();
    let long = async |_| Some(format!(r#"{{"roots":[],"x":"{}"}}"#, "x".repeat(1000)));
    let mut asked = Box::pin(caller.call_with_input(call(), long));
    assert!(now(asked.as_mut()).is_none());
    assert_eq!(client.heard(), ["1 tools/call"]);
    client.say(&parked(1));
    assert!(matches!(now(asked.as_mut()), Some(Err(CallError::RequestTooLong { .. }))));
    client.run();
    assert_eq!(abandoned(&client), [RequestId::Integer(1)]);
    // The application gives up while it waits for the link.
    let mut client = Client::new(config());
    let caller = client.caller.clone();
    let short = async |_| Some(r#"{"roots":[]}"#.to_owned());
    let mut asked = Box::pin(caller.call_with_input(call(), short));
    assert!(now(asked.as_mut()).is_none());
    client.run();
    client.say(&parked(1));
    client.world.allow(Some(0));
    let _stuck = client.caller.call(call());
    client.run();
    assert!(now(asked.as_mut()).is_none());
    drop(asked);
    client.world.allow(None);
    assert_eq!(client.heard(), ["1 tools/call", "2 tools/call"]);
    assert_eq!(abandoned(&client), [RequestId::Integer(1)]);
    // One that went on is not given up.
    let mut asked = Box::pin(caller.call_with_input(call(), short));
    assert!(now(asked.as_mut()).is_none());
    assert_eq!(client.heard(), ["4 tools/call"]);
    client.say(&parked(4));
    assert!(now(asked.as_mut()).is_none());
    assert_eq!(client.heard(), ["5 tools/call"]);
    client.say(&answer(5));
    assert!(matches!(now(asked.as_mut()), Some(Ok(_))));
    drop(asked);
    client.run();
    assert_eq!(abandoned(&client), []);
}
