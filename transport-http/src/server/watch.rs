//! The request that a connection is busy with, as the connection must know it to watch its client.

use http::header::{CONNECTION, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Response, Version};

use super::body::Body;
use super::handed::Handed;
#[cfg(feature = "http2")]
use super::http2::{LONGEST_PIECE, Lane};
use super::limits::Counted;
use super::wire::{Phase, Wire};

/// A request whose head has been read. Once its body has been, [`start`](Self::start) has its client watched.
pub(super) enum Watch {
    Wire(Held),
    #[cfg(feature = "http2")]
    Lane(Lane),
}

impl Watch {
    pub(super) fn new(wire: Wire) -> Self {
        wire.enter(Phase::Body);
        Self::Wire(Held(wire))
    }

    /// Whether the connection can write a stream itself that answers this request, and whether it goes on then.
    pub(super) fn takes_over(&self, request: &Parts) -> Option<bool> {
        match self {
            // Chunks are of this version.
            Self::Wire(_) if request.version == Version::HTTP_11 => {
                let mut lines = request.headers.get_all(CONNECTION).iter();
                let close =
                    lines.any(|line| line.as_bytes().to_ascii_lowercase().windows(5).any(|word| word == b"close"));
                // One that came with a length too must be the last, since readers on the way may disagree about where the
                // next one begins. hyper has taken that length away, so it does not show here: each that is chunked is.
                Some(!close && !request.headers.contains_key(TRANSFER_ENCODING))
            }
            Self::Wire(_) => None,
            #[cfg(feature = "http2")]
            Self::Lane(_) => None,
        }
    }

    /// The body of the request is not read to its end.
    pub(super) fn leave_unread(&self) {
        match self {
            Self::Wire(Held(wire)) => wire.leave_unread(),
            #[cfg(feature = "http2")]
            Self::Lane(_) => {}
        }
    }

    /// The request has been read: from here to its last byte a hang-up is a cancellation.
    pub(super) fn start(self) -> Busy {
        match &self {
            Self::Wire(Held(wire)) => wire.enter(Phase::Busy),
            #[cfg(feature = "http2")]
            Self::Lane(_) => {}
        }
        Busy(self)
    }
}

/// A request that is not over.
pub(super) struct Busy(Watch);

impl Busy {
    /// Its client has something to take now, or has taken all.
    pub(super) fn waits_for_client(&self, waits: bool) {
        match &self.0 {
            // The socket is watched.
            Watch::Wire(_) => _ = waits,
            #[cfg(feature = "http2")]
            Watch::Lane(lane) => lane.waits_for_client(waits),
        }
    }

    /// How much of a body may be given at once, in bytes, if there is a limit.
    pub(super) const fn longest_piece(&self) -> Option<usize> {
        match &self.0 {
            Watch::Wire(_) => None,
            #[cfg(feature = "http2")]
            Watch::Lane(_) => Some(LONGEST_PIECE),
        }
    }

    /// Whether it is over with the body that holds it, and not with the body's last byte: that may wait there for its client.
    pub(super) const fn outlasts_the_last_byte(&self) -> bool {
        match &self.0 {
            Watch::Wire(_) => false,
            #[cfg(feature = "http2")]
            Watch::Lane(_) => true,
        }
    }
}

impl Busy {
    /// It is over, but for what the connection has to write: a long answer, which has this place until then.
    pub(super) fn end(self, place: Option<Counted>) {
        match (&self.0, place) {
            (Watch::Wire(Held(wire)), Some(place)) => wire.hold(place),
            (Watch::Wire(_), None) => {}
            #[cfg(feature = "http2")]
            (Watch::Lane(_), _) => {}
        }
    }

    /// Hands this stream to the connection, which takes it over with the socket; the response, if it must go the usual way.
    pub(super) fn hand_over(self, response: Response<Body>, reusable: bool) -> Option<Response<Body>> {
        let wire = match &self.0 {
            Watch::Wire(Held(wire)) => wire.clone(),
            #[cfg(feature = "http2")]
            Watch::Lane(_) => return Some(response.map(|body| body.watched(Some(self)))),
        };
        let response = response.map(|body| body.watched(Some(self)));
        wire.hand(Handed { response, reusable });
        None
    }
}

/// The connection of HTTP/1.1, which has one request at a time.
pub(super) struct Held(Wire);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.enter(Phase::Between);
    }
}
