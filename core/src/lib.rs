//! No-IO state machines and the runtime-agnostic kernel of mcp-steady.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod backoff;
pub mod id;
pub mod retry;
pub mod subscription;
pub mod task;
pub mod time;
