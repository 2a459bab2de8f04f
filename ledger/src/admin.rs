//! For operators: what is in a ledger, whether it is sound, and copies of it. Nothing here runs an effect.
//!
//! These work on connections of their own, in short snapshots, so that they neither wait for calls nor keep the
//! write-ahead log from being emptied.

mod backup;
mod check;
mod overview;

pub use backup::BackupError;
pub use check::{Checked, Finding};
pub use overview::{KeyFilter, KeyRow, Overview, state_name};
