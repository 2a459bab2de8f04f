//! The client on real sockets: against our server, and against a server that a test plays by hand.

mod calls;
mod cancellation;
mod clock;
mod eras;
#[path = "../forward_proxy/mod.rs"]
mod forward_proxy;
mod listens;
mod notices;
mod process;
mod proxies;
mod recovery;
mod refusals;
mod rows;
mod session_loss;
mod session_rows;
mod sessions;
mod streams;
mod support;
mod tools;
