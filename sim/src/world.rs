//! Virtual time for the shipped kernel: a clock that only moves when nobody is ready, an executor, links and a network.
//!
//! Nothing here decides anything about the protocol: client calls are [`steady_core::client`], the server is
//! [`steady_core::kernel`]. The world implements their ports. [`Network`] is one client and one server, for what is shown
//! step by step; the pipes and links of the [swarm](crate::swarm) carry many.

mod executor;
mod line;
mod link;
mod network;
mod pipe;
mod web;

pub use executor::{Executor, Group, Spawner, TaskId};
pub use line::{LineEnd, Observer};
pub use network::{Network, NetworkOptions, Wire};
pub use pipe::{Arrived, Pipe, Weather};
pub use web::{Posted, Web, WebLink};
