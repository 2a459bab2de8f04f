//! HTTP/2 with prior knowledge: a connection on which each request is a stream. A reset of a stream, or the loss of the
//! connection, drops what is served on it, which is the cancellation (rule C1); neighbours go on.
//!
//! hyper reads all the time here, so it sees a hang-up by itself. What it does not see is a client that takes nothing more
//! from one stream while the others go on: that is watched here. h2 keeps a piece that it was given until its client takes it,
//! however little of it fits into the client's window, so no piece is long; the last one may stay until the connection ends.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use steady_core::kernel::Service;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::body::Body;
use super::config::ServeConfig;
use super::connection::answer;
use super::service::{HttpService, Responding};
use super::watch::Watch;
use super::wire::{Wait, Wire};
use crate::clock::later;

/// What a stream may hold that its client has not taken, in bytes.
const SEND_BUFFER: usize = 16 << 10;
/// What it is given at once, in bytes: what waits of a stream is never more than this and [`SEND_BUFFER`].
pub(super) const LONGEST_PIECE: usize = 16 << 10;
/// What a client may send on a stream, and on all of them, before it is read.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;

/// Serves one connection whose first bytes are the preface of HTTP/2.
pub(super) async fn serve<S: Service>(wire: Wire, service: HttpService<S>, config: Arc<ServeConfig>) {
    let lanes = Lanes::default();
    let mut builder = http2::Builder::new(Runs { lanes: lanes.clone() });
    builder
        .max_concurrent_streams(config.max_streams.max(1))
        .max_header_list_size(u32::try_from(config.max_head).unwrap_or(u32::MAX))
        .max_send_buf_size(SEND_BUFFER)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    let dispatch = Dispatch { service, config: Arc::clone(&config), lanes: lanes.clone() };
    let mut connection = pin!(builder.serve_connection(TokioIo::new(wire.clone()), dispatch));
    let mut draining = pin!(config.http.server.shutdown.draining());
    let mut alarm = pin!(sleep(config.idle_timeout));
    let mut closing_since = None;
    poll_fn(|cx| {
        if closing_since.is_none() && draining.as_mut().poll(cx).is_ready() {
            closing_since = Some(Instant::now());
            connection.as_mut().graceful_shutdown();
        }
        loop {
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            let (idle_since, lane_stalls_at) = lanes.look(cx, now, config.write_stall);
            // A goodbye, which tells the client what was not seen, has as much time as the silence before it.
            let idle_at = idle_since.map(|since| later(since.max(closing_since.unwrap_or(since)), config.idle_timeout));
            let stalls_at = match wire.waits(now) {
                (Wait::Stalled, since) => Some(later(since, config.write_stall)),
                (Wait::Head | Wait::Idle | Wait::Request, _) => None,
            };
            let is_idle = idle_at.is_some_and(|at| now >= at);
            if stalls_at.is_some_and(|at| now >= at) || (is_idle && closing_since.is_some()) {
                return Poll::Ready(());
            }
            if is_idle {
                closing_since = Some(now);
                connection.as_mut().graceful_shutdown();
                continue;
            }
            let Some(due) = [idle_at, stalls_at, lane_stalls_at].into_iter().flatten().min() else {
                return Poll::Pending;
            };
            if due < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(due);
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
}

/// What hyper calls.
struct Dispatch<S> {
    service: HttpService<S>,
    config: Arc<ServeConfig>,
    lanes: Lanes,
}

impl<S: Service> hyper::service::Service<Request<Incoming>> for Dispatch<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Responding;

    fn call(&self, request: Request<Incoming>) -> Responding {
        answer(&self.service, &self.config, request, Watch::Lane(self.lanes.open()))
    }
}

/// Runs the streams of one connection, so that each can be ended alone.
#[derive(Clone)]
struct Runs {
    lanes: Lanes,
}

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for Runs {
    fn execute(&self, stream: F) {
        let task = tokio::spawn(stream).abort_handle();
        // hyper hands over the stream of the request that it has just called the service for.
        let mut state = self.lanes.state();
        if let Some(fresh) = state.fresh.take()
            && let Some(lane) = state.open.get_mut(&fresh)
        {
            lane.task = Some(task);
        }
    }
}

/// The streams of one connection.
#[derive(Clone, Default)]
struct Lanes(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    next: u64,
    /// The newest one, until its task is known.
    fresh: Option<u64>,
    /// As many as [`ServeConfig::max_streams`] at most.
    open: BTreeMap<u64, Entry>,
    /// Since when there is none; `None`: since the connection's start, or there are some.
    idle_since: Option<Instant>,
    /// The connection's.
    waker: Option<Waker>,
    /// Whether it knows that a stream has stalled, and looks again in time.
    is_told: bool,
}

#[derive(Default)]
struct Entry {
    task: Option<AbortHandle>,
    /// Since when it was given bytes and has not asked for more.
    stalled_since: Option<Instant>,
}

impl Lanes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Lane {
        let mut state = self.state();
        let key = state.next;
        state.next += 1;
        state.fresh = Some(key);
        state.idle_since = None;
        let _new = state.open.insert(key, Entry::default());
        Lane { lanes: self.clone(), key }
    }

    /// Ends streams whose client has taken nothing for so long. Since when there is no stream, and when the next one of
    /// them has stalled for too long.
    fn look(&self, cx: &Context<'_>, now: Instant, patience: Duration) -> (Option<Instant>, Option<Instant>) {
        let mut state = self.state();
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            waker @ None => *waker = Some(cx.waker().clone()),
        }
        let idle_since = state.open.is_empty().then(|| *state.idle_since.get_or_insert(now));
        let (mut gone, mut next) = (Vec::new(), None::<Instant>);
        for lane in state.open.values_mut() {
            let Some(at) = lane.stalled_since.map(|since| later(since, patience)) else { continue };
            if now >= at {
                lane.stalled_since = None;
                gone.extend(lane.task.take());
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        state.is_told = next.is_some();
        drop(state);
        // Its stream is reset, and what is served on it dropped.
        gone.into_iter().for_each(|task| task.abort());
        (idle_since, next)
    }
}

/// One request of the connection; dropped with the body of its answer.
pub(super) struct Lane {
    lanes: Lanes,
    key: u64,
}

impl Lane {
    /// Its client has something to take now, or has taken all.
    pub(super) fn waits_for_client(&self, waits: bool) {
        let mut state = self.lanes.state();
        if let Some(lane) = state.open.get_mut(&self.key) {
            lane.stalled_since = waits.then(Instant::now);
        }
        // h2 wakes nobody for bytes that the client's window has no room for.
        if waits && !mem::replace(&mut state.is_told, true) {
            let waker = state.waker.clone();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut state = self.lanes.state();
        let _over = state.open.remove(&self.key);
        if state.open.is_empty() {
            state.idle_since = Some(Instant::now());
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }
}
