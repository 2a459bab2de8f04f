//! What the ledger promises, under crashes, faults and many callers; each checker with what it must refuse.
//!
//! The runs are short. `cargo xtask crash` makes them longer, by the variables that each module names.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a search reports its size")]

mod check;
mod crash;
mod faults;
mod history;
mod kill;
#[path = "../support/peer.rs"]
mod peer;
mod shop;

/// How much of something to do: what the variable says, or the default.
fn amount(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().map_or(default, |text| text.parse().expect("a number"))
}
