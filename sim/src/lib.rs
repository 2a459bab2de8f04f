//! The simulator and the lab of mcp-steady: the shipped machines and the shipped kernel under virtual time.
//!
//! The library knows no runtime, no transport and no real clock; the binary's feature `live` brings those.
#![forbid(unsafe_code)]

pub mod demo;
pub mod evidence;
pub mod experiment;
pub mod explore;
pub mod failures;
pub mod herd;
pub mod lab;
#[cfg(feature = "live")]
pub mod pages;
pub mod review;
mod suggest;
pub mod swarm;
pub mod wire;
pub mod world;

pub use suggest::is_near;
