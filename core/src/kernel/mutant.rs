//! Deliberate faults in this kernel, for loom to find. Without `--cfg steady_loom` they are not there.
//!
//! A model of `core/tests/loom` that finds no fault could as well be blind. So each names the mutants that it must kill, and
//! `cargo xtask loom` runs it once under each: `STEADY_MUTANT=name` chooses one for a process.

/// Whether this process runs the mutant of this name.
#[cfg(not(steady_loom))]
#[inline(always)]
pub(super) const fn is(_: &str) -> bool {
    false
}

/// Whether this process runs the mutant of this name.
#[cfg(steady_loom)]
pub(super) fn is(name: &str) -> bool {
    static CHOSEN: super::sync::OnceLock<Option<std::ffi::OsString>> = super::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var_os("STEADY_MUTANT"));
    chosen.as_ref().is_some_and(|chosen| chosen == name)
}
