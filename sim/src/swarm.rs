//! The swarm: worlds of clients and servers under faults, drawn from seeds, played twice as the same, judged from outside.
//!
//! ```text
//!   seed ──draw──► Script (world, events) ──run──► Run (violations, coverage, hash)
//!                    ▲ one JSON value a line           │ a violation
//!                    └──────────── shrink ◄────────────┘
//! ```
//!
//! A world runs the shipped machines and the shipped loops over virtual time: [`Driver`](steady_core::kernel::client::Driver)
//! and [`Connection`](steady_core::kernel::Connection) or [`Exchange`](steady_core::kernel::Exchange), with a real ledger file
//! or a fake of it. After the last event all is healed, and the world has to come to rest.

pub mod batch;
mod calm;
mod client;
mod draw;
mod floor;
mod jobs;
pub mod journal;
pub mod mutant;
pub mod script;
mod server;
mod shrink;
pub mod store;
mod switch;
mod system;

pub use batch::{Failure, Options, Report, batch, play, play_twice};
pub use draw::draw;
pub use floor::{FLOOR, FROM};
pub use journal::{Check, Coverage, Violation};
pub use mutant::Mutant;
pub use script::{Event, Script, ScriptError};
pub use shrink::shrink;
pub use system::{Run, run};
