//! Many seeds, over threads: each world is one thread's alone, so how many there are changes nothing.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::draw::draw;
use super::floor::missing;
use super::journal::{Check, Coverage, Violation, mix};
use super::mutant::Mutant;
use super::script::{Form, Script};
use super::shrink::shrink;
use super::system::{Run, run};

/// Every seed of so many is run twice.
const TWICE: u64 = 10;
/// Runs of a script that a failing one is shrunk with, at most.
const SHRINK_RUNS: usize = 3000;

/// What to run.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings")]
pub struct Options {
    /// The first seed.
    pub first: u64,
    /// The seed after the last.
    pub end: u64,
    /// Threads.
    pub jobs: usize,
    /// What is broken on purpose.
    pub mutant: Option<Mutant>,
}

/// A seed that broke something.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What it broke.
    pub violations: Vec<Violation>,
    /// Events that it was drawn with.
    pub drawn: usize,
    /// The small script that breaks the first of it.
    #[serde(skip)]
    pub script: Script,
    /// What the small script breaks.
    pub small: Vec<Violation>,
}

/// What came out.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Seeds that were run.
    pub seeds: u64,
    /// Of those, how many were run twice and came out the same.
    pub run_twice: u64,
    /// Seeds with the real ledger.
    pub real_ledger: u64,
    /// Requests that servers read.
    pub requests: u64,
    /// Calls that were made.
    pub calls: u64,
    /// Virtual time, in seconds.
    pub virtual_seconds: u64,
    /// The hash of all traces.
    pub hash: String,
    /// What happened how often.
    pub coverage: Coverage,
    /// What has to happen in so many seeds, and did not.
    pub missing: Vec<&'static str>,
    /// The lowest seed that broke something; later ones were not run.
    pub failure: Option<Failure>,
}

impl Report {
    /// Whether all held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.failure.is_none() && self.missing.is_empty()
    }
}

#[derive(Default)]
struct Sums {
    report: Report,
    hashes: BTreeMap<u64, u64>,
    virtual_time: u64,
    failed: BTreeMap<u64, Vec<Violation>>,
    trouble: Option<io::Error>,
}

/// Runs a script, with a directory of its own for a real ledger.
///
/// # Errors
/// There is no temporary directory.
pub fn play(script: &Script, record: bool) -> io::Result<Run> {
    match script.world.ledger {
        Form::Memory => Ok(run(script, std::path::Path::new("."), record)),
        Form::Sqlite => {
            let dir = tempfile::tempdir()?;
            Ok(run(script, dir.path(), record))
        }
    }
}

/// Runs a script twice: that the second run is another is a violation, too.
///
/// # Errors
/// There is no temporary directory.
pub fn play_twice(script: &Script, record: bool) -> io::Result<Run> {
    let mut first = play(script, record)?;
    if play(script, false)?.hash != first.hash {
        first.violations.push(Violation::not_the_same());
    }
    Ok(first)
}

/// Runs seeds until one breaks something. `done` is told after each how many there are so far.
///
/// # Errors
/// There is no temporary directory.
pub fn batch(options: &Options, done: &(dyn Fn(u64) + Sync)) -> io::Result<Report> {
    let (next, stop) = (AtomicU64::new(options.first), AtomicBool::new(false));
    let sums = Mutex::new(Sums::default());
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= options.end {
                return;
            }
            let script = draw(seed, options.mutant);
            let ran = play(&script, false).and_then(|first| Ok((twice(seed, &script, &first)?, first)));
            let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
            match ran {
                Ok((again, run)) => sums.add(seed, &script, run, again),
                Err(error) => sums.trouble = Some(error),
            }
            if sums.trouble.is_some() || !sums.failed.is_empty() {
                stop.store(true, Ordering::Relaxed);
            }
            done(sums.report.seeds);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.jobs.max(1) {
            scope.spawn(work);
        }
        work();
    });
    let sums = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(trouble) = sums.trouble {
        return Err(trouble);
    }
    let mut report = sums.report;
    report.virtual_seconds = sums.virtual_time / 1_000_000_000;
    report.hash = format!("{:016x}", sums.hashes.values().fold(0, |hash, one| mix(hash, *one)));
    report.missing = missing(&report.coverage, report.seeds);
    if let Some((seed, violations)) = sums.failed.into_iter().next() {
        // A run that broke off has not seen all.
        report.missing.clear();
        report.failure = Some(failure(seed, violations, options.mutant)?);
    }
    Ok(report)
}

/// Some are run twice: the hash of the second run.
fn twice(seed: u64, script: &Script, first: &Run) -> io::Result<Option<u64>> {
    if !seed.is_multiple_of(TWICE) {
        return Ok(None);
    }
    debug_assert!(!first.coverage.is_empty(), "something has happened");
    play(script, false).map(|second| Some(second.hash))
}

fn failure(seed: u64, violations: Vec<Violation>, mutant: Option<Mutant>) -> io::Result<Failure> {
    let drawn = draw(seed, mutant);
    let first = violations.first().map(|broken| broken.check);
    // Only two runs show that they are not the same.
    let judged = if first == Some(Check::SameRun) { play_twice } else { play };
    let breaks = |script: &Script| judged(script, false).ok()?.violations.first().map(|broken| broken.check);
    let script = first.map_or_else(|| drawn.clone(), |check| shrink(&drawn, check, SHRINK_RUNS, breaks));
    let small = judged(&script, false)?.violations;
    Ok(Failure { seed, violations, drawn: drawn.events.len(), script, small })
}

impl Sums {
    fn add(&mut self, seed: u64, script: &Script, run: Run, again: Option<u64>) {
        let Run { mut violations, hash, requests, calls, virtual_time, coverage, .. } = run;
        let report = &mut self.report;
        report.seeds += 1;
        report.requests += requests;
        report.calls += calls;
        report.real_ledger += u64::from(script.world.ledger == Form::Sqlite);
        self.virtual_time += virtual_time;
        for (name, count) in coverage {
            *report.coverage.entry(name).or_default() += count;
        }
        self.hashes.insert(seed, hash);
        match again {
            Some(second) if second == hash => report.run_twice += 1,
            Some(_) => violations.push(Violation::not_the_same()),
            None => {}
        }
        if !violations.is_empty() {
            self.failed.insert(seed, violations);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::floor::{FLOOR, FROM, missing};
    use super::super::journal::Check;
    use super::{Sums, draw, play};

    #[test]
    fn a_second_run_that_is_another_is_a_failure() {
        let script = draw(0, None);
        let run = play(&script, false).expect("it runs");
        let (mut same, mut other) = (Sums::default(), Sums::default());
        same.add(0, &script, run.clone(), Some(run.hash));
        other.add(0, &script, run.clone(), Some(run.hash ^ 1));
        assert_eq!((same.report.run_twice, same.failed.len()), (1, 0));
        assert_eq!(other.failed[&0].first().map(|broken| broken.check), Some(Check::SameRun));
    }

    #[test]
    fn what_was_never_seen_is_missing_from_so_many_seeds_on() {
        let mut seen: BTreeMap<&str, u64> = FLOOR.iter().map(|name| (*name, 1)).collect();
        assert_eq!(missing(&seen, FROM), [""; 0]);
        seen.remove("unknown");
        assert_eq!(missing(&seen, FROM), ["unknown"]);
        assert_eq!(missing(&seen, FROM - 1), [""; 0]);
    }
}
