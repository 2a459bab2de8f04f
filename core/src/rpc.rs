//! JSON-RPC text and typed messages, both ways, with raw parameters that are borrowed and never turned into a tree.
//!
//! [`parse`] reads one message, in one pass that also bounds its nesting; [`request_meta`] reads what the protocol keeps in `params._meta`; [`encode`] writes into a buffer
//! that the caller reuses. Unknown members survive, since parameters and results stay the text they came as (rule M10).

pub mod encode;
mod error;
mod level;
mod message;
mod meta;
mod notice;
pub(crate) mod scan;

pub use error::{RpcError, code};
pub use level::Level;
#[cfg(feature = "std")]
pub(crate) use message::request_id;
pub use message::{BadMessage, Body, MAX_ID_BYTES, Message, parse, parse_with_params, parse_within};
pub use meta::{MetaError, Params, RequestMeta, checked_meta, request_meta};
pub use notice::{Cancellation, ProgressNotice, read_cancellation, read_progress, read_progress_notice};
pub use scan::{MAX_NESTING, members, text};

/// The protocol revision that this library speaks.
pub const PROTOCOL_VERSION: &str = "2026-07-28";

/// Names of the methods and notifications that the library itself decides about.
pub mod method {
    /// Cancels a request (stdio, rule C2), or says that a listen ended (rule C5).
    pub const CANCELLED: &str = "notifications/cancelled";
    /// A log message.
    pub const MESSAGE: &str = "notifications/message";
    /// Progress of a request.
    pub const PROGRESS: &str = "notifications/progress";
    /// What a server speaks and offers (rule M8).
    pub const DISCOVER: &str = "server/discover";
    /// The handshake of the revisions before this one.
    pub const INITIALIZE: &str = "initialize";
    /// The tools of a server.
    pub const TOOLS_LIST: &str = "tools/list";
    /// Runs a tool.
    pub const TOOLS_CALL: &str = "tools/call";
    /// The first message of a subscription (rule L1).
    pub const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
    /// Opens a stream of change notifications.
    pub const LISTEN: &str = "subscriptions/listen";
    /// Says that the list of tools has changed.
    pub const TOOLS_LIST_CHANGED: &str = "notifications/tools/list_changed";
    /// Says that the list of prompts has changed.
    pub const PROMPTS_LIST_CHANGED: &str = "notifications/prompts/list_changed";
    /// Says that the list of resources has changed.
    pub const RESOURCES_LIST_CHANGED: &str = "notifications/resources/list_changed";
    /// Says that a resource has changed.
    pub const RESOURCES_UPDATED: &str = "notifications/resources/updated";
    /// The resources of a server.
    pub const RESOURCES_LIST: &str = "resources/list";
    /// The templates of resources of a server.
    pub const RESOURCE_TEMPLATES_LIST: &str = "resources/templates/list";
    /// Reads a resource.
    pub const RESOURCES_READ: &str = "resources/read";
    /// The state of a durable task (rule K4).
    pub const TASKS_GET: &str = "tasks/get";
    /// Input for a durable task (rule K4).
    pub const TASKS_UPDATE: &str = "tasks/update";
    /// The wish that a durable task ends (rule K3).
    pub const TASKS_CANCEL: &str = "tasks/cancel";
    /// The state of a durable task, on a listen stream (rule K6).
    pub const TASKS_NOTICE: &str = "notifications/tasks";
}
