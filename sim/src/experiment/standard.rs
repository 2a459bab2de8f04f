//! The experiments that show what the protocol leaves to whoever implements it.

use super::{Found, Script, ScriptError, run};

/// One of the standard experiments.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Trial {
    /// Its name and what it asks.
    pub title: &'static str,
    /// What happens in it.
    pub script: Script,
    /// What was found.
    pub found: Found,
}

/// The deadlines of C are far enough apart for its progress to come before each of them.
const SCRIPTS: [(&str, &str); 5] = [
    ("A: cancel, then complete", "call A\nwait 20ms\ncancel A\nwait 20ms\ncomplete A\n"),
    (
        "B: complete, then cancel before the response arrives",
        "latency 5ms\ncall B\nwait 20ms\ncomplete B\nwait 2ms\ncancel B\n",
    ),
    (
        "C: progress before each idle deadline, then across the maximum",
        "call C idle 10s max 25s\nwait 8s\nprogress C\nwait 8s\nprogress C\nwait 8s\nprogress C\nwait 2s\nprogress C\nwait 1s\ncomplete C\n",
    ),
    (
        "D: close the response stream, over HTTP",
        "transport http\ncall D\nwait 20ms\nprogress D\nwait 20ms\ncancel D\nwait 20ms\ncomplete D\n",
    ),
    (
        "D again, over stdio",
        "transport stdio\ncall D\nwait 20ms\nprogress D\nwait 20ms\ncancel D\nwait 20ms\ncomplete D\n",
    ),
];

/// Runs them all.
///
/// # Errors
/// [`ScriptError`] if one cannot run: a defect of this program.
pub fn standard() -> Result<Vec<Trial>, ScriptError> {
    let trial = |(title, text): (&'static str, &str)| {
        let script = Script::parse(text)?;
        let found = run(&script)?;
        Ok(Trial { title, script, found })
    };
    SCRIPTS.into_iter().map(trial).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Row, Side, Signal};
    use super::*;

    fn row(index: usize) -> Row {
        standard().expect("they run")[index].found.rows[0].clone()
    }

    fn ignored(row: &Row) -> Vec<(Side, &'static str)> {
        row.ignored.iter().map(|ignored| (ignored.by, ignored.event)).collect()
    }

    #[test]
    fn every_standard_experiment_runs() {
        assert_eq!(standard().map(|trials| trials.len()), Ok(SCRIPTS.len()));
    }

    #[test]
    fn a_cancelled_request_has_no_response_and_its_completion_is_ignored() {
        let row = row(0);
        assert_eq!((row.client, row.response, row.signal), ("cancelled", false, Signal::Notification));
        assert_eq!(ignored(&row), [(Side::Server, "the late completion")]);
    }

    #[test]
    fn a_completed_request_has_one_response_and_both_sides_ignore_what_is_late() {
        let row = row(1);
        assert_eq!((row.client, row.response, row.signal), ("cancelled", true, Signal::Notification));
        assert_eq!(ignored(&row), [(Side::Client, "the late response"), (Side::Server, "the late cancellation")]);
    }

    #[test]
    fn progress_saves_from_the_idle_limit_and_never_from_the_maximum() {
        let row = row(2);
        assert_eq!((row.client, row.response, row.signal), ("maximum timeout", false, Signal::Notification));
        assert_eq!(ignored(&row), [(Side::Server, "late progress"), (Side::Server, "the late completion")]);
    }

    #[test]
    fn d_differs_between_the_transports_in_the_signal_alone() {
        let (http, stdio) = (row(3), row(4));
        assert_eq!(http.signal, Signal::ClosedStream);
        assert_eq!(stdio.signal, Signal::Notification);
        assert_eq!(Row { signal: stdio.signal, ..http }, stdio);
    }
}
