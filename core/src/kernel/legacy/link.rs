//! A link to a server of either era, which looks to the client's loop like one to a modern server.
//!
//! ```text
//!   Driver ── modern messages ──► EraLink ── as they are, or as the server's revision has them ──► Link
//! ```
//!
//! The loop's `server/discover` is the probe. Its result, or an error that only the modern revision has, says that the
//! server is modern, and from then on every byte passes as it is. Anything else is followed by `initialize`, and so is
//! silence where a link has one server for its life; what the server says of itself there becomes the answer to the probe.
//! The era holds as long as the link.
//!
//! A question of such a server ends the call that it belongs to with a demand for input, as the modern revision has it; the
//! call's next round carries the answer, and takes over what the server still sends for the first. Where calls have no
//! streams of their own, nothing says which call a question belongs to: it goes to the newest that may be asked.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

use super::calls::{Calls, In, Out, Ready};
use super::probe::{Probe, discovered, is_modern, probe};
use crate::id::RequestId;
use crate::kernel::engine::Eras;
use crate::kernel::port::{BoxFuture, Link, Received, Timer, Unanswered};
use crate::legacy::{Revision, method as legacy};
use crate::rpc::{self, Body, Message, PROTOCOL_VERSION, RpcError, code, encode, members, method};

/// How long a server may be silent on the probe before it counts as one of the older ones.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a server may take to unsubscribe, up to twice as long of several, before what waits for it goes on.
const LEAVE_TIME: Duration = Duration::from_secs(10);
/// What may wait to be written while more is read, in bytes: a server that asks and does not read is not heard either, until
/// the loop's limit on a write that stalls ends it.
const MAX_OUT: usize = 64 << 10;
/// Messages that are read at once although none of them is for the loop (rule T5).
const AT_ONCE: usize = 64;

/// A link whose server may be of either era. See the module's text.
pub struct EraLink<L> {
    inner: L,
    eras: Eras,
    /// Measures the patience with a silent server; none where silence says nothing.
    timer: Option<StdArc<dyn Timer>>,
    state: State,
    /// Until when the answers to what was unsubscribed are waited for, and up to which request.
    leaving: Option<(u64, BoxFuture<()>)>,
    /// What waits to be written to the server.
    out: Vec<u8>,
    written: usize,
    /// What waits to be read by the loop.
    ready: VecDeque<Ready>,
    /// What is lent to it.
    current: String,
}

enum State {
    /// Nothing was sent.
    Fresh,
    Probing {
        probe: Probe,
        patience: Option<BoxFuture<()>>,
    },
    Shaking {
        probe: Probe,
    },
    Modern,
    Legacy(Calls),
}

/// The id of the handshake: none of the loop's.
const HANDSHAKE: &str = "initialize";

impl<L: Link> EraLink<L> {
    /// Over this link, whose server is the same all the time. `eras`: which are spoken.
    pub fn new(inner: L, eras: Eras, timer: StdArc<dyn Timer>) -> Self {
        Self::over(inner, eras, Some(timer))
    }

    /// Over a link on which each request has an end of its own, so that silence is no answer.
    pub fn over_streams(inner: L, eras: Eras) -> Self {
        Self::over(inner, eras, None)
    }

    fn over(inner: L, eras: Eras, timer: Option<StdArc<dyn Timer>>) -> Self {
        let (out, ready, current) = (Vec::new(), VecDeque::new(), String::new());
        Self { inner, eras, timer, state: State::Fresh, leaving: None, out, written: 0, ready, current }
    }

    /// The link below.
    pub fn into_inner(self) -> L {
        self.inner
    }

    /// Begins the handshake in place of the probe.
    fn shake(&mut self, probe: Probe) {
        let Probe { capabilities, info, .. } = &probe;
        let params = alloc::format!(
            "{{\"protocolVersion\":\"{}\",\"capabilities\":{capabilities},\"clientInfo\":{info}}}",
            Revision::LATEST
        );
        self.say(|out| encode::request(out, &HANDSHAKE.into(), method::INITIALIZE, &params));
        self.state = State::Shaking { probe };
    }

    /// Lets the calls of an older server act: what they say leaves, and the streams of what they gave up end.
    fn act(&mut self, act: impl FnOnce(&mut Calls, &mut In, &mut Out)) {
        let State::Legacy(calls) = &mut self.state else { return };
        let mut say = Vec::new();
        act(calls, &mut self.ready, &mut say);
        for call in calls.closing() {
            self.inner.close_stream(&call);
        }
        for text in say {
            self.say(|out| out.extend_from_slice(&text));
        }
    }

    /// Watches the time of what was to be unsubscribed. Where each request has an end of its own, that says it.
    fn watch_leaving(&mut self, cx: &mut Context<'_>) {
        let (State::Legacy(calls), Some(timer)) = (&self.state, &self.timer) else { return };
        let Some(last) = calls.listens().leaves() else {
            self.leaving = None;
            return;
        };
        let at = || (last, timer.sleep_until(timer.now() + LEAVE_TIME));
        let (last, alarm) = self.leaving.get_or_insert_with(at);
        if alarm.as_mut().poll(cx).is_ready() {
            let last = *last;
            self.leaving = None;
            self.act(|calls, _, say| calls.late(last, say));
            // What that says is to be written, and what is left has a time too.
            cx.waker().wake_by_ref();
        }
    }

    fn say(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.extend_from_slice(L::BEFORE);
        write(&mut self.out);
        self.out.extend_from_slice(L::AFTER);
    }

    /// Writes what waits; ready when nothing does.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.out.len() {
            match self.inner.poll_send(cx, &self.out[self.written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(count)) => self.written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        self.out.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// What a server sent before its era was known: whether the loop is to read it.
    fn hear_first(&mut self, text: &str) -> bool {
        // The loop counts what is none.
        let Ok(message) = rpc::parse(text) else { return true };
        match (message, &self.state) {
            (Message::Response { id: Some(id), body }, State::Probing { probe, .. }) if id == probe.id => {
                let probe = probe.clone();
                if is_modern(&body) || self.eras == Eras::Modern {
                    self.state = State::Modern;
                    return true;
                }
                self.shake(probe);
                false
            }
            (Message::Response { id: Some(id), body }, State::Shaking { probe }) if id == HANDSHAKE.into() => {
                let probe = probe.clone();
                self.shaken(&probe, &body);
                false
            }
            // One that could not read the probe says so without its id.
            (Message::Response { id: None, body: Body::Error(_) }, State::Probing { probe, .. })
                if self.eras != Eras::Modern =>
            {
                let probe = probe.clone();
                self.shake(probe);
                false
            }
            (Message::Request { id, method, .. }, State::Shaking { .. }) => {
                self.say(|out| {
                    if method == legacy::PING {
                        encode::result(out, &id, "{}");
                    } else {
                        let error = RpcError::new(code::INVALID_REQUEST, "the handshake is not over");
                        encode::error(out, Some(&id), &error);
                    }
                });
                false
            }
            // A modern server asks nothing, and who it is is not known yet: the loop counts it.
            (Message::Response { .. } | Message::Notification { .. } | Message::Request { .. }, _) => true,
        }
    }

    /// A request ended without an answer: what of it the loop is to read.
    fn unanswered(&mut self, id: RequestId, end: Unanswered) {
        match &mut self.state {
            State::Legacy(_) => self.act(|calls, ready, say| calls.unanswered(&id, end, ready, say)),
            State::Probing { probe, .. } if probe.id == id => {
                let probe = probe.clone();
                match end {
                    Unanswered::NotSpoken(what) if self.eras == Eras::Modern => {
                        let what = alloc::format!(
                            "{what}: the server speaks an older revision than {PROTOCOL_VERSION}, and `eras` allows only the modern one"
                        );
                        self.ready.push_back(Ready::Unanswered(id, Unanswered::Refused(what.into())));
                    }
                    Unanswered::NotSpoken(_) => self.shake(probe),
                    other @ (Unanswered::NotSent(_)
                    | Unanswered::Lost(_)
                    | Unanswered::Refused(_)
                    | Unanswered::TooLong) => self.ready.push_back(Ready::Unanswered(id, other)),
                }
            }
            State::Shaking { probe } if id == HANDSHAKE.into() => {
                let probe = probe.id.clone();
                self.ready.push_back(Ready::Unanswered(probe, end));
            }
            State::Fresh | State::Probing { .. } | State::Shaking { .. } | State::Modern => {
                self.ready.push_back(Ready::Unanswered(id, end));
            }
        }
    }

    /// The server answered the handshake: the probe is answered with what it said.
    fn shaken(&mut self, probe: &Probe, body: &Body<'_>) {
        let mut answer = Vec::new();
        let refused = |answer: &mut Vec<u8>, error: &RpcError| encode::error(answer, Some(&probe.id), error);
        match body {
            Body::Error(error) => {
                let mut refusal = super::session::read_error(error);
                let data = members(error.get(), &["data"]).and_then(|[data]| data);
                let supported = data.and_then(|data| members(data, &["supported"])).and_then(|[supported]| supported);
                if let Some(supported) = supported {
                    refusal.message = alloc::format!("{} It supports {supported}.", refusal.message).into();
                }
                refused(&mut answer, &refusal);
            }
            Body::Result(result) => match discovered(result.get()) {
                Ok((revision, result)) => {
                    self.say(|out| encode::notification(out, legacy::INITIALIZED, "{}"));
                    encode::result(&mut answer, &probe.id, &result);
                    self.state = State::Legacy(Calls::new(revision, probe.capabilities.clone(), result));
                }
                Err(version) => {
                    let what = alloc::format!("the server speaks revision {version:?}, which this client does not");
                    refused(&mut answer, &RpcError::new(code::INVALID_REQUEST, what));
                }
            },
        }
        self.ready.push_back(String::from_utf8(answer).unwrap_or_default().into());
    }
}

const fn integer(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Integer(id) => Some(*id),
        RequestId::String(_) => None,
    }
}

impl<L: Link> Link for EraLink<L> {
    const BEFORE: &'static [u8] = L::BEFORE;
    const AFTER: &'static [u8] = L::AFTER;

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Received<'_>> {
        if matches!(self.state, State::Modern) {
            return self.inner.poll_recv(cx);
        }
        self.watch_leaving(cx);
        for _ in 0..AT_ONCE {
            match self.ready.pop_front() {
                Some(Ready::Message(text)) => {
                    self.current = text;
                    return Poll::Ready(Received::Message(&self.current));
                }
                Some(Ready::Unanswered(id, end)) => return Poll::Ready(Received::Unanswered(id, end)),
                None => {}
            }
            if let State::Probing { probe, patience: Some(patience) } = &mut self.state
                && patience.as_mut().poll(cx).is_ready()
            {
                let probe = probe.clone();
                self.shake(probe);
                // Nobody else writes it.
                cx.waker().wake_by_ref();
            }
            // All of it, and not only what does not fit: what was written is freed with the rest.
            if self.out.len() > MAX_OUT {
                match self.poll_out(cx) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(error)) => return Poll::Ready(Received::Failed(error)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            let message = match self.inner.poll_recv(cx) {
                Poll::Pending => {
                    let Some(lapse) = self.inner.lapsed() else { return Poll::Pending };
                    // What was said before goes where it belongs; a link with sessions takes it all.
                    if let Poll::Ready(Err(error)) = self.poll_out(cx) {
                        return Poll::Ready(Received::Failed(error));
                    }
                    self.act(|calls, ready, _| calls.lapse(lapse, ready));
                    continue;
                }
                Poll::Ready(Received::Message(text)) => String::from(text),
                Poll::Ready(Received::Unanswered(id, end)) => {
                    self.unanswered(id, end);
                    // It may be followed by something to write.
                    cx.waker().wake_by_ref();
                    continue;
                }
                Poll::Ready(Received::Bad(bad)) => return Poll::Ready(Received::Bad(bad)),
                Poll::Ready(Received::Closed) => return Poll::Ready(Received::Closed),
                Poll::Ready(Received::Failed(error)) => return Poll::Ready(Received::Failed(error)),
            };
            if matches!(self.state, State::Legacy(_)) {
                let stream = self.inner.stream().and_then(integer);
                self.act(|calls, ready, say| calls.hear(&message, stream, ready, say));
            } else if self.hear_first(&message) {
                self.current = message;
                return Poll::Ready(Received::Message(&self.current));
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn oversize_answer(&mut self) -> Option<RequestId> {
        let id = self.inner.oversize_answer()?;
        match &mut self.state {
            State::Legacy(calls) => Some(calls.answered(&id)),
            State::Fresh | State::Probing { .. } | State::Shaking { .. } | State::Modern => Some(id),
        }
    }

    fn close_stream(&mut self, request: &RequestId) {
        if !matches!(self.state, State::Legacy(_)) {
            return self.inner.close_stream(request);
        }
        // Those of the loop are numbers.
        if let Some(id) = integer(request) {
            self.act(|calls, _, say| calls.give_up(id, None, say));
        }
    }

    fn abandon(&mut self, call: &RequestId) {
        if let Some(call) = integer(call) {
            self.act(|calls, _, say| calls.leave(call, say));
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.poll_ahead(cx)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if matches!(self.state, State::Modern) {
            return self.inner.poll_send(cx, bytes);
        }
        match self.poll_out(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        }
        let message = &bytes[L::BEFORE.len()..];
        let Some(end) = message.windows(L::AFTER.len()).position(|at| at == L::AFTER) else {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        let (whole, message) = (L::BEFORE.len() + end + L::AFTER.len(), &message[..end]);
        let Ok(message) = core::str::from_utf8(message) else {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        if matches!(self.state, State::Legacy(_)) {
            self.act(|calls, ready, say| calls.say(message, ready, say));
            if !self.ready.is_empty() {
                // What is answered here is read in the next turn.
                cx.waker().wake_by_ref();
            }
            return Poll::Ready(Ok(whole));
        }
        match probe(message) {
            // A loop that does not probe speaks the modern revision, whoever is there.
            None => {
                self.state = State::Modern;
                return self.inner.poll_send(cx, bytes);
            }
            Some(probe) if self.eras == Eras::Legacy => self.shake(probe),
            Some(probe) => {
                self.say(|out| out.extend_from_slice(message.as_bytes()));
                let timer = self.timer.as_ref().filter(|_| self.eras != Eras::Modern);
                let patience = timer.map(|timer| timer.sleep_until(timer.now() + PATIENCE));
                self.state = State::Probing { probe, patience };
                // Its patience is watched where messages are read.
                cx.waker().wake_by_ref();
            }
        }
        Poll::Ready(Ok(whole))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch_leaving(cx);
        match self.poll_out(cx) {
            Poll::Ready(Ok(())) => self.inner.poll_flush(cx),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// What is known of the server of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "who starts servers decides each")]
pub enum Standing {
    /// It was not asked.
    Unasked,
    /// It was probed, and has not answered. One of the older revisions may end on that.
    Probed,
    /// A handshake was begun with it, and has not ended.
    Shaking,
    /// It speaks the modern revision, or is spoken to in it.
    Modern,
    /// It agreed on an older one.
    Legacy,
}

impl<L> EraLink<L> {
    /// What is known of the server.
    pub const fn standing(&self) -> Standing {
        match self.state {
            State::Fresh => Standing::Unasked,
            State::Probing { .. } => Standing::Probed,
            State::Shaking { .. } => Standing::Shaking,
            State::Modern => Standing::Modern,
            State::Legacy(_) => Standing::Legacy,
        }
    }
}

impl<L> core::fmt::Debug for EraLink<L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("EraLink").field("modern", &matches!(self.state, State::Modern)).finish_non_exhaustive()
    }
}
