//! The server: from an HTTP request to an exchange of the kernel, and back.
//!
//! ```text
//!   listen ── accepts ──► connection: hyper over `wire`, and a watch for the hang-up that hyper does not see
//!                         http2: the same, each request a stream
//!                             │                                                                         ▲ `handed`: a stream
//!   axum, hyper, … ───────────┴─► service ──► respond: check, then Exchange ──► Body: one JSON object, or `stream`
//! ```

mod body;
mod check;
mod config;
mod connection;
mod handed;
#[cfg(feature = "http2")]
mod http2;
mod legacy;
mod limits;
mod listen;
mod ports;
mod refuse;
mod respond;
mod service;
mod sessions;
#[cfg(unix)]
mod signals;
mod stream;
mod unread;
mod watch;
mod wire;

pub use body::Body;
pub use config::{Authenticate, HttpConfig, Principal, ServeConfig, Unauthorized};
pub use limits::HttpCounters;
pub use listen::{Server, bind, run_http, run_http_with};
pub use service::HttpService;
