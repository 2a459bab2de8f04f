//! The loop of a client over its links: inputs under a budget, then the clock, then batched writes.
//!
//! It is the order of the server's [`Connection`](crate::kernel::Connection): what is in hand beats a timer that was not
//! handled yet, and the budget bounds how long a flood can keep the timer waiting (rule T5). Without a link only the clock
//! runs, so that calls which wait for the next link keep their deadlines.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc as StdArc;
use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

use super::caller::Caller;
use super::error::{CallError, LinkEnd, LinkLoss};
use super::incoming::{self, Answer, Incoming};
use super::outbox::Outbox;
use super::shared::Shared;
use super::tools::Discovered;
use super::{ClientConfig, Request};
use crate::backoff::Jitter;
use crate::client::Input;
use crate::id::{RequestId, WireId};
use crate::kernel::alarm::Alarm;
use crate::kernel::engine::Eras;
use crate::kernel::mutant;
use crate::kernel::port::{BadFrame, Link, Received, Timer, Unanswered};
use crate::kernel::sync::Arc;
use crate::rpc::{PROTOCOL_VERSION, method};
use crate::time::Instant;

/// Why the loop stopped.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "a transport decides each")]
pub enum Turn {
    /// The link ended. The calls on it are not settled yet: say what happened with [`Driver::detach`].
    Lost(LinkEnd),
    /// The application closed the client, or let go of its last handle and call. What could be written was.
    Done,
}

/// Drives one client over its links, one after the other.
pub struct Driver<L> {
    shared: Arc<Shared>,
    link: Option<L>,
    /// What was on the last link is not settled yet.
    attached: bool,
    outbox: Outbox,
    alarm: Alarm,
    generation: u64,
    probe: Option<Probe>,
    /// Writing failed.
    broken: Option<Broken>,
    stalled_since: Option<Instant>,
}

/// The `server/discover` of a new link.
struct Probe {
    id: RequestId,
    until: Instant,
}

/// A link that can only be read: what the server said before may still come, and its end says more than the failed write.
struct Broken {
    error: io::Error,
    until: Instant,
}

/// How long such a link is read.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// Why a turn stopped reading.
enum Read {
    Waits,
    MoreWaits,
}

impl<L: Link> Driver<L> {
    /// A client without a link, and its first handle.
    ///
    /// # Errors
    /// [`CallError::Params`] if no request could be built with these settings.
    pub fn new(config: ClientConfig, timer: StdArc<dyn Timer>, jitter: Jitter) -> Result<(Self, Caller), CallError> {
        if config.eras == Eras::Legacy && config.probe.is_none() {
            let what =
                "`eras` allows only revisions that open with a handshake, which takes the probe's place: set `probe`";
            return Err(CallError::Params(what.into()));
        }
        let shared = Arc::new(Shared::new(config, timer, jitter)?);
        let caller = Caller::new(Arc::clone(&shared));
        let driver = Self {
            shared,
            link: None,
            attached: false,
            outbox: Outbox::default(),
            alarm: Alarm::default(),
            generation: 0,
            probe: None,
            broken: None,
            stalled_since: None,
        };
        Ok((driver, caller))
    }

    /// Gives it a link, the next generation. Calls go out once the server has answered `server/discover`, if that is asked.
    /// What was on a link before that was not detached is settled first, as lost.
    pub fn attach(&mut self, link: L) {
        if self.attached {
            self.detach("another link took its place".to_string(), String::new(), true);
        }
        self.attached = true;
        self.generation += 1;
        self.link = Some(link);
        let now = self.shared.timer.now();
        let mut state = self.shared.lock();
        state.stats.generation = self.generation;
        state.server = None;
        let Some(limit) = self.shared.config.probe else {
            state.machine.handle_input(now, Input::LinkUp);
            state.settle();
            return;
        };
        drop(state);
        // A string, so that it is none of the machine's.
        let id = RequestId::from(&*format!("discover-{}", self.generation));
        self.outbox.put::<L>(|out| self.shared.encode_probe(out, &id));
        self.probe = Some(Probe { id, until: now + limit });
    }

    /// Which link it is or was: 1 is the first.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The link, as long as it lasts.
    #[must_use]
    pub const fn link(&self) -> Option<&L> {
        self.link.as_ref()
    }

    /// Takes the link away, so that it can be dropped while calls wait to hear what happened.
    pub fn take_link(&mut self) -> Option<L> {
        self.link.take()
    }

    /// Whether the link carries calls: it is there, and its server has answered.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        self.link.is_some() && self.probe.is_none()
    }

    /// Settles what was on the link, or sends it again later as its contract allows. `again`: there will be another link;
    /// otherwise every call ends now.
    pub fn detach(&mut self, what: String, stderr: String, again: bool) {
        self.drop_link();
        self.attached = false;
        let unsent = self.outbox.unsent();
        self.outbox.clear();
        let now = self.shared.timer.now();
        let loss = LinkLoss { what, stderr, generation: self.generation };
        self.shared.lock().lose_link(now, &unsent, loss, again);
    }

    /// Takes the link away with all that is known of it, so that a loop without one waits for calls and their clocks only.
    fn drop_link(&mut self) {
        self.link = None;
        self.probe = None;
        self.broken = None;
        self.stalled_since = None;
    }

    /// Runs until the link ends, which drops it, or nobody uses the client any more.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Turn> {
        let turn = match self.run(cx) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => Turn::Done,
            Err(end) => {
                self.drop_link();
                Turn::Lost(end)
            }
        };
        Poll::Ready(turn)
    }

    fn run(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, LinkEnd> {
        loop {
            if !mutant::is("loop-registers-late") {
                self.shared.register(cx.waker());
            }
            let read = self.read(cx)?;
            let now = self.shared.timer.now();
            let (wake_at, done) = self.clock(now);
            let unwritten = self.write(cx, now)?;
            if let Some(Broken { error, .. }) = self.broken.take_if(|broken| now >= broken.until) {
                return Err(error.into());
            }
            if mutant::is("loop-registers-late") {
                self.shared.register(cx.waker());
            }
            if done {
                return Ok(Poll::Ready(()));
            }
            if unwritten || matches!(read, Read::MoreWaits) {
                cx.waker().wake_by_ref();
                return Ok(Poll::Pending);
            }
            let stall_at = self.stalled_since.map(|since| since + self.shared.config.write_stall);
            let probe_at = self.probe.as_ref().map(|probe| probe.until);
            let broken_at = self.broken.as_ref().map(|broken| broken.until);
            let timer = &self.shared.timer;
            if self.alarm.poll(cx, timer, [wake_at, stall_at, probe_at, broken_at]).is_pending() {
                return Ok(Poll::Pending);
            }
        }
    }

    /// Handles what is due. The machine's next deadline, and whether nobody uses the client.
    fn clock(&mut self, now: Instant) -> (Option<Instant>, bool) {
        let mut state = self.shared.lock();
        state.machine.handle_timeout(now);
        let wake_at = state.settle();
        state.publish();
        let unused = state.handles == 0 && state.machine.in_flight() == 0 && state.listens.is_empty();
        (wake_at, unused || state.closing)
    }

    /// Reads until nothing waits or the budget is spent.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<Read, LinkEnd> {
        for _ in 0..self.shared.config.turn_budget.max(1) {
            let Some(link) = &mut self.link else { return Ok(Read::Waits) };
            let received = link.poll_recv(cx);
            let now = self.shared.timer.now();
            match received {
                Poll::Pending => return Ok(Read::Waits),
                Poll::Ready(Received::Message(text)) => {
                    self.shared.hear(now, &mut self.probe, incoming::read(text), text)?;
                }
                Poll::Ready(Received::Bad(bad)) => {
                    let id = link.oversize_answer().filter(|_| bad == BadFrame::TooLong);
                    self.shared.oversize(now, &mut self.probe, bad, id)?;
                }
                Poll::Ready(Received::Unanswered(id, end)) => self.unanswered(now, &id, end)?,
                Poll::Ready(Received::Closed) => return Err(LinkEnd::Closed),
                Poll::Ready(Received::Failed(error)) => return Err(error.into()),
            }
        }
        Ok(Read::MoreWaits)
    }

    /// A request that has a stream of its own ended without an answer: that costs its own call only, but for the probe.
    fn unanswered(&mut self, now: Instant, id: &RequestId, end: Unanswered) -> Result<(), LinkEnd> {
        if self.probe.as_ref().is_some_and(|probe| probe.id == *id) {
            return Err(LinkEnd::Failed(io::Error::other(match end {
                Unanswered::NotSent(what)
                | Unanswered::Lost(what)
                | Unanswered::Refused(what)
                | Unanswered::NotSpoken(what) => String::from(what),
                Unanswered::TooLong => "its answer to server/discover is too long".to_string(),
            })));
        }
        let Some(wire) = incoming::wire(id) else { return Ok(()) };
        let mut state = self.shared.lock();
        match end {
            Unanswered::NotSent(what) => {
                state.lose_stream(now, wire, Input::NotSent { wire }, what, self.generation);
            }
            Unanswered::Lost(what) => {
                state.lose_stream(now, wire, Input::StreamLost { wire }, what, self.generation);
            }
            Unanswered::Refused(what) | Unanswered::NotSpoken(what) => state.answer(now, wire, Answer::Refused(what)),
            Unanswered::TooLong => state.answer(now, wire, Answer::TooLong),
        }
        state.settle();
        Ok(())
    }

    /// Writes until nothing waits, the link takes no more, or the budget is spent; whether it was spent.
    fn write(&mut self, cx: &mut Context<'_>, now: Instant) -> Result<bool, LinkEnd> {
        if self.probe.as_ref().is_some_and(|probe| now >= probe.until) {
            return Err(LinkEnd::NoAnswer(self.shared.config.probe.unwrap_or_default()));
        }
        let Some(link) = self.link.as_mut().filter(|_| self.broken.is_none()) else { return Ok(false) };
        for _ in 0..self.shared.config.turn_budget.max(1) {
            if self.probe.is_none() {
                self.outbox.fill::<L>(&self.shared);
                self.outbox.closings().for_each(|id| link.close_stream(&id));
                self.outbox.abandoned().for_each(|id| link.abandon(&id));
            }
            let all_sent = self.outbox.pending().is_empty();
            // Some links hold back what they take.
            let taken =
                if all_sent { link.poll_flush(cx).map_ok(|()| 0) } else { link.poll_send(cx, self.outbox.pending()) };
            let error = match taken {
                Poll::Ready(Ok(count)) if all_sent || count > 0 => {
                    self.stalled_since = None;
                    if all_sent {
                        return Ok(false);
                    }
                    let messages = self.outbox.sent(count);
                    self.shared.count_sent(messages, count);
                    continue;
                }
                Poll::Ready(Ok(_)) => io::ErrorKind::WriteZero.into(),
                Poll::Ready(Err(error)) => error,
                Poll::Pending => {
                    let since = *self.stalled_since.get_or_insert(now);
                    let limit = self.shared.config.write_stall;
                    return if now >= since + limit { Err(LinkEnd::Stalled(limit)) } else { Ok(false) };
                }
            };
            self.stalled_since = None;
            self.broken = Some(Broken { error, until: now + LAST_WORDS });
            return Ok(false);
        }
        Ok(true)
    }
}

impl Probe {
    fn is_answered_by(&self, incoming: &Incoming) -> bool {
        matches!(incoming, Incoming::Answer { id, .. } if *id == self.id)
    }
}

impl Shared {
    fn encode_probe(&self, out: &mut alloc::vec::Vec<u8>, id: &RequestId) {
        let request = Request::raw(method::DISCOVER, "{}").without_progress();
        // Its parameters are ours: they are an object, and short.
        if let Ok(payload) = request.payload(self.meta(&request), usize::MAX) {
            payload.encode_as(out, id);
        }
    }

    /// What a server sent: the answer to the question of its link, or something for the machine.
    fn hear(&self, now: Instant, probe: &mut Option<Probe>, incoming: Incoming, text: &str) -> Result<(), LinkEnd> {
        match probe.take_if(|probe| probe.is_answered_by(&incoming)) {
            Some(_) => self.probed(now, incoming),
            None => {
                self.lock().receive(now, incoming, text);
                Ok(())
            }
        }
    }

    /// A line that was no message, or an answer that was too long: that costs its own request only.
    fn oversize(
        &self,
        now: Instant,
        probe: &mut Option<Probe>,
        bad: BadFrame,
        id: Option<RequestId>,
    ) -> Result<(), LinkEnd> {
        match id {
            Some(id) => self.hear(now, probe, Incoming::Answer { id, answer: Answer::TooLong }, ""),
            None => {
                let what = format!("({bad:?})");
                if bad == BadFrame::TooLong {
                    self.lock().unreadable(&what);
                } else {
                    self.lock().bad(&what);
                }
                Ok(())
            }
        }
    }

    /// The server of a new link has answered: it is looked at, and calls may go out.
    fn probed(&self, now: Instant, incoming: Incoming) -> Result<(), LinkEnd> {
        let Incoming::Answer { answer, .. } = incoming else { return Ok(()) };
        let result = match answer {
            Answer::Result(result) => result,
            Answer::Error(error) => return Err(LinkEnd::Refused(error)),
            Answer::TooLong | Answer::Refused(_) | Answer::Notice(_) => {
                return Err(LinkEnd::Incompatible("it is too long".into()));
            }
        };
        let server: Discovered = result.parse().map_err(|error| LinkEnd::Incompatible(error.to_string().into()))?;
        if !server.supported_versions.iter().any(|version| version == PROTOCOL_VERSION) {
            let what = format!("it speaks {:?}, not {PROTOCOL_VERSION}", server.supported_versions);
            return Err(LinkEnd::Incompatible(what.into()));
        }
        let mut state = self.lock();
        state.server = Some(StdArc::new(server));
        state.machine.handle_input(now, Input::LinkUp);
        state.settle();
        Ok(())
    }

    fn count_sent(&self, messages: usize, bytes: usize) {
        let mut state = self.lock();
        state.stats.sent.messages += messages as u64;
        state.stats.sent.bytes += bytes as u64;
    }
}

impl<L> Drop for Driver<L> {
    /// A loop that is dropped (a runtime that shuts down) leaves nobody waiting.
    fn drop(&mut self) {
        let now = self.shared.timer.now();
        let unsent: Box<[WireId]> = self.outbox.unsent().into();
        let what = "the client's task was dropped, as by a runtime that shuts down".to_string();
        let loss = LinkLoss { what, stderr: Default::default(), generation: self.generation };
        self.shared.lock().lose_link(now, &unsent, loss, false);
    }
}

impl<L> core::fmt::Debug for Driver<L> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Driver").field("generation", &self.generation).finish_non_exhaustive()
    }
}
