//! For operators: what is in a ledger, whether it is sound, and copies of it. Nothing here runs an effect.
//!
//! These work on connections of their own, so that they do not wait for calls. Snapshots are short, so that the write-ahead
//! log can be emptied; only a backup and the check of the pages need one for as long as they read the file.

mod backup;
mod check;
pub(crate) mod overview;

pub use backup::BackupError;
pub use check::{Checked, Finding};
pub use overview::{KeyFilter, KeyRow, MessageRow, Overview, state_name};
