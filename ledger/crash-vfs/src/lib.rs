//! A file layer for SQLite that remembers, fails and loses what a disk can.
//!
//! A [`Disk`] is a SQLite VFS over the system's own, shared memory of the write-ahead log included. It asks a hook before
//! each call, which can fail it, skip it, or stop the thread there ([`Asked`], [`Answer`]); and it keeps a log of what
//! was written and synced, from which [`images`] computes what a power cut at each point can leave behind.
//!
//! It never syncs for real: what a power cut leaves is computed, not tried.
//!
//! What is modelled: a write that was not synced is there or not, in sectors of 512 bytes, independently of the others;
//! a file that was never synced may be missing; a deletion that was not synced may not have happened. A sync of a file
//! makes its name durable too. The first sync of a new journal or log syncs its folder, as SQLite's own layer does it.
//! Not modelled: sectors that lose what was synced.

mod disk;
mod image;
mod vfs;

pub use disk::{Answer, Asked, Call, Disk, Event, Kind};
pub use image::{Cut, Image, Rng, images};
