//! A server whose handlers do what the experiment says, when it says so.

use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use serde::Deserialize;
use steady_core::kernel::{CancelReason, Context, Reply, ToolCall, Tools};
use steady_core::rpc::RpcError;
use steady_core::time::Instant;

/// The tool that every request of an experiment calls.
pub(super) const TOOL: &str = "run";

/// What a handler is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Progress,
    Complete,
    Fail,
}

/// What became of an order, or of a handler.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) request: String,
    pub(super) what: Event,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The handler reported; whether it was accepted.
    Reported { accepted: bool },
    /// The handler returned; whether its request was over already.
    Returned { late: bool },
    /// The handler learned why it should stop.
    Told(String),
}

#[derive(Default)]
struct State {
    orders: BTreeMap<String, VecDeque<Order>>,
    /// The handler of the newest attempt of each request, counted: orders are for it.
    newest: BTreeMap<String, u64>,
    wakers: BTreeMap<String, Waker>,
    seen: Vec<Seen>,
}

/// Where orders wait for the handlers, and what those saw.
#[derive(Clone, Default)]
pub(super) struct Board(Arc<Mutex<State>>);

#[derive(Deserialize)]
struct Arguments {
    request: String,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server.
    pub(super) fn server(&self) -> Tools {
        const SCHEMA: &str = r#"{"type":"object","properties":{"request":{"type":"string"}},"required":["request"]}"#;
        let board = self.clone();
        Tools::new("experiment", env!("CARGO_PKG_VERSION")).tool(
            TOOL,
            "Does what it is told.",
            SCHEMA,
            move |call, cx| board.clone().handle(call, cx),
        )
    }

    /// Tells the handler of a request what to do next.
    pub(super) fn order(&self, request: &str, order: Order) {
        let mut state = self.lock();
        state.orders.entry(request.into()).or_default().push_back(order);
        let waker = state.wakers.remove(request);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// What the handlers saw since the last time.
    pub(super) fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.lock().seen)
    }

    fn saw(&self, cx: &Context, request: &str, what: Event) {
        self.lock().seen.push(Seen { at: cx.now(), request: request.into(), what });
    }

    /// A handler begins; it is the newest of its request.
    fn begin(&self, request: &str) -> u64 {
        let mut state = self.lock();
        let newest = state.newest.entry(request.into()).or_default();
        *newest += 1;
        *newest
    }

    /// A handler that goes on although it is told to stop: the worst that a server can meet.
    async fn handle(self, call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
        let Arguments { request } = call.arguments()?;
        let attempt = self.begin(&request);
        let mut cancelled = pin!(cx.cancelled());
        let (mut told, mut progress) = (false, 0.0);
        loop {
            let order = poll_fn(|task| {
                if !told && let Poll::Ready(cancelled) = cancelled.as_mut().poll(task) {
                    told = true;
                    self.saw(&cx, &request, Event::Told(reason(&cancelled.reason)));
                }
                let mut state = self.lock();
                if state.newest.get(&request) != Some(&attempt) {
                    return Poll::Pending;
                }
                let next = state.orders.get_mut(&request).and_then(VecDeque::pop_front);
                if next.is_none() {
                    state.wakers.insert(request.clone(), task.waker().clone());
                }
                next.map_or(Poll::Pending, Poll::Ready)
            })
            .await;
            match order {
                Order::Progress => {
                    progress += 1.0;
                    let accepted = cx.report(progress, None, "");
                    self.saw(&cx, &request, Event::Reported { accepted });
                }
                Order::Complete | Order::Fail => {
                    self.saw(&cx, &request, Event::Returned { late: cx.is_cancelled().is_some() });
                    let failed = RpcError::internal("the handler failed, as it was told");
                    return if order == Order::Complete { Ok(Reply::text("done")) } else { Err(failed) };
                }
            }
        }
    }
}

fn reason(reason: &CancelReason) -> String {
    match reason {
        CancelReason::Cancelled(_) => "cancelled by the client".into(),
        CancelReason::Disconnected => "its stream is closed".into(),
        other @ (CancelReason::Deadline(_) | CancelReason::Ended | CancelReason::Shutdown | _) => {
            format!("{other:?}").to_lowercase()
        }
    }
}
