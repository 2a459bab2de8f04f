//! MCP over Streamable HTTP: a server in which a disconnect is a cancellation, whenever it comes, and a client that
//! cancels by nothing else.
//!
//! ```no_run
//! use steady_http::{Reply, Tools, run_http};
//!
//! fn main() -> std::process::ExitCode {
//!     let schema = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;
//!     let tools = Tools::new("hello", "1.0.0").tool("hello", "Greets.", schema, |_call, _cx| async {
//!         Ok(Reply::text("hello"))
//!     });
//!     run_http(tools, "127.0.0.1:8080") // POST http://127.0.0.1:8080/mcp
//! }
//! ```
//!
//! [`run_http`] owns the process; [`Server`] serves a listener within a tokio runtime and shuts down gracefully;
//! [`HttpService`] is a tower service over `http` types, for axum, hyper and everything that takes one.
//! [`sse`] and [`headers`] are the pure parts: server-sent events both ways, and the header rules (H3 to H7, H9).
//!
//! | what happens | what follows |
//! |---|---|
//! | the handler answers before it says anything else | one JSON object, with the status of rules M3 and M5 |
//! | it reports progress, or takes longer than [`HttpConfig::stream_after`] | an SSE stream that ends with the answer |
//! | the client hangs up or half-closes, at any moment | the handler is told, and is dropped after its grace period (rule C1) |
//! | the client stays and does not read | progress coalesces; after [`ServeConfig::write_stall`] it counts as gone |
//! | more requests, streams or bytes than allowed | 429 with `Retry-After`, 503, 413, 431 |
//! | [`ServerConfig::shutdown`] is thrown; SIGTERM or SIGINT under [`run_http`] | listens end with their result (rule L4), new requests are 503, pending ones have their time and then get one error (rule C8) |
//! | a request carries `Idempotency-Key` | [`ToolCall::idempotency_key`] finds it, and refuses it if another place says otherwise |
//!
//! The third row is complete under [`Server`], which watches the socket itself. Mounted into another server, the service
//! learns of a hang-up when that server drops the response: hyper stops reading while bytes wait that it has not asked
//! for, a pipelined request for instance, and then notices only when it next writes. What nginx, HAProxy, Apache and Caddy
//! need in front of it is in `PROXIES.md` beside this crate's manifest.
//!
//! With the feature `http2` (not on by default: it adds h2 and the crates that it needs) [`Server`] speaks HTTP/2 with prior
//! knowledge on the same port. Each request is a stream then: a reset, or the loss of the connection, is the hang-up, and the
//! other streams go on. [`ServeConfig::max_streams`] bounds them.
//!
//! The client (feature `client`, on by default; `https` with the feature `tls`) is in the module `client`.
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
pub mod client;
#[cfg(any(feature = "client", feature = "server"))]
mod clock;
pub mod headers;
#[cfg(feature = "server")]
mod server;
pub mod sse;
#[cfg(any(feature = "client", feature = "server"))]
mod warn;

#[cfg(feature = "server")]
pub use server::{
    Authenticate, Body, HttpConfig, HttpCounters, HttpService, Principal, ServeConfig, Server, Unauthorized, bind,
    run_http, run_http_with,
};
pub use steady_core;
pub use steady_core::kernel::{
    Answer, Call, CancelReason, Cancelled, Contents, Context, Hub, HubConfig, HubCounters, Kinds, Outcome, Reply,
    Resource, ResourcePage, ResourceRead, Resources, ServerConfig, Service, ToolCall, Tools,
};
pub use steady_core::rpc::RpcError;
#[cfg(any(feature = "client", feature = "server"))]
pub use warn::Warn;
