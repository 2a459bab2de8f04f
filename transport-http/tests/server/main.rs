//! The server on real sockets: what clients, proxies and attackers do, and what handlers learn of it.

mod cancellation;
mod field_reports;
mod legacy;
mod limits;
mod rules;
mod shutdown;
mod streams;
mod support;
