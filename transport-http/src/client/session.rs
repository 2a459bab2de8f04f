//! A session with a server of an older revision: its handshake, its id, what is said in it beside the calls, its end.
//!
//! ```text
//!   initialize ──► its answer: id, revision ──► notifications/initialized ──► calls ──► DELETE
//!        ▲                                                                      │
//!        └──── 404, and so for a ping: forgotten. One handshake, whoever noticed ──┘
//! ```
//!
//! A request that was answered 404 never ran, and the client's machine decides what becomes of it. One whose stream broke may
//! have run: a new session changes nothing about that.
//!
//! A 404 that does not speak of sessions may be that of one method, or of something between here and the server. So it begins
//! no new session before a ping in this one is answered in the same way; one that did not say why is deleted, as it may live.

pub(super) mod aside;
mod asked;

pub(super) use asked::Asked;
use asked::Word;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use steady_core::id::RequestId;
use steady_core::kernel::Unanswered;
use steady_core::legacy::{Revision, method as legacy};
use steady_core::rpc::{self, Body, Message, encode, members, method, text};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::task::JoinSet;

use super::answer::{Answer, Read, Reader};
use super::config::Rejected;
use super::endpoint::Endpoint;
use super::exchange::{LINES, PROTOCOL};
use super::link::{Item, Sink, What};
use super::pool::{Connection, Full, SendError};
use crate::clock::within;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Notifications and answers on their way at once. A server that takes none of them for so long gets no more of them: a
/// cancellation is a courtesy, and who waits for an answer has a clock.
const BESIDE: usize = 256;
/// The adapter's own requests on the network at once, beside the calls. More wait, each for its time at most.
const OWN: usize = 64;
/// How long each of them may take.
const TELL_TIME: Duration = Duration::from_secs(10);
/// How long the first calls wait for the stream of notifications, so that nothing is said before it is there. Some servers
/// do not answer it until there is something to say.
const STREAM_TIME: Duration = Duration::from_secs(1);
/// How long the end of a session may take.
const END_TIME: Duration = Duration::from_secs(2);

/// Where the one session of a client is, once there is one.
pub(super) type SessionSlot = Arc<OnceLock<Arc<Session>>>;

/// See the module's text.
pub(super) struct Session {
    endpoint: Arc<Endpoint>,
    /// The id of `initialize`, and all of it: it is said again when the server has forgotten the session.
    opening: (RequestId, Bytes),
    now: watch::Sender<Arc<Now>>,
    /// The headers of authorisation that were sent last.
    credential: watch::Sender<HeaderMap>,
    /// Held by who looks whether it is known, and begins it anew; what came of it last.
    looking: tokio::sync::Mutex<Result<Found, Unanswered>>,
    /// How often that was done.
    looks: AtomicU64,
    /// What a handshake that is not over has got from the server.
    half: Mutex<Option<Now>>,
    /// Nobody uses it any more: what is begun now is ended at once.
    over: AtomicBool,
    beside: Mutex<JoinSet<()>>,
    /// Places of the adapter's own requests.
    own: Semaphore,
}

/// What became of a session that was answered 404 in.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// The server knows it.
    Lives,
    /// There is a new one.
    Anew,
    /// Neither: why it is not known.
    Doubt(Box<str>),
}

/// What was agreed on.
#[derive(Clone, Debug, Default)]
pub(super) struct Now {
    /// Which session it is; 0 before the first.
    pub(super) generation: u64,
    /// Its id; none of a server without sessions.
    pub(super) id: Option<HeaderValue>,
    pub(super) version: Option<HeaderValue>,
}

impl Now {
    /// Whether the server can have forgotten it.
    pub(super) const fn has_id(&self) -> bool {
        self.id.is_some()
    }
}

impl Session {
    pub(super) fn new(endpoint: Arc<Endpoint>, id: RequestId, opening: Bytes) -> Self {
        let (now, _) = watch::channel(Arc::default());
        let (credential, _) = watch::channel(HeaderMap::new());
        let (looking, looks) = (tokio::sync::Mutex::new(Ok(Found::Anew)), AtomicU64::new(0));
        let (half, over, beside) = (Mutex::default(), AtomicBool::new(false), Mutex::default());
        let own = Semaphore::new(OWN);
        Self { endpoint, opening: (id, opening), now, credential, looking, looks, half, over, beside, own }
    }

    pub(super) fn now(&self) -> Arc<Now> {
        Arc::clone(&self.now.borrow())
    }

    /// The first handshake. Its answer waits for the stream of notifications, which says so through `first`.
    pub(super) async fn open(self: Arc<Self>, sink: Sink, first: oneshot::Receiver<()>) {
        let end = self.shake().await;
        self.delete_half();
        if self.now().generation > 0 {
            let _there_or_not = within(&self.endpoint.config.clock, STREAM_TIME, first).await;
        }
        // Without its link nobody waits for it.
        let _nobody_waits = sink.of(&self.now()).send(Item::Of(self.opening.0.clone(), What::End(end))).await;
    }

    /// One handshake: the answer to `initialize`. Only one that the server agreed to changes anything.
    async fn shake(&self) -> Result<String, Unanswered> {
        let (id, opening) = &self.opening;
        let before = self.now();
        let none = Now::default();
        let (response, connection) = self.send(Method::POST, Some(opening), &none, false).await?;
        let session = response.headers().get(SESSION).cloned();
        *self.half() = Some(Now { id: session.clone(), ..Now::default() });
        let answer = self.read(id, method::INITIALIZE, response, connection).await;
        let Answer { text, .. } = answer?;
        let Some(revision) = revision(&text) else { return Ok(text) };
        let now = Now {
            generation: before.generation + 1,
            id: session,
            version: Some(HeaderValue::from_static(revision.name())),
        };
        let mut initialized = Vec::new();
        encode::notification(&mut initialized, legacy::INITIALIZED, "{}");
        let (response, connection) = self.send(Method::POST, Some(&initialized.into()), &now, false).await?;
        self.endpoint.pool.drain(connection, response.into_body()).await;
        *self.half() = None;
        self.now.send_replace(Arc::new(now));
        Ok(text)
    }

    /// The answer to a request of the session itself.
    async fn read(
        &self,
        id: &RequestId,
        method: &str,
        response: Response<Incoming>,
        connection: Connection,
    ) -> Result<Answer, Unanswered> {
        let config = &self.endpoint.config;
        let reader = Reader {
            id,
            method,
            limit: config.max_answer,
            silence: None,
            clock: &config.clock,
            may_precede: of_a_server,
            sink: None,
        };
        let Read { end, rest } = reader.read(response).await;
        if let Some(body) = rest {
            self.endpoint.pool.drain(connection, body).await;
        }
        end
    }

    /// Something was answered 404 in the session `lost`, with `word` of why: one look, and one handshake, for all who
    /// noticed. Of a new session the link is told once. It goes on if nobody waits for it.
    pub(super) async fn renew(self: &Arc<Self>, lost: &Arc<Now>, word: Word, sink: &Sink) -> Result<Found, Unanswered> {
        let looks = self.looks.load(Ordering::SeqCst);
        let (session, sink, lost) = (Arc::clone(self), sink.clone(), Arc::clone(lost));
        let renewal = tokio::spawn(async move {
            let mut last = session.looking.lock().await;
            if session.now().generation != lost.generation {
                return Ok(Found::Anew);
            }
            if session.over.load(Ordering::SeqCst) {
                return Err(Unanswered::NotSent("the client was closed".into()));
            }
            if session.looks.load(Ordering::SeqCst) != looks {
                return last.clone();
            }
            session.looks.fetch_add(1, Ordering::SeqCst);
            *last = session.look(&lost, word, &sink).await;
            last.clone()
        });
        renewal.await.unwrap_or_else(|_| Err(Unanswered::Lost("the task of the handshake is gone".into())))
    }

    async fn look(self: &Arc<Self>, lost: &Arc<Now>, word: Word, sink: &Sink) -> Result<Found, Unanswered> {
        let config = &self.endpoint.config;
        let limit = config.calls.probe.unwrap_or(TELL_TIME);
        let late = || Unanswered::Lost(format!("no answer within {limit:?}").into());
        let word = match word {
            Word::Forgotten => Word::Forgotten,
            Word::Nothing | Word::Known => {
                match within(&config.clock, limit, self.ping(lost)).await.unwrap_or_else(|| Err(late())) {
                    Ok(Word::Known) => return Ok(Found::Lives),
                    Ok(word) => word,
                    Err(why) => return Ok(Found::Doubt(in_words(&why))),
                }
            }
        };
        let shaken = within(&config.clock, limit, self.shake()).await;
        if self.over.load(Ordering::SeqCst) {
            // Who ended the client may not have waited for so long.
            let _in_time = within(&config.clock, END_TIME, self.leave()).await;
        }
        self.delete_half();
        let answer = shaken.unwrap_or_else(|| Err(late()))?;
        let now = self.now();
        if now.generation == lost.generation {
            return Err(Unanswered::Refused(answer.into()));
        }
        if word == Word::Nothing {
            self.delete(Now::clone(lost));
        }
        // Without its link nobody asks.
        let _nobody_asks = sink.of(&now).send(Item::Begun).await;
        Ok(Found::Anew)
    }

    /// Whether the server knows this session, which a ping in it shows: it has nothing that could be wrong with it.
    async fn ping(&self, now: &Now) -> Result<Word, Unanswered> {
        let id = RequestId::from(&*format!("ping-{}", self.looks.load(Ordering::SeqCst)));
        let mut text = Vec::new();
        encode::request(&mut text, &id, legacy::PING, "{}");
        let (response, connection) = self.send(Method::POST, Some(&text.into()), now, false).await?;
        let status = response.status();
        let end = self.read(&id, legacy::PING, response, connection).await;
        match (Word::of(status, &end), &end) {
            (Word::Known, Ok(answer)) if answer.is_named || status.is_success() || status == StatusCode::NOT_FOUND => {
                Ok(Word::Known)
            }
            (Word::Known, Ok(_) | Err(_)) if status == StatusCode::BAD_REQUEST => Ok(Word::Nothing),
            (Word::Known, _) => Err(end.err().unwrap_or_else(|| Unanswered::Lost(format!("HTTP {status}").into()))),
            (word @ (Word::Forgotten | Word::Nothing), _) => Ok(word),
        }
    }

    /// Deletes what is left of a handshake that did not come to its end.
    fn delete_half(self: &Arc<Self>) {
        let half = self.half().take();
        if let Some(half) = half.filter(Now::has_id) {
            self.delete(half);
        }
    }

    /// Deletes a session beside the one that is spoken in.
    fn delete(self: &Arc<Self>, left: Now) {
        let session = Arc::clone(self);
        self.aside(async move { session.bury(&left).await });
    }

    async fn bury(&self, left: &Now) {
        if let Ok((response, connection)) = self.send(Method::DELETE, None, left, false).await {
            // 405 from a server that wants to decide that itself.
            self.endpoint.pool.drain(connection, response.into_body()).await;
        }
    }

    /// Sends a notification or an answer, whose own end nobody waits for; an answer in the session that has asked.
    pub(super) fn tell(self: &Arc<Self>, text: Bytes, asked_in: Option<Arc<Now>>) {
        let session = Arc::clone(self);
        self.aside(async move {
            let now = asked_in.unwrap_or_else(|| session.now());
            if let Ok((response, connection)) = session.send(Method::POST, Some(&text), &now, false).await {
                session.endpoint.pool.drain(connection, response.into_body()).await;
            }
        });
    }

    /// Has this done within its time, unless too much is under way already. What the server makes of it changes nothing here.
    fn aside(self: &Arc<Self>, told: impl Future<Output = ()> + Send + 'static) {
        let session = Arc::clone(self);
        let mut beside = self.beside();
        while beside.try_join_next().is_some() {}
        if beside.len() < BESIDE {
            beside.spawn(async move {
                let _in_time = within(&session.endpoint.config.clock, TELL_TIME, told).await;
            });
        }
    }

    /// The client is over: what was said last leaves, and the server is told that it may forget the session.
    pub(super) async fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let mut beside = std::mem::take(&mut *self.beside());
        let ended = async {
            while beside.join_next().await.is_some() {}
            // A handshake that is under way would leave a session behind.
            drop(self.looking.lock().await);
            self.leave().await;
        };
        let _in_time = within(&self.endpoint.config.clock, END_TIME, ended).await;
    }

    /// Deletes what there is of a session. Each id is taken once.
    async fn leave(&self) {
        let now = self.now();
        self.now.send_if_modified(|held| {
            *held = Arc::new(Now { id: None, ..Now::clone(held) });
            false
        });
        let half = self.half().take();
        for left in half.iter().chain([&*now]).filter(|left| left.has_id()) {
            self.bury(left).await;
        }
    }

    fn half(&self) -> MutexGuard<'_, Option<Now>> {
        self.half.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beside(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.beside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends one request and waits for the head of its response; after a 401 once more, with fresh headers. `waits`: for a
    /// place among the requests on the network.
    async fn send(
        &self,
        method: Method,
        text: Option<&Bytes>,
        now: &Now,
        waits: bool,
    ) -> Result<(Response<Incoming>, Connection), Unanswered> {
        let (pool, config) = (&self.endpoint.pool, &self.endpoint.config);
        let (mut rejected, mut authorized) = (None, false);
        loop {
            let mut lines = HeaderMap::with_capacity(LINES);
            if let Some(authorize) = &config.authorize {
                lines.extend(authorize.headers(rejected.take()).await.map_err(Unanswered::Refused)?);
                self.credential.send_if_modified(|sent| {
                    let is_new = *sent != lines;
                    sent.clone_from(&lines);
                    is_new
                });
            }
            self.add_lines(&mut lines, &method, now);
            let mut request = http::Request::new(Full(text.cloned()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = self.endpoint.uri.clone();
            *request.headers_mut() = lines;
            let sent = if waits { pool.send(request).await } else { pool.send_beside(request).await };
            let (response, connection) = sent.map_err(|error| match error {
                SendError::NotSent(why) => Unanswered::NotSent(why),
                SendError::Lost(why) => Unanswered::Lost(why),
            })?;
            let renew = response.status() == StatusCode::UNAUTHORIZED && config.authorize.is_some();
            if !renew || std::mem::replace(&mut authorized, true) {
                return Ok((response, connection));
            }
            rejected = Some(Rejected { challenge: response.headers().get(WWW_AUTHENTICATE).cloned() });
            pool.drain(connection, response.into_body()).await;
        }
    }

    fn add_lines(&self, lines: &mut HeaderMap, method: &Method, now: &Now) {
        self.endpoint.add_lines(lines);
        if *method == Method::POST {
            lines.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            lines.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        } else if *method == Method::GET {
            lines.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        }
        let agreed = [(PROTOCOL, &now.version), (SESSION, &now.id)];
        lines.extend(agreed.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))));
    }
}

/// A server of an older revision asks and notifies on any stream. What it answers belongs to one request.
fn of_a_server(_: &Reader<'_>, message: &Message<'_>) -> bool {
    match message {
        Message::Request { .. } | Message::Notification { .. } => true,
        Message::Response { .. } => false,
    }
}

/// Why there is no answer.
fn in_words(end: &Unanswered) -> Box<str> {
    match end {
        Unanswered::NotSent(why) | Unanswered::Lost(why) | Unanswered::Refused(why) | Unanswered::NotSpoken(why) => {
            why.clone()
        }
        Unanswered::TooLong => "its answer is too long".into(),
    }
}

/// What the server agreed to, if that is spoken here.
fn revision(answer: &str) -> Option<Revision> {
    let Ok(Message::Response { body: Body::Result(result), .. }) = rpc::parse(answer) else { return None };
    let [version] = members(result.get(), &["protocolVersion"])?;
    Revision::of(&text(version?)?)
}
