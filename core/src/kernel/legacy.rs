//! The adapter of the older revisions: it carries [`legacy`](crate::legacy) at the edge of a server.
//!
//! ```text
//!   text ─► engine ── not of the modern revision ──► Door (stdio), LegacyExchange (HTTP)
//!              ▲                                        │ a modern request, with what the session knows
//!              └────────────────────────────────────────┘
//!   handler ─► outcome ─► bridge: asks the client what the handler needs, calls it again, strips what is modern ─► slot
//! ```
//!
//! A handler cannot tell the eras apart. Its demand for input becomes requests to the client, on the way that its answer
//! takes; the answers become the `inputResponses` of its next call.

mod bridge;
mod calls;
mod door;
mod exchange;
mod link;
mod listens;
mod parked;
mod probe;
mod reader;
mod requests;
mod session;
mod stream;

pub(super) use calls::parked_call;
pub(super) use door::Door;
pub use exchange::{LegacyExchange, LegacyRequest, LegacySession};
pub use link::{EraLink, Standing};
pub use requests::NotBegun;
pub use stream::LegacyStream;
