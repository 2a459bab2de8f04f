//! The stream of a session that belongs to no request: notifications, and what the server asks outside of calls.
//!
//! It is opened with the session, and again when it ends, when it is silent for too long or when there is a new session; a
//! server may have none (405). What was missed meanwhile is unknown, which the link is told once it is there again.
//!
//! A server that refuses it with 401 or 403 five times in a row is not asked again before there is another session, or
//! before [`Authorize`](crate::client::Authorize) gives other headers than it was refused with: listeners read what they
//! watch once more then, and hear nothing until there is a stream.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::{Method, StatusCode};
use hyper::body::Incoming;
use steady_core::backoff::Jitter;
use steady_core::id::Attempt;
use steady_core::kernel::BadFrame;
use steady_core::rpc::{self, Message};
use tokio::sync::{oneshot, watch};

use super::super::jitter;
use super::super::link::{Item, Sink};
use super::super::pool::{Connection, next_frame};
use super::asked::Word;
use super::{Found, Now, Session};
use crate::clock::within;
use crate::sse;

/// What a server makes of the wish for such a stream.
enum Opened {
    Stream(Connection, Incoming),
    /// It has none.
    None,
    Forgotten,
    /// Not with this credential.
    Refused,
    /// Later, perhaps.
    Failed,
}

/// How often in a row a server may refuse it before it is believed.
const REFUSALS: u32 = 5;

/// Keeps the stream until it is dropped. `first` is told when the server has answered for the first time.
pub(in crate::client) async fn keep(session: Arc<Session>, sink: Sink, first: oneshot::Sender<()>) {
    let (mut changed, mut credential) = (session.now.subscribe(), session.credential.subscribe());
    let mut aside = Aside::new(sink);
    let mut first = Some(first);
    // The session has the sender.
    while let Ok(now) = changed.wait_for(|now| now.generation > 0).await.map(|now| now.clone()) {
        let opened = unless(&mut changed, open(&session, &now)).await;
        // What it was refused with.
        credential.mark_unchanged();
        // Who waited for it may have gone on without.
        let in_time = first.take().is_none_or(|first| first.send(()).is_ok());
        aside.misses |= !in_time || opened.is_none();
        let Some(opened) = opened else { continue };
        aside.tell_lapse(&now, &opened).await;
        let next = match opened {
            Opened::Stream(connection, body) => {
                aside.opened_in = Some(now.generation);
                let ended = unless(&mut changed, read(body, &session, &aside.sink.of(&now))).await;
                drop(connection);
                aside.misses = true;
                match ended {
                    // Of a session that is over. What is said in the next one must not wait for a pause.
                    None => continue,
                    Some(useful) if useful => aside.failures = Attempt::FIRST,
                    Some(_) => {}
                }
                Next::Later
            }
            // Of a session that is new this says that there is no such stream.
            Opened::Forgotten if aside.opened_in == Some(now.generation) || aside.failed_in == Some(now.generation) => {
                // One that fails may succeed later, whatever it was: nobody else may find out that the session is gone.
                if let Ok(Found::Lives) = session.renew(&now, Word::Nothing, &aside.sink).await {
                    aside.tell_end(&now).await;
                }
                Next::Later
            }
            // It was there, and may be there again.
            Opened::None if aside.opened_in == Some(now.generation) => Next::Later,
            Opened::Forgotten | Opened::None => Next::WithSession,
            Opened::Refused if aside.refusals >= REFUSALS => Next::WithCredential,
            Opened::Refused | Opened::Failed => {
                aside.failed_in = Some(now.generation);
                Next::Later
            }
        };
        match next {
            Next::WithSession => {
                let _gone_with_its_session = changed.changed().await;
                continue;
            }
            Next::WithCredential => {
                if unless(&mut changed, credential.changed()).await.is_none() {
                    continue;
                }
            }
            Next::Later => {}
        }
        let config = &session.endpoint.config;
        let pause = config.calls.calls.backoff.delay(aside.failures, &mut aside.jitter);
        aside.failures = aside.failures.next();
        let _session_or_time = within(&config.clock, pause, changed.changed()).await;
    }
}

/// When the stream is asked for again.
enum Next {
    /// After a pause.
    Later,
    /// In the next session. A call that the server answers with 404 asks for one.
    WithSession,
    /// In the next session, or after a pause once there are other headers of authorisation.
    WithCredential,
}

struct Aside {
    sink: Sink,
    /// The session that was heard of last.
    heard: u64,
    /// The session that had a stream last, and the one whose stream could not be opened last.
    opened_in: Option<u64>,
    failed_in: Option<u64>,
    /// Whether there was a stream, of whose end the link was not told.
    had: bool,
    /// Whether something may have been said that nobody heard.
    misses: bool,
    /// How often in a row it was refused.
    refusals: u32,
    failures: Attempt,
    jitter: Jitter,
}

impl Aside {
    fn new(sink: Sink) -> Self {
        let (opened_in, failed_in, had, misses) = (None, None, false, false);
        let (failures, jitter) = (Attempt::FIRST, jitter());
        Self { sink, heard: 0, opened_in, failed_in, had, misses, refusals: 0, failures, jitter }
    }

    /// What was missed, if anything was and the server can be asked for it again.
    async fn tell_lapse(&mut self, now: &Arc<Now>, opened: &Opened) {
        let before = std::mem::replace(&mut self.heard, now.generation);
        let new_session = before != 0 && before != now.generation;
        let is_refused = matches!(opened, Opened::Refused);
        self.refusals =
            if is_refused && !new_session { self.refusals.saturating_add(1) } else { u32::from(is_refused) };
        let lapsed = match opened {
            Opened::Stream(..) => {
                self.had = true;
                self.misses
            }
            // Nothing more is heard of what is watched: it is read once more at least.
            Opened::None => std::mem::take(&mut self.had),
            Opened::Refused => {
                self.had &= self.refusals < REFUSALS;
                self.refusals == REFUSALS
            }
            Opened::Forgotten | Opened::Failed => false,
        };
        self.misses = !matches!(opened, Opened::Stream(..));
        if new_session || lapsed {
            self.missed(now).await;
        }
    }

    /// There is no stream any more in a session that goes on.
    async fn tell_end(&mut self, now: &Arc<Now>) {
        if std::mem::take(&mut self.had) {
            self.missed(now).await;
        }
    }

    async fn missed(&self, now: &Arc<Now>) {
        // Without its link nobody misses anything.
        let _nobody_listens = self.sink.of(now).send(Item::Missed).await;
    }
}

async fn open(session: &Session, now: &Now) -> Opened {
    let asked = in_time(session, session.send(Method::GET, None, now, false)).await;
    let Some(Ok((response, connection))) = asked else { return Opened::Failed };
    let (status, is_stream) = (response.status(), is_stream(&response));
    let body = response.into_body();
    if status == StatusCode::OK && is_stream {
        return Opened::Stream(connection, body);
    }
    session.endpoint.pool.drain(connection, body).await;
    match status.as_u16() {
        // Several servers say 400 of a session that they do not know.
        400 | 404 if now.has_id() => Opened::Forgotten,
        // A token that has expired may be renewed.
        401 | 403 => Opened::Refused,
        // Somebody else's stream of this session, or one that has not been noticed to be over.
        408 | 409 | 425 | 429 | 500..=599 => Opened::Failed,
        _ => Opened::None,
    }
}

fn is_stream(response: &http::Response<Incoming>) -> bool {
    let kind = response.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

/// What the future says, if it does within the time that a stream may be silent.
async fn in_time<T>(session: &Session, future: impl Future<Output = T>) -> Option<T> {
    let config = &session.endpoint.config;
    match config.listen_silence {
        None => Some(future.await),
        Some(limit) => within(&config.clock, limit, future).await,
    }
}

/// Hands over what comes until the stream ends or is silent for too long; whether anything came, or it was there as long.
async fn read(mut body: Incoming, session: &Session, sink: &Sink) -> bool {
    let (mut parser, mut useful) = (sse::Parser::new(session.endpoint.config.max_answer), false);
    loop {
        // Its other side may be gone without a word.
        let Some(frame) = in_time(session, next_frame(&mut body)).await else { return true };
        let Some(Ok(frame)) = frame else { return useful };
        let Some(mut chunk) = frame.data_ref().map(|data| &data[..]) else { continue };
        while let Some(item) = parser.next(&mut chunk) {
            let message = match item {
                sse::Item::Event("") => continue,
                sse::Item::Event(event) => match rpc::parse(event) {
                    Ok(Message::Request { .. } | Message::Notification { .. }) => Ok(event.to_owned()),
                    Ok(Message::Response { .. }) | Err(_) => Err(BadFrame::Foreign),
                },
                sse::Item::Rejected(sse::Rejected::NotUtf8) => Err(BadFrame::NotUtf8),
                sse::Item::Rejected(sse::Rejected::TooLong { .. }) => Err(BadFrame::TooLong),
            };
            useful = true;
            // Without its link this is about to be dropped.
            let _nobody_reads = sink.send(Item::Aside(message)).await;
        }
    }
}

/// What the future says, unless there is another session before.
async fn unless<T>(changed: &mut watch::Receiver<Arc<Now>>, future: impl Future<Output = T>) -> Option<T> {
    let (mut changed, mut future) = (pin!(changed.changed()), pin!(future));
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        changed.as_mut().poll(cx).map(|_| None)
    })
    .await
}
