//! The client over TLS.
