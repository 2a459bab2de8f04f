//! A session as the kernel holds it: its machine, what its client said, and what waits for its client.

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::task::{Context, Poll, Waker, ready};

use serde_json::value::RawValue;

use super::bridge::{Bridge, Way};
use super::reader::Reader;
use crate::id::RequestId;
use crate::kernel::engine::Engine;
use crate::kernel::exchange::Request;
use crate::kernel::foreign::Foreign;
use crate::kernel::hub::{Change, Subscription, Update};
use crate::kernel::service::{Answer, Service};
use crate::kernel::sync::Mutex;
use crate::legacy::request::{self, Level};
use crate::legacy::{Asked, Effect, Event, Handshake, Outstanding, Refusal, Revision, Session};
use crate::rpc::{self, Body, MetaError, Params, RpcError, checked_meta, code, encode, members, text};
use crate::subscription::Refetch;
use crate::time::Instant;

/// One session of a client of the older revisions.
#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    machine: Session,
    handshake: Option<StdArc<Handshake>>,
    level: Option<Level>,
    outstanding: Outstanding<StdArc<Question>>,
    /// What the service says of changes.
    offers: Offers,
    /// What the service's own listen would hear, from the first need on: a client that reads no stream and watches nothing
    /// costs its hub nothing. It stays when the stream ends, so that the next one tells what changed meanwhile.
    changes: Option<StdArc<Subscription>>,
    /// The client has read a list while nothing was heard of changes.
    read: bool,
    /// Lists that may have changed since they were read.
    untold: Vec<&'static str>,
}

/// Of what a service says that it changes.
#[derive(Clone, Debug, Default)]
struct Offers {
    /// The notifications of lists that do.
    lists: Vec<&'static str>,
    /// Whether it lets single resources be watched.
    watches: bool,
}

impl Offers {
    /// What a service that describes itself so offers.
    fn of(discovered: &str) -> Self {
        const KINDS: [&str; 3] = ["tools", "prompts", "resources"];
        const TOLD: [&str; 3] = [
            "notifications/tools/list_changed",
            "notifications/prompts/list_changed",
            "notifications/resources/list_changed",
        ];
        let all = members(discovered, &["capabilities"]).and_then(|[all]| members(all?, &KINDS)).unwrap_or_default();
        let says = |kind: Option<&str>, what| members(kind?, &[what]).map(|[said]| said == Some("true"));
        let lists = all.into_iter().zip(TOLD).filter(|(kind, _)| says(*kind, "listChanged").unwrap_or_default());
        let watches = says(all[2], "subscribe").unwrap_or_default();
        Self { lists: lists.map(|(_, told)| told).collect(), watches }
    }

    fn is_empty(&self) -> bool {
        self.lists.is_empty() && !self.watches
    }
}

/// A request of the server that its client has not answered.
#[derive(Debug, Default)]
pub(super) struct Question {
    state: Mutex<(Option<Given>, Option<Waker>)>,
}

/// What a client answered: a result, or an error.
pub(super) type Given = Result<Box<str>, RpcError>;

impl Question {
    fn settle(&self, given: Given) {
        let mut state = self.state.lock();
        state.0.get_or_insert(given);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn poll(&self, cx: &Context<'_>) -> Poll<Given> {
        let mut state = self.state.lock();
        match state.0.take() {
            Some(given) => Poll::Ready(given),
            None => {
                state.1 = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A request as it came.
pub(super) struct Came<'a> {
    pub(super) id: RequestId,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawValue>,
    /// The `Idempotency-Key` header.
    pub(super) key_header: Option<Box<str>>,
    /// Who reads what it says, where it has a stream of its own.
    pub(super) reader: Option<StdArc<Reader>>,
}

impl Shared {
    pub(super) fn revision(&self) -> Option<Revision> {
        self.state.lock().machine.revision()
    }

    /// What the machine says to an event that needs nothing else.
    pub(super) fn handle(&self, event: Event) -> Effect {
        self.state.lock().machine.handle(event)
    }

    /// Registers a question; `None` if too many wait.
    pub(super) fn ask(&self) -> Option<(u64, StdArc<Question>)> {
        let question = StdArc::new(Question::default());
        let id = self.state.lock().outstanding.ask(StdArc::clone(&question))?;
        Some((id, question))
    }

    /// Nobody waits for the answer any more.
    pub(super) fn forget(&self, id: u64) {
        let _answered_or_not = self.state.lock().outstanding.settle(id);
    }

    /// The client answered; whether anybody waited for it.
    pub(super) fn answered(&self, id: &RequestId, body: Body<'_>) -> bool {
        let RequestId::Integer(id) = id else { return false };
        let Ok(id) = u64::try_from(*id) else { return false };
        let Some(question) = self.state.lock().outstanding.settle(id) else { return false };
        question.settle(match body {
            Body::Result(result) => Ok(result.get().into()),
            Body::Error(error) => Err(read_error(error)),
        });
        true
    }

    /// The session ends: whoever waits for its client hears it.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        let _nothing = state.machine.handle(Event::Close);
        let changes = state.changes.take();
        let waiting: Vec<_> = state.outstanding.settle_all().collect();
        drop(state);
        drop(changes);
        for question in waiting {
            question.settle(Err(RpcError::internal("the session ended before the client answered")));
        }
    }

    /// A request of this session, or its handshake. What belongs to no session is handed back.
    pub(super) fn request<S: Service>(
        self: &StdArc<Self>,
        engine: &mut Engine<S>,
        now: Instant,
        came: Came<'_>,
    ) -> Result<(), Refusal> {
        let asked = Asked::of(came.method);
        if asked == Asked::Initialize {
            self.initialize(engine, now, came);
            return Ok(());
        }
        match self.handle(Event::Request(asked)) {
            Effect::Serve => self.serve(engine, now, asked, came),
            Effect::Refuse(refusal @ Refusal::NotInitialized) => return Err(refusal),
            Effect::Refuse(refusal) => engine.refuse_request(&came.id, &error_of(refusal, came.method)),
            Effect::Nothing
            | Effect::Begin(_)
            | Effect::Ready
            | Effect::Unpack
            | Effect::Announce
            | Effect::KeepBack => {}
        }
        Ok(())
    }

    /// The handshake. Its answer is made of what the service says of itself to `server/discover`.
    fn initialize<S: Service>(self: &StdArc<Self>, engine: &mut Engine<S>, now: Instant, came: Came<'_>) {
        let handshake = match Handshake::read(came.params.map(RawValue::get)) {
            Ok(handshake) => StdArc::new(handshake),
            Err(error) => return engine.refuse_request(&came.id, &error),
        };
        let mut state = self.state.lock();
        match state.machine.handle(Event::Initialize(handshake.revision)) {
            Effect::Begin(_) => {
                state.handshake = Some(StdArc::clone(&handshake));
                state.level = None;
                state.offers = Offers::default();
                state.changes = None;
                state.read = false;
                state.untold.clear();
            }
            Effect::Refuse(refusal) => {
                drop(state);
                return engine.refuse_request(&came.id, &error_of(refusal, came.method));
            }
            Effect::Nothing | Effect::Ready | Effect::Serve | Effect::Unpack | Effect::Announce | Effect::KeepBack => {
                return;
            }
        }
        drop(state);
        // A client of a link reads all of it from now on; one with many streams may open none for changes.
        let is_read = came.reader.is_none();
        let discover = Came { method: rpc::method::DISCOVER, params: None, ..came };
        self.admit(engine, now, &handshake, None, discover, |bridge, call, cx| {
            let context = cx.clone();
            bridge.call_once(call, cx, move |bridge, outcome| {
                let discovered = outcome?;
                bridge.session().state.lock().offers = Offers::of(&discovered);
                if is_read {
                    // One that is full refuses what asks for more.
                    let _in_vain = bridge.session().hear(|| bridge.listen(&context));
                }
                bridge.handshake().result(&discovered)
            })
        });
    }

    fn serve<S: Service>(self: &StdArc<Self>, engine: &mut Engine<S>, now: Instant, asked: Asked, came: Came<'_>) {
        let state = self.state.lock();
        let (handshake, level) = (state.handshake.clone(), state.level);
        drop(state);
        let handshake = handshake.unwrap_or_else(|| StdArc::new(Handshake::none()));
        let done = || Answer::Ready(Ok("{}".into()));
        match asked {
            Asked::Ping => self.admit(engine, now, &handshake, None, came, move |_, _, _| done()),
            Asked::Level => match level_of(came.params) {
                Ok(level) => {
                    self.state.lock().level = Some(level);
                    self.admit(engine, now, &handshake, None, came, move |_, _, _| done());
                }
                Err(error) => engine.refuse_request(&came.id, &error),
            },
            Asked::Shared => {
                self.reads(came.method);
                self.admit(engine, now, &handshake, level, came, |bridge, call, cx| bridge.serve(call, cx));
            }
            Asked::Subscribe | Asked::Unsubscribe => {
                let uri = members(came.params.map_or("{}", RawValue::get), &["uri"]).and_then(|[uri]| text(uri?));
                let watched = uri.map(|uri| Refetch::Resource { uri: uri.into() });
                let name: Box<str> = came.method.into();
                self.admit(engine, now, &handshake, None, came, move |bridge, _, cx| {
                    match bridge.session().watch(asked, &name, watched, || bridge.listen(&cx)) {
                        Ok(()) => done(),
                        Err(error) => Answer::Ready(Err(error)),
                    }
                });
            }
            Asked::Initialize | Asked::Modern => {
                engine.refuse_request(&came.id, &RpcError::method_not_found(came.method));
            }
        }
    }

    /// Subscribes to what the service changes, if it does and that was not done; the error of a hub that is full.
    fn hear(
        &self,
        listen: impl FnOnce() -> Result<Option<Subscription>, RpcError>,
    ) -> Result<Option<StdArc<Subscription>>, RpcError> {
        if !self.needs_changes() {
            return Ok(self.state.lock().changes.clone());
        }
        let Some(changes) = listen()? else { return Ok(None) };
        let mut state = self.state.lock();
        if state.changes.is_none() && !state.machine.is_closed() {
            state.changes = Some(StdArc::new(changes));
            state.untold = if state.read { state.offers.lists.clone() } else { Vec::new() };
        }
        Ok(state.changes.clone())
    }

    /// Whether there are changes that nobody listens for.
    pub(super) fn needs_changes(&self) -> bool {
        let state = self.state.lock();
        state.changes.is_none() && !state.offers.is_empty()
    }

    /// The stream that tells the client of changes opens: subscribes, by a request of the session's own.
    pub(super) fn opens<S: Service>(self: &StdArc<Self>, engine: &mut Engine<S>, now: Instant) {
        let Some(handshake) = self.state.lock().handshake.clone() else { return };
        let method = rpc::method::LISTEN;
        let came = Came { id: "stream".into(), method, params: None, key_header: None, reader: None };
        self.admit(engine, now, &handshake, None, came, |bridge, _, cx| {
            let heard = bridge.session().hear(|| bridge.listen(&cx));
            Answer::Ready(heard.map(|_| "{}".into()))
        });
    }

    /// The client reads something. What changes of it before it can be told is not forgotten.
    fn reads(&self, method: &str) {
        if method.ends_with("/list") {
            let mut state = self.state.lock();
            state.read |= state.changes.is_none();
        }
    }

    /// Watches a resource, or does not any more.
    fn watch(
        &self,
        asked: Asked,
        name: &str,
        watched: Option<Refetch>,
        listen: impl FnOnce() -> Result<Option<Subscription>, RpcError>,
    ) -> Result<(), RpcError> {
        let not_found = || RpcError::method_not_found(name);
        if !self.state.lock().offers.watches {
            return Err(not_found());
        }
        let no_uri = || RpcError::invalid_params("params.uri must be a string, the URI of a resource");
        let watched = watched.ok_or_else(no_uri)?;
        if asked == Asked::Unsubscribe {
            if let Some(changes) = &self.state.lock().changes {
                changes.unwatch(watched);
            }
            return Ok(());
        }
        let changes = self.hear(listen)?.ok_or_else(not_found)?;
        Ok(changes.watch(watched)?)
    }

    /// Whether there is anything to poll for changes.
    pub(super) fn has_changes(&self) -> bool {
        self.state.lock().changes.is_some()
    }

    /// Appends the notification of the next change, without the stamp of a modern subscription.
    pub(super) fn poll_change(&self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<()> {
        loop {
            let mut state = self.state.lock();
            let Some(changes) = state.changes.clone() else { return Poll::Pending };
            if state.machine.handle(Event::Change) != Effect::Announce {
                return Poll::Pending;
            }
            if let Some(list) = state.untold.pop() {
                encode::notification(out, list, "{}");
                return Poll::Ready(());
            }
            drop(state);
            match ready!(changes.poll_next(cx)) {
                Update::Acknowledged => {}
                Update::Changed(change) => {
                    announce(&change, out);
                    return Poll::Ready(());
                }
                Update::Ended(_) => {
                    let mut state = self.state.lock();
                    // A handshake that came in between has one of its own.
                    if state.changes.as_ref().is_some_and(|now| StdArc::ptr_eq(now, &changes)) {
                        state.changes = None;
                    }
                }
            }
        }
    }

    /// Admits a request of this session as one of the modern revision.
    fn admit<S: Service>(
        self: &StdArc<Self>,
        engine: &mut Engine<S>,
        now: Instant,
        handshake: &StdArc<Handshake>,
        level: Option<Level>,
        came: Came<'_>,
        serve: impl FnOnce(Bridge<S>, crate::kernel::Call, crate::kernel::Context) -> Answer,
    ) {
        let Came { id, method, params, key_header, reader } = came;
        let modern = request::params(handshake, level, params.map(RawValue::get))
            .and_then(|modern| RawValue::from_string(modern).ok());
        let Some(modern) = modern else {
            let what = "params must be an object, and so must params._meta, each at most once";
            return engine.refuse_request(&id, &RpcError::invalid_params(what));
        };
        let Ok(read) = Params::read(modern.get()) else {
            return engine.refuse_request(&id, &RpcError::invalid_params("params are nested too deep"));
        };
        let meta = match checked_meta(method, Some(&modern), &read) {
            Ok(meta) => meta,
            Err(error) => return engine.refuse_request(&id, &error.into()),
        };
        let (session, handshake) = (StdArc::clone(self), StdArc::clone(handshake));
        let (spawn, timer) = (StdArc::clone(&engine.ports.spawn), StdArc::clone(&engine.ports.timer));
        let way = Way { spawn, timer, reader };
        let request = Request { id, method: method.into(), params: Some(&modern), meta, read, key_header };
        engine.admit_to(now, request, |service, call, cx| {
            serve(Bridge::new(StdArc::clone(service), session, handshake, way), call, cx)
        });
    }
}

/// What a session that refuses answers.
pub(super) fn error_of(refusal: Refusal, method: &str) -> RpcError {
    match refusal {
        Refusal::NotInRevision => RpcError::method_not_found(method),
        Refusal::NotInitialized | Refusal::Ended | Refusal::NoBatches => {
            RpcError::new(code::INVALID_REQUEST, refusal.to_string())
        }
    }
}

/// Whether the modern revision has the word on what came: it names a revision, and not by a handshake.
pub(super) fn is_modern(foreign: &Foreign<'_>) -> bool {
    match foreign {
        Foreign::Request { error: MetaError::Version(_), method, .. } => method != rpc::method::INITIALIZE,
        Foreign::Request { .. } | Foreign::Notification { .. } | Foreign::Response { .. } | Foreign::Bad(_) => false,
    }
}

fn announce(change: &Change, out: &mut Vec<u8>) {
    let mut params = b"{".to_vec();
    if let Refetch::Resource { uri } = &change.refetch {
        params.extend_from_slice(b"\"uri\":");
        encode::string(&mut params, uri);
    }
    params.push(b'}');
    encode::notification(out, change.method, core::str::from_utf8(&params).unwrap_or("{}"));
}

fn level_of(params: Option<&RawValue>) -> Result<Level, RpcError> {
    let level = members(params.map_or("{}", RawValue::get), &["level"]).and_then(|[level]| text(level?));
    level
        .and_then(|name| Level::of(&name))
        .ok_or_else(|| RpcError::invalid_params("params.level must be one of the levels from debug to emergency"))
}

/// Reads an error object of a peer.
pub(super) fn read_error(error: &RawValue) -> RpcError {
    let [number, message] = members(error.get(), &["code", "message"]).unwrap_or_default();
    let number = number.and_then(|json| json.parse().ok()).unwrap_or(code::INTERNAL_ERROR);
    let message = message.and_then(text);
    RpcError::new(number, message.as_deref().unwrap_or("the error has no text"))
}
