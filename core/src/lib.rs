//! No-IO state machines and the runtime-agnostic kernel of mcp-steady.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod deadline;
pub mod id;
pub mod progress;
pub mod request;
pub mod time;
