//! The shop's real server and the shipped clients, over both transports: what is lost on the way, and what is done about it.
#![cfg(all(feature = "live", unix))]

mod decide;
mod proxy;
mod restock;
mod support;
mod watched;
