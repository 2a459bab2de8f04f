//! MCP over Streamable HTTP: the pure parts, without a socket.
//!
//! [`sse`] turns JSON-RPC messages into server-sent events and back (rules H6, H7). [`headers`] holds the header rules
//! and the order in which a server checks them (rules H3, H4, H5, H9).
#![forbid(unsafe_code)]

pub mod headers;
pub mod sse;
