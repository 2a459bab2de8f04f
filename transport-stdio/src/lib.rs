//! MCP over stdio: server and client with cancellation, deadlines and flow control right by construction.
//!
//! A server (feature `server`):
//!
//! ```no_run
//! # #[cfg(feature = "server")]
//! # mod server {
//! use steady_stdio::{Reply, Tools, run_stdio};
//!
//! fn main() -> std::process::ExitCode {
//!     let schema = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;
//!     run_stdio(Tools::new("hello", "1.0.0").tool("hello", "Greets.", schema, |_call, _cx| async {
//!         Ok(Reply::text("hello"))
//!     }))
//! }
//! # }
//! ```
//!
//! `run_stdio` owns the process: it ends promptly at the end of input, also with a handler that ignores its cancellation.
//! `serve_stdio` and `serve` are futures for a program that has a tokio runtime of its own; the second takes any pair
//! of streams with the same framing: one message a line (rule S1).
//!
//! | what arrives | what happens |
//! |---|---|
//! | `notifications/cancelled` for a request in flight | its handler is told; no new message of it starts (rule C3) |
//! | a line that is no message | it costs itself only; at most one id-less error goes out (rule S2) |
//! | the end of input | handlers are cancelled, then a short drain, then the future ends (rule S3) |
//! | more requests than the cap | each more is refused with an error |
//! | SIGTERM, under [`run_stdio`] | what runs may finish, new requests are refused, then it exits; see [`Shutdown`] |
//!
//! Whatever the process prints to standard output goes to standard error meanwhile; see [`StdoutGuard`].
//!
//! A client (feature `client`) is in the module `client`: it spawns a server as a child process and looks after it, or
//! attaches to any pair of streams.
//!
//! # Systems
//! Tests run on Linux. For macOS and Windows the crate is type-checked and linted with both features, and not run:
//! `cargo xtask verify --only targets` does that for `x86_64-apple-darwin` and `x86_64-pc-windows-gnu`.
#![deny(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
#[cfg(all(unix, feature = "server"))]
mod guard;
#[cfg(any(feature = "client", feature = "server"))]
mod line;
#[cfg(any(feature = "client", feature = "server"))]
mod ports;
#[cfg(feature = "server")]
mod server;
#[cfg(all(unix, feature = "server"))]
mod signals;
#[cfg(any(feature = "server", all(feature = "client", windows)))]
mod stream;

#[cfg(all(unix, feature = "server"))]
pub use guard::StdoutGuard;
#[cfg(feature = "server")]
pub use server::{Signals, StdioConfig, StdioError, run_stdio, run_stdio_with, serve, serve_stdio};
pub use steady_core;
#[cfg(feature = "server")]
pub use steady_core::kernel::{
    Answer, Call, CancelReason, Cancelled, Contents, Context, Hub, HubConfig, HubCounters, Kinds, Outcome, Reply,
    Resource, ResourcePage, ResourceRead, Resources, ServerConfig, ServerCounters, Service, Shutdown, Stats, ToolCall,
    Tools,
};
pub use steady_core::rpc::RpcError;
