//! Virtual time for the shipped kernel: a clock that only moves when nobody is ready, an executor, and a network.
//!
//! Nothing here decides anything about the protocol: client calls are [`steady_core::client`], the server is
//! [`steady_core::kernel`]. The world implements their ports.

mod executor;
mod link;
mod network;

pub use executor::{Executor, TaskId};
pub use network::{Network, NetworkOptions, Wire};
