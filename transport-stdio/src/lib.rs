//! MCP over stdio: a server with cancellation, deadlines and flow control right by construction.
//!
//! ```no_run
//! use steady_stdio::{Reply, Tools, run_stdio};
//!
//! fn main() -> std::process::ExitCode {
//!     let schema = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;
//!     run_stdio(Tools::new("hello", "1.0.0").tool("hello", "Greets.", schema, |_call, _cx| async {
//!         Ok(Reply::text("hello"))
//!     }))
//! }
//! ```
//!
//! [`run_stdio`] owns the process: it ends promptly at the end of input, also with a handler that ignores its cancellation.
//! [`serve_stdio`] and [`serve`] are futures for a program that has a tokio runtime of its own; the second takes any pair
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
#![forbid(unsafe_code)]

#[cfg(unix)]
mod guard;
mod line;
mod ports;
mod server;
#[cfg(unix)]
mod signals;
mod stream;

#[cfg(unix)]
pub use guard::StdoutGuard;
pub use server::{Signals, StdioConfig, StdioError, run_stdio, run_stdio_with, serve, serve_stdio};
pub use steady_core;
pub use steady_core::kernel::{
    Answer, Call, CancelReason, Cancelled, Context, Outcome, Reply, ServerConfig, ServerCounters, Service, Shutdown,
    Stats, ToolCall, Tools,
};
pub use steady_core::rpc::RpcError;
