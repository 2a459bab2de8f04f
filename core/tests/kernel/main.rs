//! The kernel over a virtual link, clock and executor: what a peer sees, and what a handler sees.

#[path = "../support/mod.rs"]
mod support;

mod client;
mod exchange;
mod feed;
mod handlers;
mod hub;
mod input;
mod legacy;
mod listens;
mod logs;
#[cfg(feature = "metrics")]
mod metrics;
mod pressure;
mod resources;
mod sessions;
mod shutdown;
mod signalled;
mod silence;
mod stats;
#[cfg(feature = "tracing")]
mod trace;
mod wakers;
mod worker;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use serde_json::Value;
use steady_core::kernel::{
    Answer, Call, Connection, ConnectionError, Context, Outcome, ServerConfig, ServerCounters, Service,
};
use steady_core::rpc::{RpcError, encode};
use steady_core::time::Instant;

use support::{Driven, VirtualLink, World};

pub(crate) fn ms(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// A service that is a function.
pub(crate) struct Fun(Box<dyn Fn(Call, Context) -> Answer + Send + Sync>);

impl Fun {
    pub(crate) fn new(call: impl Fn(Call, Context) -> Answer + Send + Sync + 'static) -> Self {
        Self(Box::new(call))
    }
}

impl Service for Fun {
    fn call(&self, call: Call, cx: Context) -> Answer {
        (self.0)(call, cx)
    }
}

pub(crate) fn ok() -> Outcome {
    Ok("{}".to_owned())
}

/// A handler that the test lets go on.
#[derive(Clone, Default)]
pub(crate) struct Door(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Door {
    pub(crate) fn open(&self) {
        let mut door = self.0.lock().expect("no panic");
        door.0 = true;
        let waiting = std::mem::take(&mut door.1);
        drop(door);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn passed(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let door = self.clone();
        std::future::poll_fn(move |cx| {
            let mut door = door.0.lock().expect("no panic");
            if door.0 {
                return Poll::Ready(());
            }
            door.1.push(cx.waker().clone());
            Poll::Pending
        })
    }
}

/// A log that handlers write to.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn note(&self, what: impl Into<String>) {
        self.0.lock().expect("no panic").push(what.into());
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

/// A request with the metadata that the protocol asks for, and its id as progress token.
pub(crate) fn request(id: impl Into<Value>, method: &str) -> String {
    let id: Value = id.into();
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":{id}}}}}}}"#
    )
}

pub(crate) fn cancel(id: impl Into<Value>) -> String {
    let id: Value = id.into();
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

/// A served connection and the world around it.
pub(crate) struct Server {
    pub(crate) world: World,
    connection: Driven<Connection<Fun, VirtualLink>>,
    pub(crate) ended: Option<Result<(), ConnectionError>>,
}

impl Server {
    pub(crate) fn new(config: ServerConfig, call: impl Fn(Call, Context) -> Answer + Send + Sync + 'static) -> Self {
        let world = World::default();
        let connection = Connection::new(Fun::new(call), world.link(), world.ports(), config);
        Self { world, connection: Driven::new(connection), ended: None }
    }

    /// One poll of the connection, if it was woken.
    pub(crate) fn turn(&mut self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        match self.connection.turn() {
            None => return false,
            Some(Poll::Pending) => {}
            Some(Poll::Ready(ended)) => self.ended = Some(ended.map(drop)),
        }
        true
    }

    /// Runs connection and handlers until nobody is woken.
    pub(crate) fn run(&mut self) {
        for _ in 0..100_000 {
            let turned = self.turn();
            if !self.world.run_tasks() && !turned {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    pub(crate) fn send(&mut self, text: impl Into<String>) {
        self.world.send(text);
        self.run();
    }

    pub(crate) fn at(&mut self, now: Instant) {
        self.world.advance(now);
        self.run();
    }

    pub(crate) fn counters(&self) -> ServerCounters {
        self.connection.get().counters()
    }

    /// What the client received, in short.
    pub(crate) fn received(&mut self) -> Vec<String> {
        self.run();
        self.world.lines().iter().map(|line| brief(line)).collect()
    }
}

/// A message in short: `7 ok`, `7 error -32603`, `error -32600` without an id, `7 progress 3`.
pub(crate) fn brief(line: &str) -> String {
    let message: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    assert_eq!(message["jsonrpc"], "2.0");
    if message["method"] == "notifications/progress" {
        return format!("{} progress {}", message["params"]["progressToken"], message["params"]["progress"]);
    }
    let id = message.get("id").map(|id| format!("{id} ")).unwrap_or_default();
    match message.get("error") {
        None => format!("{id}ok"),
        Some(error) => format!("{id}error {}", error["code"]),
    }
}

/// What a handler answers to a cancellation.
pub(crate) fn give_up() -> RpcError {
    RpcError::internal("given up")
}

#[test]
fn a_message_in_short() {
    let mut line = Vec::new();
    encode::error(&mut line, Some(&7.into()), &give_up());
    assert_eq!(brief(std::str::from_utf8(&line).unwrap()), "7 error -32603");
}
