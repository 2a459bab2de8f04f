//! What an experiment says: a row for each request, and what happened, moment by moment.

use std::fmt;

use serde::Serialize;
use steady_core::time::Instant;

/// What became of one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The request.
    pub request: String,
    /// Its terminal state at the client.
    pub client: &'static str,
    /// Whether a final response for it crossed the wire.
    pub response: bool,
    /// How the client told the server that it is given up.
    pub signal: Signal,
    /// What the contract allows the client to do next; `None` after an answer.
    pub next: Option<&'static str>,
    /// What happened to it and changed nothing, in order.
    pub ignored: Vec<Ignored>,
}

/// The cancel signal that crossed the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "the protocol has these")]
pub enum Signal {
    /// None.
    None,
    /// A `notifications/cancelled` message (rule C2).
    Notification,
    /// The end of the response stream, and no message (rule C1).
    ClosedStream,
}

impl Signal {
    /// As people read it.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Notification => "notifications/cancelled",
            Self::ClosedStream => "stream closed",
        }
    }
}

/// An event that came too late.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Ignored {
    /// Who ignored it.
    pub by: Side,
    /// What it was.
    pub event: &'static str,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = if self.by == Side::Client { "client" } else { "server" };
        write!(f, "{} (by the {by})", self.event)
    }
}

impl Row {
    /// What was ignored, in words; `nothing` if nothing was.
    #[must_use]
    pub fn ignored_text(&self) -> String {
        let ignored: Vec<String> = self.ignored.iter().map(ToString::to_string).collect();
        if ignored.is_empty() { "nothing".into() } else { ignored.join(", ") }
    }

    /// Whether there is a final response: yes or no.
    #[must_use]
    pub const fn response_text(&self) -> &'static str {
        if self.response { "yes" } else { "no" }
    }
}

/// One end of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(clippy::exhaustive_enums, reason = "there are two")]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

/// One entry of what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moment {
    /// When.
    pub at: Instant,
    /// Where.
    pub lane: Lane,
    /// What, as people read it; of a message its text without the metadata.
    pub text: String,
    /// Of a message: whether it never arrived, because its stream broke.
    pub lost: bool,
}

/// Where something happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there are two ends, two directions, and the script")]
pub enum Lane {
    /// A step of the script.
    Step,
    /// A message that leaves the client, or what the client does instead of sending one.
    ToServer,
    /// A message that leaves the server.
    ToClient,
    /// At the client.
    Client,
    /// At the server.
    Server,
    /// In the network.
    Network,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lead = match self.lane {
            Lane::Step => "* ",
            Lane::ToServer => "  client -> server  ",
            Lane::ToClient => "  client <- server  ",
            Lane::Client | Lane::Server | Lane::Network => "  ",
        };
        let lost = if self.lost { "  (lost)" } else { "" };
        write!(f, "{:>12}  {lead}{}{lost}", self.at.to_string(), self.text)
    }
}
