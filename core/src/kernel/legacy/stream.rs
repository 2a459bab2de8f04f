//! The stream of a session that belongs to no request: what a client opens with GET.

use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::task::{Context, Poll, Waker};

use super::LegacySession;
use super::session::read_error;
use crate::kernel::Ports;
use crate::kernel::engine::ServerConfig;
use crate::kernel::exchange::Exchange;
use crate::kernel::service::Service;
use crate::kernel::shutdown::{Shutdown, Watch};
use crate::kernel::sync::Mutex;
use crate::rpc::{self, Body, Message, RpcError};

/// Which stream of a session is the one that is read.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    newest: u64,
    closed: bool,
    waker: Option<Waker>,
}

impl Standing {
    /// A new stream takes the place of the one before, which ends: a client that lost its stream opens another one, and
    /// the server may not have noticed the loss.
    fn open(&self) -> u64 {
        let mut state = self.0.lock();
        state.newest += 1;
        let (newest, waker) = (state.newest, state.waker.take());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        newest
    }

    /// Something has changed that the stream may have to tell.
    pub(super) fn wake(&self) {
        let waker = self.0.lock().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The session has ended, and its stream with it.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What `next` finds; `None` when this stream is not the one that is read any more. Both under one lock: a stream that
    /// has been superseded must neither take a change nor be rung in the place of its successor.
    fn poll(
        &self,
        cx: &mut Context<'_>,
        stream: u64,
        next: impl FnOnce(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<Option<()>> {
        let mut state = self.0.lock();
        if state.closed || state.newest != stream {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        next(cx).map(Some)
    }
}

/// The stream of a session that belongs to no request. It ends with the session, with the next such stream, and when the
/// server shuts down.
pub struct LegacyStream {
    session: StdArc<LegacySession>,
    stream: u64,
    watch: Watch,
    shutdown: Shutdown,
}

impl LegacyStream {
    /// Opens it. The first one of a session asks the service for its changes.
    ///
    /// # Errors
    /// That of a service that takes no more listeners; the stream that was open before goes on.
    pub fn open<S: Service>(
        session: &StdArc<LegacySession>,
        service: &StdArc<S>,
        (ports, config): (&Ports, &ServerConfig),
    ) -> Result<Self, RpcError> {
        if session.shared.needs_changes() {
            hear(session, service, (ports, config))?;
        }
        Ok(Self {
            stream: session.standing.open(),
            session: StdArc::clone(session),
            watch: Watch::new(config.shutdown.clone()),
            shutdown: config.shutdown.clone(),
        })
    }

    /// Appends the next messages to `out`, each between `before` and `after`. `None`: it has ended.
    pub fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        out: &mut Vec<u8>,
        (before, after): (&[u8], &[u8]),
    ) -> Poll<Option<bool>> {
        let _drained = self.watch.register(cx);
        if self.shutdown.is_draining() {
            return Poll::Ready(None);
        }
        let start = out.len();
        out.extend_from_slice(before);
        let polled = self.session.standing.poll(cx, self.stream, |cx| self.session.shared.poll_change(cx, out));
        if let Poll::Ready(Some(())) = polled {
            out.extend_from_slice(after);
        } else {
            out.truncate(start);
        }
        polled.map(|told| told.map(|()| false))
    }
}

/// Subscribes the session, by a request of its own.
fn hear<S: Service>(
    session: &StdArc<LegacySession>,
    service: &StdArc<S>,
    (ports, config): (&Ports, &ServerConfig),
) -> Result<(), RpcError> {
    let (service, ports, config) = (StdArc::clone(service), ports.clone(), config.clone());
    let mut asked = Exchange::begin(service, ports, config, |engine, now| session.shared.opens(engine, now));
    let mut answer = Vec::new();
    // A subscription is there at once, or refused at once.
    let _over = asked.poll_message(&mut Context::from_waker(Waker::noop()), &mut answer);
    let answer = core::str::from_utf8(&answer).unwrap_or_default();
    match rpc::parse(answer) {
        Ok(Message::Response { body: Body::Error(error), .. }) => Err(read_error(error)),
        Ok(_) | Err(_) => Ok(()),
    }
}

impl core::fmt::Debug for LegacyStream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("LegacyStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}
