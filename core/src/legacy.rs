//! The revisions before 2026-07-28, which open with a handshake: 2025-11-25, 2025-06-18, 2025-03-26.
//!
//! The two eras differ in meaning, not in form only: the same hang-up is a cancellation in one and none in the other. They
//! are kept apart by type. Everything behind this module speaks the modern revision; what a peer of the older ones says is
//! turned into it here, and what it is told is turned back. No other module knows that there are two.
//!
//! | module | decides |
//! |---|---|
//! | [`revision`] | which revision a handshake agrees on, and what it has |
//! | [`session`] | what a session lets through, and when: the one machine |
//! | [`handshake`] | the parameters of `initialize`, its result |
//! | [`request`] | a request of a session as one of the modern revision |
//! | [`answer`] | results and errors, back |
//! | [`ask`] | what a server asks of its client |
//! | [`batch`] | several messages in one text |

pub mod answer;
pub mod ask;
pub mod batch;
pub mod handshake;
pub mod request;
pub mod revision;
pub mod session;

pub use ask::Outstanding;
pub use handshake::Handshake;
pub use revision::Revision;
pub use session::{Asked, Effect, Event, Refusal, Session};

/// Names of the methods and notifications of the older revisions that are gone from the modern one.
pub mod method {
    /// The client has read the result of `initialize`.
    pub const INITIALIZED: &str = "notifications/initialized";
    /// Whether the other side is there.
    pub const PING: &str = "ping";
    /// From which level on the client wants log messages.
    pub const SET_LEVEL: &str = "logging/setLevel";
    /// The client wants to hear of changes of a resource.
    pub const SUBSCRIBE: &str = "resources/subscribe";
    /// It does not any more.
    pub const UNSUBSCRIBE: &str = "resources/unsubscribe";
}

/// What a server of these revisions only says to a request of the modern one. It is no error of that one, so that a client
/// that speaks both begins with a handshake.
pub const ONLY: &str = "this server speaks the revisions up to 2025-11-25 only: begin a session with initialize";

/// The code of a resource that does not exist. It is never used in the modern revision (rule M11).
pub const RESOURCE_NOT_FOUND: i64 = -32002;
