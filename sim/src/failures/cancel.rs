//! A request that should end and does not.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use steady_core::client::{CallOptions, Transport};
use steady_core::deadline::Limits;
use steady_core::id::WireId;
use steady_core::kernel::{Reply, Tools};
use steady_core::retry::Contract;
use steady_core::time::Instant;

use super::rig::{AT_REST, STEPS, Work, call, network, responses};
use super::{FailureError, Shown, judge};
use crate::experiment::{self, Lane, Script};
use crate::wire;

/// What came after a cancellation.
struct Stopped {
    steps: u32,
    responses: usize,
}

/// The server is told in the wrong way: it goes on, and pays for work that nobody wants.
pub(super) fn by_post(_: &Path) -> Result<Shown, FailureError> {
    let run = |by_post: bool| {
        let work = Work::default();
        let mut network = network(work.server(), Transport::Http);
        let call = call(&mut network, Work::TOOL, "{}", Contract::Unsafe)?;
        network.run_until(Instant::from_millis(38));
        if by_post {
            // The stream stays open: that this ends nothing is the point.
            network.inject(&wire::cancellation(WireId::new(1)));
        } else {
            network.cancel(call);
        }
        network.run_until(AT_REST);
        Ok::<_, FailureError>(Stopped { steps: work.steps(), responses: responses(&network) })
    };
    let goes_on = |stopped: &Stopped| stopped.steps == STEPS || stopped.responses > 0;
    Ok(judge(&run(true)?, &run(false)?, goes_on, |stopped| {
        format!("{} of {STEPS} steps were done; responses: {}", stopped.steps, stopped.responses)
    }))
}

/// A server over lines that notes a cancellation and still has something to say.
#[derive(Default)]
struct Talkative {
    cancelled: BTreeSet<u64>,
    said: Vec<String>,
}

impl Talkative {
    fn cancel(&mut self, id: u64) {
        self.cancelled.insert(id);
        self.said.push(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":0,"message":"Request cancelled"}}}}"#));
    }

    fn complete(&mut self, id: u64) {
        // It knows that the request is cancelled, and answers: "the client will sort it out".
        let note = if self.cancelled.contains(&id) { "done anyway" } else { "done" };
        self.said.push(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"note":"{note}"}}}}"#));
    }
}

/// Messages for a request after its cancellation arrived.
pub(super) fn answer_after(_: &Path) -> Result<Shown, FailureError> {
    let mut wrong = Talkative::default();
    wrong.cancel(1);
    wrong.complete(1);
    let script = Script::parse("call A\nwait 20ms\ncancel A\nwait 20ms\nprogress A\ncomplete A\n")?;
    let found = experiment::run(&script)?;
    let cancelled = found.moments.iter().position(|moment| moment.lane == Lane::Step && moment.text == "cancel A");
    let after = found.moments.iter().skip(cancelled.ok_or(FailureError::Setup("no cancellation"))?);
    let ours = after.filter(|moment| moment.lane == Lane::ToClient).count();
    Ok(judge(
        &wrong.said.len(),
        &ours,
        |messages| *messages > 0,
        |messages| format!("messages for the request after its cancellation: {messages}"),
    ))
}

const BEAT: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_secs(30);
const MAXIMUM: Duration = Duration::from_secs(300);
/// For how long the server reports.
const HOURS: Duration = Duration::from_secs(7200);

/// How long a caller waits for a server that reports and never answers.
pub(super) fn endless_progress(_: &Path) -> Result<Shown, FailureError> {
    // The wrong client: each sign of life moves the only deadline that there is.
    let (mut now, mut deadline) = (Duration::ZERO, MAXIMUM);
    while now + BEAT < deadline && now < HOURS {
        now += BEAT;
        deadline = now + MAXIMUM;
    }
    let wrong = deadline;

    let server = Tools::new("beat", "1").tool("beat", "Reports.", r#"{"type":"object"}"#, |_, cx| async move {
        let until = cx.now() + HOURS;
        let mut beats = 0.0;
        while cx.now() < until {
            cx.sleep_until(cx.now() + BEAT).await?;
            beats += 1.0;
            cx.report(beats, None, "");
        }
        Ok(Reply::text("done"))
    });
    let mut network = network(server, Transport::Stdio);
    let limits = Limits { idle: Some(IDLE), maximum: Some(MAXIMUM) };
    let call = network.call("beat", "{}", CallOptions { limits, ..CallOptions::default() });
    let call = call.ok_or(FailureError::Setup("the client takes no call"))?;
    network.run_until(Instant::ZERO + HOURS * 2);
    let (at, _) = network.finished.get(&call).ok_or(FailureError::Setup("the call never ended"))?;
    let ours = at.saturating_since(Instant::ZERO);
    Ok(judge(
        &wrong,
        &ours,
        |waited| *waited > MAXIMUM,
        |waited| format!("the caller waited {} s with a limit of {} s", waited.as_secs(), MAXIMUM.as_secs()),
    ))
}
