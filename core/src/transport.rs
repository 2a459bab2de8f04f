//! The two transports of the protocol, as far as decisions differ between them.

use alloc::vec::Vec;

use crate::id::RequestId;
use crate::rpc::encode;

/// Which transport carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the two transports of the protocol")]
pub enum Transport {
    /// One link for all requests.
    Stdio,
    /// A stream for each request (Streamable HTTP).
    Http,
}

/// How a client tells a server that a request is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the two transports of the protocol")]
pub enum CancelSignal {
    /// Send `notifications/cancelled` (stdio, rule C2).
    Notify,
    /// Close the request's response stream; send nothing (Streamable HTTP, rule C1).
    CloseStream,
}

impl Transport {
    /// Its cancel signal.
    #[must_use]
    pub const fn cancel_signal(self) -> CancelSignal {
        match self {
            Self::Stdio => CancelSignal::Notify,
            Self::Http => CancelSignal::CloseStream,
        }
    }
}

/// The one cancellation that a server may send: of a listen of its own that it has ended (rule C5).
///
/// Only [`end_listen`](crate::coordinator::RequestCoordinator::end_listen) makes one, so there is no way to name another
/// request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListenCancellation {
    id: RequestId,
}

impl ListenCancellation {
    pub(crate) const fn new(id: RequestId) -> Self {
        Self { id }
    }

    /// The id of the listen request.
    #[must_use]
    pub const fn id(&self) -> &RequestId {
        &self.id
    }

    /// Appends the notification that follows the final result, and says whether there is one: on stdio there is, on HTTP
    /// the stream closes instead.
    #[must_use]
    pub fn encode(&self, transport: Transport, out: &mut Vec<u8>) -> bool {
        match transport {
            Transport::Stdio => {
                encode::cancelled(out, &self.id, None);
                true
            }
            Transport::Http => false,
        }
    }
}
