//! The server on real sockets: what clients, proxies and attackers do, and what handlers learn of it.

mod bounds;
mod cancellation;
mod field_reports;
#[cfg(feature = "http2")]
mod http2;
mod legacy;
mod limits;
mod refused;
mod rules;
mod security;
mod session_changes;
mod shutdown;
mod streams;
mod subscriptions;
mod support;
mod texts;
