//! The stream of a session that belongs to no request: notifications, and what the server asks outside of calls.
//!
//! It is opened with the session, and again when it ends or when there is a new session; a server may have none (405). What
//! was missed meanwhile is unknown, which the link is told once it is there again.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use http::{Method, StatusCode};
use hyper::body::Incoming;
use steady_core::backoff::Jitter;
use steady_core::id::Attempt;
use steady_core::kernel::{BadFrame, Lapse, Unanswered};
use steady_core::rpc::{self, Message};
use tokio::sync::{mpsc, oneshot, watch};

use super::super::jitter;
use super::super::link::Item;
use super::super::pool::{Connection, next_frame};
use super::{Now, Session};
use crate::clock::within;
use crate::sse;

/// What a server makes of the wish for such a stream.
enum Opened {
    Stream(Connection, Incoming),
    /// It has none.
    None,
    Forgotten,
    /// Later, perhaps.
    Failed,
}

/// Keeps the stream until it is dropped. `first` is told when the server has answered for the first time.
pub(in crate::client) async fn keep(session: Arc<Session>, sink: mpsc::Sender<Item>, first: oneshot::Sender<()>) {
    let mut changed = session.now.subscribe();
    let mut aside = Aside { sink, heard: 0, opened_in: None, failures: Attempt::FIRST, jitter: jitter() };
    let mut first = Some(first);
    // The session has the sender.
    while let Ok(now) = changed.wait_for(|now| now.generation > 0).await.map(|now| now.clone()) {
        let opened = unless(&mut changed, open(&session, &now)).await;
        if let Some(first) = first.take() {
            let _nobody_waits = first.send(());
        }
        let Some(opened) = opened else { continue };
        aside.tell_lapse(&now, &opened).await;
        let next = match opened {
            Opened::Stream(connection, body) => {
                aside.opened_in = Some(now.generation);
                let ended = unless(&mut changed, read(body, &session, &aside.sink)).await;
                drop(connection);
                match ended {
                    // Of a session that is over. What is said in the next one must not wait for a pause.
                    None => continue,
                    Some(useful) if useful => aside.failures = Attempt::FIRST,
                    Some(_) => {}
                }
                Next::Later
            }
            // Of a session that is new this says that there is no such stream.
            Opened::Forgotten if aside.opened_in == Some(now.generation) => {
                match session.renew(now.generation, &aside.sink).await {
                    Ok(()) | Err(Unanswered::NotSent(_) | Unanswered::Lost(_)) => Next::Later,
                    Err(Unanswered::Refused(_) | Unanswered::NotSpoken(_) | Unanswered::TooLong) => Next::WithSession,
                }
            }
            Opened::Forgotten | Opened::None => Next::WithSession,
            Opened::Failed => Next::Later,
        };
        match next {
            Next::WithSession => {
                let _gone_with_its_session = changed.changed().await;
            }
            Next::Later => {
                let config = &session.endpoint.config;
                let pause = config.calls.calls.backoff.delay(aside.failures, &mut aside.jitter);
                aside.failures = aside.failures.next();
                let _session_or_time = within(&config.clock, pause, changed.changed()).await;
            }
        }
    }
}

/// When the stream is asked for again.
enum Next {
    /// After a pause.
    Later,
    /// In the next session. A call that the server answers with 404 asks for one.
    WithSession,
}

struct Aside {
    sink: mpsc::Sender<Item>,
    /// The session that was heard of last.
    heard: u64,
    /// The session that had a stream last.
    opened_in: Option<u64>,
    failures: Attempt,
    jitter: Jitter,
}

impl Aside {
    /// What was missed, if anything was and the server can be asked for it again.
    async fn tell_lapse(&mut self, now: &Now, opened: &Opened) {
        let before = std::mem::replace(&mut self.heard, now.generation);
        let is_open = matches!(opened, Opened::Stream(..));
        let new_session = before != 0 && before != now.generation;
        if new_session || is_open && self.opened_in.is_some() {
            // Without its link nobody misses anything.
            let _nobody_listens = self.sink.send(Item::Lapsed(Lapse::Notices)).await;
        }
    }
}

async fn open(session: &Session, now: &Now) -> Opened {
    let Ok((response, connection)) = session.send(Method::GET, None, now, false).await else { return Opened::Failed };
    let (status, is_stream) = (response.status(), is_stream(&response));
    let body = response.into_body();
    if status == StatusCode::OK && is_stream {
        return Opened::Stream(connection, body);
    }
    session.endpoint.pool.drain(connection, body).await;
    match status.as_u16() {
        // Several servers say 400 of a session that they do not know.
        400 | 404 if now.has_id() => Opened::Forgotten,
        // Somebody else's stream of this session, or one that has not been noticed to be over.
        408 | 409 | 425 | 429 | 500..=599 => Opened::Failed,
        _ => Opened::None,
    }
}

fn is_stream(response: &http::Response<Incoming>) -> bool {
    let kind = response.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}

/// Hands over what comes until the stream ends; whether anything came.
async fn read(mut body: Incoming, session: &Session, sink: &mpsc::Sender<Item>) -> bool {
    let (mut parser, mut useful) = (sse::Parser::new(session.endpoint.config.max_answer), false);
    while let Some(Ok(frame)) = next_frame(&mut body).await {
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
    useful
}

/// What the future says, unless there is another session before.
async fn unless<T>(changed: &mut watch::Receiver<Now>, future: impl Future<Output = T>) -> Option<T> {
    let (mut changed, mut future) = (pin!(changed.changed()), pin!(future));
    poll_fn(|cx| {
        if let Poll::Ready(value) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(value));
        }
        changed.as_mut().poll(cx).map(|_| None)
    })
    .await
}
