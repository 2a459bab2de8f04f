//! How large an exhaustive search was, and how long it took: printed for a reader.
#![expect(clippy::print_stdout, reason = "the searches report their size")]
#![allow(dead_code, reason = "each test binary uses its part")]

use std::time::Instant;

/// Counts what a search meets.
pub(crate) struct Searched {
    begun: Instant,
    pub(crate) states: usize,
    pub(crate) transitions: usize,
}

impl Searched {
    pub(crate) fn begin() -> Self {
        Self { begun: Instant::now(), states: 0, transitions: 0 }
    }

    /// Counts a state that was not seen before; hands on whether it is new.
    pub(crate) fn state(&mut self, new: bool) -> bool {
        self.states += usize::from(new);
        new
    }

    /// Prints the size and the time since the beginning.
    pub(crate) fn report(&self, name: &str) {
        let (states, transitions) = (self.states, self.transitions);
        println!("{name}: {states} states, {transitions} transitions, {:?}", self.begun.elapsed());
    }
}
