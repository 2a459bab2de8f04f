//! A request of a session that begins while the session ends, or while it is cancelled: its handler is not left waiting.

use std::sync::Arc as Shared;

use serde_json::value::RawValue;
use steady_core::kernel::{
    Answer, BoxFuture, Call, Context as Request, LegacyExchange, LegacyRequest, LegacySession, NotBegun, Service,
};
use steady_core::time::Instant;

use super::ports::{Once, Still, Then, config};
use super::shim::{ALL, block_on, models, spawn};

models! {
    a_session_that_ends_while_a_request_begins_cancels_it: ALL, kills ["seat-forgets-its-reason"];
    a_cancellation_while_a_request_begins_is_carried_out_or_unknown: ALL, kills ["seat-forgets-its-reason"];
}

const INITIALIZE: &str = r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#;
const DISCOVERED: &str =
    r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"public"}"#;

/// Says what it is, and serves one request, which waits for its cancellation.
struct Waits(Shared<Once>);

impl Service for Waits {
    fn call(&self, call: Call, cx: Request) -> Answer {
        match &*call.method {
            "server/discover" => Answer::Ready(Ok(DISCOVERED.to_owned())),
            _ => self.0.call(call, cx),
        }
    }
}

struct Begins {
    still: Still,
    session: Shared<LegacySession>,
    service: Shared<Waits>,
}

impl Begins {
    /// A session after its handshake.
    fn new() -> Self {
        let service = Shared::new(Waits(Once::new(Then::WaitsForItsCancellation)));
        let opened = Self { still: Still::default(), session: Shared::default(), service };
        drop(opened.begin("initialize", INITIALIZE).expect("a handshake"));
        // What it says is read by nobody.
        drop(opened.still.began());
        opened
    }

    fn begin(&self, method: &str, params: &str) -> Result<LegacyExchange<Waits>, NotBegun> {
        let params: &RawValue = serde_json::from_str(params).expect("JSON");
        let request = LegacyRequest { id: 1.into(), method, params: Some(params), key_header: None };
        LegacyExchange::start(&self.session, &self.service, (&self.still.ports(), &config()), vec![request], ())
    }

    /// The request, beside what `other` does to its session.
    fn beside<T: Send + 'static>(
        &self,
        other: impl FnOnce(&LegacySession) -> T + Send + 'static,
    ) -> (T, Option<Begun>) {
        let session = Shared::clone(&self.session);
        let done = spawn(move || other(&session));
        let begun = self.begin("tools/list", "{}").ok();
        let done = done.join().expect("no panic");
        (done, begun.map(|exchange| Begun { exchange, handler: self.still.began() }))
    }

    /// The handler hears of its cancellation, or this model never ends.
    fn ends(&self, begun: Begun) {
        if let Some(handler) = begun.handler {
            block_on(handler);
        }
        drop(begun.exchange);
        drop(self.still.began());
    }
}

/// A request that was begun, and its handler if it is not over.
struct Begun {
    exchange: LegacyExchange<Waits>,
    handler: Option<BoxFuture<()>>,
}

fn a_session_that_ends_while_a_request_begins_cancels_it() {
    let begins = Begins::new();
    let ((), begun) = begins.beside(|session| session.close(Instant::ZERO));
    if let Some(begun) = begun {
        begins.ends(begun);
    }
    let after = begins.begin("tools/list", "{}").err();
    assert_eq!(after, Some(NotBegun::Ended), "nothing is begun after its end");
}

fn a_cancellation_while_a_request_begins_is_carried_out_or_unknown() {
    let begins = Begins::new();
    let (heard, begun) = begins.beside(|session| {
        let params: &RawValue = serde_json::from_str(r#"{"requestId":1}"#).expect("JSON");
        session.notified(Instant::ZERO, "notifications/cancelled", Some(params))
    });
    let begun = begun.expect("the session lives");
    if !heard {
        // It came before there was anything to cancel.
        begins.session.close(Instant::ZERO);
    }
    begins.ends(begun);
}
