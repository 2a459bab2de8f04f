//! Deliberate faults in the writer's queue and its answers, for loom to find. Without `--cfg steady_loom` they are not
//! there. `cargo xtask loom` runs each model of `ledger/tests/loom` under those that it must kill: `STEADY_MUTANT=name`
//! chooses one for a process.

/// Whether this process runs the mutant of this name.
#[cfg(not(steady_loom))]
#[inline(always)]
pub(crate) const fn is(_: &str) -> bool {
    false
}

/// Whether this process runs the mutant of this name.
#[cfg(steady_loom)]
pub(crate) fn is(name: &str) -> bool {
    // Not loom's: it holds what a process settles once, and no model looks into it.
    static CHOSEN: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| std::env::var_os("STEADY_MUTANT"));
    chosen.as_ref().is_some_and(|chosen| chosen == name)
}
