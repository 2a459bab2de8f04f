//! Sessions of the older revisions over HTTP: many exchanges, and what ends their requests from beside them.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use steady_core::kernel::{Answer, LegacyExchange, LegacyRequest, LegacySession, NotBegun, ServerConfig};
use steady_core::mrtr::Retry;
use steady_core::rpc::{Message, parse};
use steady_core::time::Instant;

use super::support::World;
use super::{Fun, Log, ms};

const DISCOVERED: &str = r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}"#;

/// A server of sessions, and the one session of the test, which handlers may use.
struct Sessions {
    world: World,
    service: Arc<Fun>,
    session: Arc<LegacySession>,
}

type Exchange = LegacyExchange<Fun>;

fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("a value")
}

fn asked<'a>(id: i64, method: &'a str, params: &'a RawValue) -> LegacyRequest<'a> {
    LegacyRequest { id: id.into(), method, params: Some(params), key_header: None }
}

impl Sessions {
    /// A session after its handshake.
    fn open(
        capabilities: &Value,
        call: impl Fn(&Arc<LegacySession>, steady_core::kernel::Call, steady_core::kernel::Context) -> Answer
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let session = Arc::new(LegacySession::new());
        let of_handlers = Arc::clone(&session);
        let service = Fun::new(move |asked, cx| match &*asked.method {
            "server/discover" => Answer::Ready(Ok(DISCOVERED.into())),
            _ => call(&of_handlers, asked, cx),
        });
        let opened = Self { world: World::default(), service: Arc::new(service), session };
        let params = raw(&json!({"protocolVersion":"2025-11-25","capabilities":capabilities}));
        let mut handshake = opened.post([asked(0, "initialize", &params)]);
        assert!(opened.said(&mut handshake).contains("2025-11-25"));
        assert!(!opened.session.notified(ms(0), "notifications/initialized", None));
        opened
    }

    fn post<'a>(&self, requests: impl IntoIterator<Item = LegacyRequest<'a>>) -> Exchange {
        self.try_post(requests).expect("it is begun")
    }

    fn try_post<'a>(&self, requests: impl IntoIterator<Item = LegacyRequest<'a>>) -> Result<Exchange, NotBegun> {
        self.post_keeping(requests, ())
    }

    fn post_keeping<'a>(
        &self,
        requests: impl IntoIterator<Item = LegacyRequest<'a>>,
        kept: impl Send + 'static,
    ) -> Result<Exchange, NotBegun> {
        let (ports, config) = (self.world.ports(), ServerConfig::default());
        LegacyExchange::start(&self.session, &self.service, (&ports, &config), requests.into_iter().collect(), kept)
    }

    /// The client answers the first question that it was asked.
    fn answers(&self) -> bool {
        let answer = parse(r#"{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}"#);
        let Ok(Message::Response { id: Some(id), body }) = answer else { panic!("{answer:?}") };
        let waited_for = self.session.answered(&id, body);
        while self.world.run_tasks() {}
        waited_for
    }

    fn advance(&self, to: Instant) {
        self.world.advance(to);
        while self.world.run_tasks() {}
    }

    /// What it says until it waits or is over.
    fn said(&self, exchange: &mut Exchange) -> String {
        let mut out = Vec::new();
        let mut cx = Context::from_waker(Waker::noop());
        loop {
            while self.world.run_tasks() {}
            match exchange.poll_message(&mut cx, &mut out) {
                Poll::Ready(Some(false)) => {}
                Poll::Ready(Some(true) | None) | Poll::Pending => break,
            }
        }
        String::from_utf8(out).expect("UTF-8")
    }

    fn cancel(&self, id: i64) -> bool {
        self.session.notified(ms(0), "notifications/cancelled", Some(&raw(&json!({"requestId":id}))))
    }
}

/// A handler that notes why it was cancelled, and does `first` in its first poll.
fn waits(log: &Log, cx: steady_core::kernel::Context, first: impl FnOnce() + Send + 'static) -> Answer {
    let log = log.clone();
    Answer::later(async move {
        first();
        log.note("began");
        let cancelled = cx.cancelled().await;
        log.note(format!("{:?}", cancelled.reason));
        Err(cancelled.into())
    })
}

#[test]
fn a_session_that_ends_in_the_first_poll_of_a_handler_cancels_it() {
    let log = Log::default();
    let noted = log.clone();
    let sessions = Sessions::open(&json!({}), move |session, _, cx| {
        let session = Arc::clone(session);
        waits(&noted, cx, move || session.close(ms(0)))
    });
    let params = raw(&json!({}));
    let mut exchange = sessions.post([asked(1, "tools/list", &params)]);
    assert_eq!(sessions.said(&mut exchange), "");
    assert_eq!(log.take(), ["began", "Disconnected"]);
}

#[test]
fn a_cancellation_that_comes_in_the_first_poll_of_a_handler_cancels_it() {
    let log = Log::default();
    let noted = log.clone();
    let sessions = Sessions::open(&json!({}), move |session, _, cx| {
        let (session, log) = (Arc::clone(session), noted.clone());
        waits(&noted, cx, move || {
            let cancelled = Some(raw(&json!({"requestId":1,"reason":"at once"})));
            let heard = session.notified(ms(0), "notifications/cancelled", cancelled.as_deref());
            log.note(format!("heard: {heard}"));
        })
    });
    let params = raw(&json!({}));
    let mut exchange = sessions.post([asked(1, "tools/list", &params)]);
    assert_eq!(sessions.said(&mut exchange), "", "rule C3");
    assert_eq!(log.take(), ["heard: true", "began", "Cancelled(Some(\"at once\"))"]);
}

#[test]
fn of_two_requests_with_one_id_one_is_begun() {
    let log = Log::default();
    let noted = log.clone();
    let sessions = Sessions::open(&json!({}), move |_, _, cx| waits(&noted, cx, || ()));
    let params = raw(&json!({}));
    let first = sessions.post([asked(1, "tools/list", &params)]);
    for more in [&[1][..], &[2, 1], &[3, 3]] {
        let requests = more.iter().map(|id| asked(*id, "tools/list", &params));
        let refused = sessions.try_post(requests).err();
        assert_eq!(refused, Some(NotBegun::Duplicate((*more.last().expect("one")).into())), "rule C10");
    }
    assert_eq!(log.take(), ["began"], "none of a POST that is refused is begun");
    assert!(sessions.cancel(1) && !sessions.cancel(1) && !sessions.cancel(2));
    let _again = sessions.post([asked(1, "tools/list", &params)]);
    drop(first);
    while sessions.world.run_tasks() {}
    assert_eq!(log.take(), ["began", "Cancelled(None)"]);
    assert!(sessions.cancel(1), "the end of the first takes nothing from the second");
}

#[test]
fn a_session_that_has_ended_begins_nothing() {
    let sessions = Sessions::open(&json!({}), |_, _, _| panic!("no handler is reached"));
    sessions.session.close(ms(0));
    let params = raw(&json!({}));
    assert_eq!(sessions.try_post([asked(1, "tools/list", &params)]).err(), Some(NotBegun::Ended));
}

/// A session whose handler asks for the roots at this time, and notes each of its calls.
fn asks_at(log: &Log, at: Instant) -> Sessions {
    let log = log.clone();
    Sessions::open(&json!({"roots":{}}), move |_, call, cx| {
        if !Retry::read(&call.params).expect("well-formed").is_first() {
            log.note("answered");
            return Answer::Ready(Ok(r#"{"content":[]}"#.into()));
        }
        log.note("began");
        Answer::later(async move {
            cx.sleep_until(at).await?;
            Ok(r#"{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}}}"#.into())
        })
    })
}

#[test]
fn a_client_that_hung_up_is_not_asked() {
    let log = Log::default();
    let sessions = asks_at(&log, ms(1000));
    let (place, params) = (Arc::new(()), raw(&json!({"name":"t"})));
    let mut exchange =
        sessions.post_keeping([asked(1, "tools/call", &params)], Arc::clone(&place)).expect("it is begun");
    assert_eq!(sessions.said(&mut exchange), "");
    drop(exchange);
    sessions.advance(ms(999));
    assert_eq!(Arc::strong_count(&place), 2, "a hang-up cancels nothing");
    sessions.advance(ms(1000));
    assert_eq!(
        (Arc::strong_count(&place), log.take()),
        (1, vec!["began".to_owned()]),
        "nobody is there who could answer"
    );
    assert!(!sessions.answers() && !sessions.cancel(1));
}

#[test]
fn a_question_that_is_out_when_its_client_hangs_up_waits_for_a_minute() {
    for answered in [true, false] {
        let log = Log::default();
        let sessions = asks_at(&log, ms(0));
        let (place, params) = (Arc::new(()), raw(&json!({"name":"t"})));
        let exchange = sessions.post_keeping([asked(1, "tools/call", &params)], Arc::clone(&place));
        let mut exchange = exchange.expect("it is begun");
        assert!(sessions.said(&mut exchange).contains("roots/list"));
        sessions.advance(ms(3_600_000 / 2));
        drop(exchange);
        while sessions.world.run_tasks() {}
        sessions.advance(ms(3_600_000 / 2 + 59_999));
        assert_eq!(Arc::strong_count(&place), 2, "its client can answer on another connection");
        if answered {
            assert!(sessions.answers());
            assert_eq!(log.take(), ["began", "answered"]);
        } else {
            sessions.advance(ms(3_600_000 / 2 + 60_000));
            assert_eq!(log.take(), ["began"]);
        }
        assert_eq!(Arc::strong_count(&place), 1);
    }
}
