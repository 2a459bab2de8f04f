//! The race table: each race of the operation's request, as the shipped client and kernel decide it in virtual time.

use std::time::Duration;

use serde::Serialize;
use steady_core::client;
use steady_core::retry::Safety;

use super::Design;
use super::design::TransportKind;
use crate::experiment::{self, Promise, Row, Script, Step};

/// One race and its one outcome.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Race {
    /// What races.
    pub race: &'static str,
    /// What became of the request.
    #[serde(flatten)]
    pub row: Row,
    /// The steps, as `steady-sim lab --script` runs them.
    pub script: String,
}

/// How far apart two events are that do not race.
const APART: Duration = Duration::from_millis(20);
/// Longer than the first pause between two attempts.
const LATER: Duration = Duration::from_secs(1);
/// Less than the way of a message: what is under way has not arrived.
const CLOSE: Duration = Duration::from_micros(500);
/// The longest limit that is played; the outcome does not depend on the length.
const LONGEST: Duration = Duration::from_secs(600);

pub(super) fn table(design: &Design, class: Safety) -> Vec<Race> {
    let request = || String::from("A");
    let idle = design.timeouts.idle.map(|limit| limit.min(LONGEST));
    let max = design.timeouts.max.map(|limit| limit.min(LONGEST));
    let contract = match class {
        Safety::Safe => Promise::Safe,
        Safety::Conditional => Promise::Key("key-1".into()),
        Safety::Unsafe => Promise::Unsafe,
    };
    let call = Step::Call { name: request(), idle, max, contract };
    let (wait, late) = (Step::Wait(APART), Step::Wait(CLOSE));
    let mut races = vec![
        (
            "cancel, then complete",
            vec![call.clone(), wait.clone(), Step::Cancel(request()), wait.clone(), Step::Complete(request())],
        ),
        (
            "complete, then cancel",
            vec![call.clone(), wait.clone(), Step::Complete(request()), late, Step::Cancel(request())],
        ),
    ];
    if let Some(idle) = idle.filter(|idle| max.is_none_or(|max| *idle < max)) {
        let silence = Step::Wait(idle + APART);
        races
            .push(("silence to the idle limit, then complete", vec![call.clone(), silence, Step::Complete(request())]));
    }
    if let Some(max) = max {
        races.push(("progress to the maximum, then complete", to_maximum(&call, idle, max)));
    }
    if design.transport.kind == TransportKind::Http {
        let steps = vec![call, wait.clone(), Step::Break(request()), Step::Wait(LATER), Step::Complete(request())];
        races.push(("the stream breaks, then complete", steps));
    }
    races.into_iter().filter_map(|(race, steps)| play(design, race, steps)).collect()
}

/// Pauses that a script of progress has at most.
const PAUSES: u32 = 900;

/// Progress in time for each idle deadline, until the maximum has passed. A maximum that would take more pauses than a
/// script has is cut to what they reach: what happens then is the same, only earlier.
fn to_maximum(call: &Step, idle: Option<Duration>, max: Duration) -> Vec<Step> {
    let pause = idle.map_or(max / 4, |idle| (idle / 2).min(max / 4)).max(Duration::from_micros(1));
    let max = max.min(pause * PAUSES);
    let mut steps = vec![with_maximum(call, max)];
    let mut passed = Duration::ZERO;
    while passed <= max {
        steps.extend([Step::Wait(pause), Step::Progress("A".into())]);
        passed += pause;
    }
    steps.push(Step::Complete("A".into()));
    steps
}

/// The same call with this maximum.
fn with_maximum(call: &Step, max: Duration) -> Step {
    let mut call = call.clone();
    if let Step::Call { max: limit, .. } = &mut call {
        *limit = Some(max);
    }
    call
}

fn play(design: &Design, race: &'static str, steps: Vec<Step>) -> Option<Race> {
    let transport = match design.transport.kind {
        TransportKind::Stdio => client::Transport::Stdio,
        TransportKind::Http => client::Transport::Http,
    };
    let script = Script { transport, latency: Duration::from_millis(1), lines: Vec::new(), steps };
    let found = experiment::run(&script).ok()?;
    let row = found.rows.into_iter().next()?;
    Some(Race { race, row, script: script.to_string() })
}
