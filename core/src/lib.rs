//! No-IO state machines and the runtime-agnostic kernel of mcp-steady.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod coordinator;
pub mod deadline;
pub mod id;
#[cfg(feature = "std")]
pub mod kernel;
pub mod outbound;
pub mod progress;
pub mod request;
pub mod rpc;
pub mod time;
