//! A stream, a child, or a line that ends otherwise than one side thinks.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use serde_json::value::RawValue;
use steady_core::backoff::Jitter;
use steady_core::client::{CallOptions, Client, Config, Input, Output, Transport};
use steady_core::id::{ClientId, RequestId, WireId};
use steady_core::kernel::{Exchange, LegacyExchange, LegacyRequest, LegacySession, ServerConfig, Service, Tools};
use steady_core::time::Instant;

use super::rig::{AT_REST, STEPS, Work, network};
use super::{FailureError, Shown, judge};
use crate::wire::ToolRequest;
use crate::world::{Executor, TaskId};

/// What of the work was done after the client had hung up, in each era.
struct Eras {
    legacy: u32,
    modern: u32,
}

/// The text of a request of an older revision.
fn raw(params: &str) -> Result<Box<RawValue>, FailureError> {
    RawValue::from_string(params.to_owned()).map_err(|_| FailureError::Setup("its parameters are no JSON"))
}

/// Polls an exchange to its end, as the task of an HTTP connection does.
fn serve(
    executor: &mut Executor,
    mut poll: impl FnMut(&mut Context<'_>, &mut Vec<u8>) -> Poll<Option<bool>> + Send + 'static,
) -> TaskId {
    executor.spawn(poll_fn(move |cx| {
        loop {
            let mut message = Vec::new();
            match poll(cx, &mut message) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(false)) => {}
                Poll::Ready(Some(true) | None) => return Poll::Ready(()),
            }
        }
    }))
}

fn run_until(executor: &mut Executor, until: Instant) {
    executor.run_ready();
    while let Some(at) = executor.next_alarm().filter(|at| *at <= until) {
        executor.advance_to(at);
        executor.run_ready();
    }
    executor.advance_to(until);
}

/// When the client hangs up: after the third step.
const HANG_UP: Instant = Instant::from_millis(33);

/// Steps of a modern request whose client hangs up.
fn modern() -> u32 {
    let (work, mut executor) = (Work::default(), Executor::new());
    let line = ToolRequest::new(Work::TOOL, "{}").line(WireId::new(1));
    let (service, ports) = (Arc::new(work.server()), executor.ports());
    let mut exchange = Exchange::start(service, ports, ServerConfig::default(), &line);
    let task = serve(&mut executor, move |cx, out| exchange.poll_message(cx, out));
    run_until(&mut executor, HANG_UP);
    executor.kill(task);
    run_until(&mut executor, AT_REST);
    work.steps()
}

fn start<S: Service>(
    executor: &mut Executor,
    (session, service): (&Arc<LegacySession>, &Arc<S>),
    method: &str,
    params: &RawValue,
) -> Result<TaskId, FailureError> {
    let request = LegacyRequest { id: RequestId::Integer(1), method, params: Some(params), key_header: None };
    let (ports, config) = (executor.ports(), ServerConfig::default());
    let begun = LegacyExchange::start(session, service, (&ports, &config), vec![request], ());
    let mut exchange = begun.map_err(|_| FailureError::Setup("the session took no request"))?;
    Ok(serve(executor, move |cx, out| exchange.poll_message(cx, out)))
}

/// Steps of a request of 2025-11-25 whose client hangs up.
fn legacy() -> Result<u32, FailureError> {
    let (work, mut executor) = (Work::default(), Executor::new());
    let (session, service): (_, Arc<Tools>) = (Arc::new(LegacySession::new()), Arc::new(work.server()));
    let hello =
        raw(r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"older","version":"1"}}"#)?;
    start(&mut executor, (&session, &service), "initialize", &hello)?;
    run_until(&mut executor, Instant::ZERO);
    session.notified(Instant::ZERO, "notifications/initialized", None);
    if session.revision().is_none() {
        return Err(FailureError::Setup("the handshake failed"));
    }
    let params = raw(r#"{"name":"work","arguments":{}}"#)?;
    let task = start(&mut executor, (&session, &service), "tools/call", &params)?;
    run_until(&mut executor, HANG_UP);
    executor.kill(task);
    run_until(&mut executor, AT_REST);
    Ok(work.steps())
}

/// The same hang-up, in both eras: a cancellation in the one, none in the other.
pub(super) fn era(_: &Path) -> Result<Shown, FailureError> {
    let modern = modern();
    // The wrong server has one path: what it does for the modern era it does for both.
    let (wrong, ours) = (Eras { legacy: modern, modern }, Eras { legacy: legacy()?, modern });
    let mixed = |eras: &Eras| eras.legacy != STEPS || eras.modern == STEPS;
    Ok(judge(&wrong, &ours, mixed, |eras| {
        let Eras { legacy, modern } = eras;
        format!("after a hang-up {legacy} of {STEPS} steps are done for 2025-11-25, {modern} for 2026-07-28")
    }))
}

const CALLS: u64 = 5;

/// Calls that are still not settled an hour after the child died.
pub(super) fn child_killed(_: &Path) -> Result<Shown, FailureError> {
    // The wrong client: a map of who waits, and a reader that ends at the end of the pipe.
    let mut waits: BTreeSet<u64> = (1..=CALLS).collect();
    let lines: [u64; 0] = [];
    for answered in lines {
        waits.remove(&answered);
    }

    let jitter = Jitter::seeded(ClientId::new(1), 0);
    let mut client: Client<(), ()> = Client::new(Instant::ZERO, Config::new(Transport::Stdio), jitter);
    for _ in 0..CALLS {
        client
            .call(Instant::ZERO, (), CallOptions::default())
            .map_err(|_| FailureError::Setup("the client takes no call"))?;
    }
    let (mut sent, mut settled) = (0, 0);
    let mut look = |client: &mut Client<(), ()>| {
        loop {
            match client.poll_output() {
                Output::Idle { .. } => return (sent, settled),
                Output::Send { .. } => sent += 1,
                Output::Finished { .. } => settled += 1,
                Output::Signal { .. }
                | Output::Progress { .. }
                | Output::Listen { .. }
                | Output::Gap { .. }
                | Output::Notice { .. }
                | Output::Unsubscribed { .. } => {}
            }
        }
    };
    look(&mut client);
    client.handle_input(Instant::from_millis(10), Input::LinkLost);
    let (sent, settled) = look(&mut client);
    if sent != CALLS {
        return Err(FailureError::Setup("not every call was sent once"));
    }
    let wrong = u64::try_from(waits.len()).unwrap_or(CALLS);
    Ok(judge(
        &wrong,
        &(CALLS - settled),
        |waiting| *waiting > 0,
        |waiting| format!("the child is gone, and {waiting} of {CALLS} calls wait on"),
    ))
}

/// The start of a message.
const HALF: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/ca"#;
/// Where a storm is cut off.
const STORM: usize = 1000;

/// A peer that answers whatever it cannot read: the other's complaint as well, as that names no request.
fn complains(line: &str) -> Option<String> {
    let read: Result<serde_json::Value, _> = serde_json::from_str(line);
    let known = read.is_ok_and(|value| value.get("id").is_some_and(serde_json::Value::is_u64));
    let error = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;
    (!known).then(|| error.to_owned())
}

/// One bad line, and how many messages follow it if each side hears the other.
pub(super) fn error_storm(_: &Path) -> Result<Shown, FailureError> {
    let mut wrong = 0;
    let mut line = Some(HALF.to_owned());
    while let Some(said) = line.filter(|_| wrong < STORM) {
        line = complains(&said);
        wrong += usize::from(line.is_some());
    }

    let mut network = network(Work::default().server(), Transport::Stdio);
    network.inject(HALF);
    let (mut heard, mut ours) = (0, 0);
    loop {
        network.run_until(network.now() + std::time::Duration::from_secs(1));
        let new: Vec<String> =
            network.wires.iter().skip(heard).filter(|wire| !wire.from_client).map(|wire| wire.text.clone()).collect();
        heard = network.wires.len();
        ours += new.len();
        if new.is_empty() || ours >= STORM {
            break;
        }
        // The other side has the worst habit: it sends back what it got.
        new.iter().for_each(|line| network.inject(line));
    }
    if network.server().bad_messages == 0 {
        return Err(FailureError::Setup("the server could read it"));
    }
    Ok(judge(
        &wrong,
        &ours,
        |messages| *messages >= STORM,
        |messages| {
            let end = if *messages >= STORM { ", and no end" } else { "" };
            format!("one unreadable line; messages that follow: {messages}{end}")
        },
    ))
}
