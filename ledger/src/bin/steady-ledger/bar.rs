//! A progress bar on standard error, if that is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A bar that counts this.
pub(crate) fn bar(unit: &'static str) -> ProgressBar {
    // Hidden by itself where standard error is no terminal.
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let template = format!("{{wide_bar}} {{pos}}/{{len}} {unit}, {{eta}} left");
    match ProgressStyle::with_template(&template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Shows how far something is.
pub(crate) fn advance(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
}
