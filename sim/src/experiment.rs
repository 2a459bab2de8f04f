//! Experiments: a few requests, and what happens to them in an order that the reader chooses.
//!
//! The client is the shipped client machine, the server the shipped kernel, time is virtual. A [`Script`] says what
//! happens, a [`Stage`] lets it happen step by step, and a [`Row`] for each request says what became of it: its terminal
//! state, whether a final response exists, which signal crossed the wire, and what was ignored, by whom.

mod board;
mod row;
mod script;
mod stage;
mod standard;

pub use row::{Ignored, Lane, Moment, Row, Side, Signal};
pub use script::{Limit, Promise, Script, ScriptError, Step, duration_text, parse_duration};
pub use stage::Stage;
pub use standard::{Trial, standard};

/// What an experiment found.
#[derive(Clone, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Found {
    /// What crossed the wire, what the application and the handlers saw, in order of time.
    pub timeline: Vec<String>,
    /// A row for each request, in the order of their calls.
    pub rows: Vec<Row>,
    /// The timeline again, in parts.
    #[serde(skip)]
    pub moments: Vec<Moment>,
}

/// Runs a script to its end, and lets everything come to rest after its last step.
///
/// # Errors
/// [`ScriptError`] for a step that names a request which was never called, or calls one twice.
pub fn run(script: &Script) -> Result<Found, ScriptError> {
    let mut stage = Stage::new(script.transport, script.latency);
    for (index, step) in script.steps.iter().enumerate() {
        stage.step(step).map_err(|error| error.at(script.lines.get(index).copied()))?;
    }
    Ok(stage.finish())
}
