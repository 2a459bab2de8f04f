//! The older revisions on a link that carries all messages of one client: stdio.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::task::Context;

use super::session::{Came, Shared, error_of, is_modern};
use crate::kernel::engine::{Engine, Eras};
use crate::kernel::foreign::Foreign;
use crate::kernel::service::Service;
use crate::legacy::batch::{self, BatchError};
use crate::legacy::{Effect, Event, ONLY, Refusal, method};
use crate::rpc::{BadMessage, RpcError, code, method as modern};
use crate::time::Instant;

/// The one session of a link, and the batch of which messages are still to be read.
#[derive(Debug)]
pub(in crate::kernel) struct Door {
    session: StdArc<Shared>,
    /// Nothing else is spoken on this link.
    only: bool,
    /// Messages of a batch, at most [`MAX_BATCH`](batch::MAX_BATCH). Each is served when there is room for its refusal.
    batch: VecDeque<Box<str>>,
    /// Whether there was a handshake: before, there is nobody to tell of changes.
    shaken: bool,
}

impl Door {
    /// `None` if only the modern revision is served.
    pub(in crate::kernel) fn new(eras: Eras) -> Option<Self> {
        let only = match eras {
            Eras::Both => false,
            Eras::Legacy => true,
            Eras::Modern => return None,
        };
        Some(Self { session: StdArc::default(), only, batch: VecDeque::new(), shaken: false })
    }

    /// Whether the modern revision is not spoken here.
    pub(in crate::kernel) const fn is_only(&self) -> bool {
        self.only
    }

    /// The next message of a batch.
    pub(in crate::kernel) fn next_of_batch(&mut self) -> Option<Box<str>> {
        if self.batch.is_empty() { None } else { self.batch.pop_front() }
    }

    /// What the engine handed back; `text` is the whole of it. `batched`: it stood in a batch.
    pub(in crate::kernel) fn receive<S: Service>(
        &mut self,
        engine: &mut Engine<S>,
        now: Instant,
        foreign: Foreign<'_>,
        text: &str,
        batched: bool,
    ) {
        if !self.only && !batched && is_modern(&foreign) {
            return engine.reject(foreign);
        }
        match foreign {
            Foreign::Request { id, method, params, error } => {
                self.shaken |= method == modern::INITIALIZE;
                let came = Came { id: id.clone(), method: &method, params, key_header: None, reader: None };
                if let Err(refusal) = self.session.request(engine, now, came) {
                    let told = match (self.only, refusal) {
                        (true, Refusal::NotInitialized) => RpcError::new(code::INVALID_REQUEST, ONLY),
                        (true, refusal) => error_of(refusal, &method),
                        (false, _) => error.into(),
                    };
                    engine.refuse_request(&id, &told);
                }
            }
            Foreign::Notification { method } if method == method::INITIALIZED => {
                let _ready = self.session.handle(Event::Initialized);
            }
            Foreign::Response { id: Some(id), body } if self.session.answered(&id, body) => {}
            Foreign::Bad(bad) => self.bad(engine, bad, text, batched),
            other @ (Foreign::Notification { .. } | Foreign::Response { .. }) => engine.reject(other),
        }
    }

    /// Tells the client of changes, while there is room. Whether it stopped for want of it: then nothing rings for what
    /// is still marked in the subscription, and the caller looks again once there is room.
    pub(in crate::kernel) fn announce<S: Service>(&self, engine: &Engine<S>, cx: &mut Context<'_>) -> bool {
        if !self.shaken || !self.session.has_changes() {
            return false;
        }
        let mut body = Vec::new();
        loop {
            if !engine.can_read() {
                return true;
            }
            if self.session.poll_change(cx, &mut body).is_pending() {
                return false;
            }
            let _placed = engine.queue.refuse(core::mem::take(&mut body));
        }
    }

    fn bad<S: Service>(&mut self, engine: &mut Engine<S>, bad: BadMessage, text: &str, batched: bool) {
        let several = !batched && text.trim_start().starts_with('[') && self.session.revision().is_some();
        if !several || self.session.handle(Event::Batch) != Effect::Unpack {
            return engine.reject(Foreign::Bad(bad));
        }
        match batch::read(text) {
            Ok(messages) => self.batch.extend(messages.into_iter().map(|(text, _)| text.into())),
            // Nobody waits for an answer to it, and one that looks like an answer must have none (rule S2).
            Err(BatchError::Bad { bad, asked: false, .. }) => engine.reject(Foreign::Bad(bad)),
            Err(error @ (BatchError::Array | BatchError::Initialize | BatchError::Bad { .. })) => {
                engine.refuse_text(&error.error());
            }
        }
    }

    /// The link is over.
    pub(in crate::kernel) fn close(&mut self) {
        self.batch.clear();
        self.session.close();
    }
}
