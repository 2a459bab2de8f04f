//! The one home of the invariants: a function for each id. The id and its statement stand in the docs of the machine that it
//! binds; a function holds what a test saw against it, and panics with the id.
//!
//! `cargo xtask verify --only invariants` fails when an id has no function, a function no id, when no test calls a
//! function, or when none shows that it refuses a wrong value (`core/tests/invariants`).
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod client;
mod coordinator;
mod legacy;
mod listener;
mod mrtr;
mod outbound;
mod request;
mod retry;
mod subscription;
mod task;

pub(crate) use client::*;
pub(crate) use coordinator::*;
pub(crate) use legacy::*;
pub(crate) use listener::*;
pub(crate) use mrtr::*;
pub(crate) use outbound::*;
pub(crate) use request::*;
pub(crate) use retry::*;
pub(crate) use subscription::*;
pub(crate) use task::*;

use std::fmt::Debug;

/// Where and when a checker looks: what its panic says beside the id.
pub(crate) type At<'a> = &'a dyn Debug;
