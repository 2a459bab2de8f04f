//! What a step is, what it needs, and how it can end.

use super::context::Context;
use crate::error::Error;
use crate::process::Command;

/// One part of the evidence.
pub(crate) struct Step {
    /// One word, for `--only`.
    pub(crate) name: &'static str,
    /// What holds if the step passes.
    pub(crate) proves: &'static str,
    /// Whether `--ci` may not do without it.
    pub(crate) required: bool,
    /// The tools it needs, the first missing one skips it.
    pub(crate) tools: &'static [Tool],
    /// Does it.
    pub(crate) run: fn(&mut Context) -> Result<(), Error>,
    /// What to do when it fails.
    pub(crate) next: &'static str,
}

/// Something that must be on the machine.
pub(crate) struct Tool {
    /// As the table names it.
    pub(crate) name: &'static str,
    /// A program and arguments that succeed if it is there.
    pub(crate) probe: &'static [&'static str],
}

impl Tool {
    fn is_there(&self) -> bool {
        let Some((program, args)) = self.probe.split_first() else { return true };
        Command::new(program).args(args.iter().copied()).works()
    }
}

impl Step {
    /// The first of its tools that this machine does not have.
    pub(crate) fn missing_tool(&self) -> Option<&'static str> {
        self.tools.iter().find(|tool| !tool.is_there()).map(|tool| tool.name)
    }
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    Failed,
    /// Not run, for want of this tool.
    Skipped(&'static str),
    /// Not run although it must be.
    Missing(&'static str),
}

impl Outcome {
    /// A step without its tool is skipped, or fails where it must run.
    pub(crate) fn for_missing(tool: &'static str, must_run: bool) -> Self {
        if must_run { Self::Missing(tool) } else { Self::Skipped(tool) }
    }

    /// The word in the table and in the JSON.
    pub(crate) fn word(&self) -> String {
        match self {
            Self::Passed => "ok".to_string(),
            Self::Failed => "FAILED".to_string(),
            Self::Skipped(tool) => format!("skipped: {tool}"),
            Self::Missing(tool) => format!("FAILED: needs {tool}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Step, Tool};

    fn step(tools: &'static [Tool]) -> Step {
        Step { name: "it", proves: "nothing", required: true, tools, run: |_| Ok(()), next: "wait" }
    }

    const THERE: Tool = Tool { name: "sh", probe: &["sh", "-c", "exit 0"] };
    const BROKEN: Tool = Tool { name: "broken", probe: &["sh", "-c", "exit 1"] };
    const ABSENT: Tool = Tool { name: "absent", probe: &["no-such-program"] };

    #[test]
    fn the_first_missing_tool_is_named() {
        assert_eq!(step(&[]).missing_tool(), None);
        assert_eq!(step(&[THERE]).missing_tool(), None);
        assert_eq!(step(&[THERE, ABSENT]).missing_tool(), Some("absent"));
        assert_eq!(step(&[BROKEN, ABSENT]).missing_tool(), Some("broken"));
    }

    #[test]
    fn a_missing_tool_fails_only_where_the_step_must_run() {
        assert_eq!(Outcome::for_missing("deny", false).word(), "skipped: deny");
        assert_eq!(Outcome::for_missing("node", true).word(), "FAILED: needs node");
    }
}
