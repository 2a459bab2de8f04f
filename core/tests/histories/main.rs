//! Long histories of the machines, each watched by a model that is smaller than the machine.
//!
//! A history is a list of concrete operations, one on a line of text. A failure is shrunk and kept as such a list in
//! `failures`; a list in `regressions` is replayed for ever. Neither is ever a seed, which a change of the generator
//! would turn into another history.
#![expect(clippy::print_stdout, reason = "the mutants report how they were caught")]
#![expect(clippy::wildcard_enum_match_arm, reason = "any answer but the expected ones fails the check")]

mod attempts;
mod history;
mod lifecycle;
mod recovery;
mod replays;
mod tasks;
