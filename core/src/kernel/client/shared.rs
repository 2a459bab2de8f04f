//! The machine of a client and its calls, behind one lock: what callers and the loop both reach.

mod link;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::ToString;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;
use core::task::Waker;
use core::time::Duration;

use super::error::{CallError, LinkLoss, passes};
use super::incoming::{Answer, Incoming, shortened, wire};
use super::listener::{Inbox, ListenEvent};
use super::request::{self, Meta, Payload};
use super::slot::{CallSlot, Report};
use super::stats::ClientStats;
use super::tools::{Discovered, Raw};
use super::trace::{self, CallSpan};
use super::{ClientConfig, Request};
use crate::backoff::Jitter;
use crate::client::{self, Client, Finished, Input, MAX_SUBSCRIPTIONS, Outcome, Output, TooManySubscriptions};
use crate::deadline::Limits;
use crate::id::{CallId, SubscriptionId, WireId};
use crate::kernel::mutant;
use crate::kernel::port::Timer;
use crate::kernel::sync::{Arc, Mutex, MutexGuard};
use crate::progress::Progress;
use crate::retry::Verdict;
use crate::subscription::{self, Filter};
use crate::time::Instant;

pub(super) use link::ForLink;

/// How much of a bad line is kept as a sample, in bytes.
const SAMPLE: usize = 200;
/// Longest reason of a cancellation that is sent, in bytes; the rest is cut off.
const REASON: usize = 1 << 10;

/// What the handles, the pending calls and the loop share.
pub(super) struct Shared {
    pub(super) config: ClientConfig,
    pub(super) timer: StdArc<dyn Timer>,
    meta: Meta,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) machine: Client<StdArc<Payload>, Answer>,
    calls: BTreeMap<CallId, Entry>,
    pub(super) listens: BTreeMap<SubscriptionId, Arc<Inbox>>,
    /// Why calls were given up, one for each whose signal still waits for the link.
    reasons: BTreeMap<WireId, Box<str>>,
    /// Calls that wait for input which they do not get. Bounded where they are added.
    abandoned: VecDeque<WireId>,
    /// The attempt that was handed to a link last, and the last one of the links before: ids only grow.
    newest_out: Option<WireId>,
    lost_with_link: Option<WireId>,
    /// Bytes of the requests in flight.
    bytes: usize,
    driver: Option<Waker>,
    /// Handles that can start calls.
    pub(super) handles: usize,
    /// The application closed the client.
    pub(super) closing: bool,
    /// There will be no link any more.
    closed: Option<StdArc<LinkLoss>>,
    loss: StdArc<LinkLoss>,
    pub(super) server: Option<StdArc<Discovered>>,
    /// What handles that back off by themselves take their picks from.
    jitter: Jitter,
    forks: u64,
    pub(super) stats: ClientStats,
    /// What of them the metrics know.
    pub(super) published: ClientStats,
}

struct Entry {
    slot: Arc<CallSlot>,
    span: CallSpan,
    /// The attempt that is out: handed to the link, which was not lost since, and neither was its own stream.
    wire: Option<WireId>,
    /// The newest progress that the rate holds back.
    held: Option<(Progress, Report)>,
    buffer: usize,
    bytes: usize,
    limits: Limits,
}

/// The machine under its lock. Whom its changes concern is woken when it is let go.
pub(super) struct Locked<'a> {
    state: Option<MutexGuard<'a, State>>,
    wakers: Vec<Waker>,
}

impl core::ops::Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        match &self.state {
            Some(state) => state,
            None => unreachable!("taken only when it is dropped"),
        }
    }
}

impl core::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        match &mut self.state {
            Some(state) => state,
            None => unreachable!("taken only when it is dropped"),
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        drop(self.state.take());
        if mutant::is("wake-no-caller") {
            self.wakers.clear();
        }
        self.wakers.drain(..).for_each(Waker::wake);
    }
}

impl Locked<'_> {
    /// Hands what the machine decided to the slots; the machine's next deadline.
    pub(super) fn settle(&mut self) -> Option<Instant> {
        loop {
            let waker = match self.machine.poll_local() {
                Output::Progress { call, value } => self.deliver(call, value),
                Output::Finished { call, finished } => self.finish(call, finished),
                Output::Idle { wake_at } => {
                    self.stats.queue_high = self.stats.queue_high.max(self.machine.waiting() as u64);
                    return wake_at;
                }
                Output::Gap { subscription, refetch } => self.tell(subscription, ListenEvent::Gap { refetch }),
                Output::Notice { subscription, notice: Answer::Notice(notice) } => {
                    self.tell(subscription, ListenEvent::Notice(notice))
                }
                Output::Unsubscribed { subscription, end } => {
                    let waker = self.tell(subscription, ListenEvent::Ended(end));
                    self.listens.remove(&subscription);
                    waker
                }
                // Only notices are fed as such; what is for the link is not polled here.
                Output::Notice { .. } | Output::Send { .. } | Output::Signal { .. } | Output::Listen { .. } => None,
            };
            self.wakers.extend(waker);
        }
    }

    /// Wakes the loop, which has something to do or a new deadline to look at.
    pub(super) fn wake_driver(&mut self) {
        let driver = self.driver.take();
        self.wakers.extend(driver);
    }

    /// What a server sent.
    pub(super) fn receive(&mut self, now: Instant, incoming: Incoming, text: &str) {
        self.stats.received.messages += 1;
        self.stats.received.bytes += u64::try_from(text.len()).unwrap_or(u64::MAX);
        self.machine.handle_input(now, Input::Heard);
        match incoming {
            Incoming::Answer { id, answer } => match wire(&id) {
                Some(wire) => self.answer(now, wire, answer),
                None => return self.bad(text),
            },
            Incoming::Acknowledged { wire } => self.machine.handle_input(now, Input::Acknowledged { wire }),
            Incoming::Notice { wire, notice } => {
                let about = notice.about();
                self.machine.handle_input(now, Input::Notice { wire, notice: Answer::Notice(notice), about });
            }
            Incoming::Progress { wire, value, report } => {
                if let Some(entry) = self.machine.call_of(wire).and_then(|call| self.calls.get_mut(&call))
                    && entry.held.as_ref().is_none_or(|(held, _)| *held < value)
                {
                    entry.held = Some((value, report));
                }
                self.machine.handle_input(now, Input::Progress { wire, value });
            }
            // The server ended its listen, and sent no result before (rules C5 and L4).
            Incoming::Cancelled { wire } if self.machine.subscription_of(wire).is_some() => {
                self.machine.handle_input(now, Input::StreamLost { wire });
            }
            Incoming::Cancelled { wire } => self.machine.handle_input(now, Input::Cancelled { wire }),
            Incoming::Ignored => {}
            Incoming::Bad => self.bad(text),
        }
        self.settle();
    }

    /// An answer under this id, to a call or to a listen request.
    pub(super) fn answer(&mut self, now: Instant, wire: WireId, answer: Answer) {
        let listens = self.machine.subscription_of(wire).is_some();
        let input = if listens { listen_answer(wire, &answer) } else { Input::Response { wire, answer } };
        self.machine.handle_input(now, input);
    }

    pub(super) fn bad(&mut self, text: &str) {
        trace::bad_message();
        self.stats.bad_messages += 1;
        self.stats.last_bad = Some(shortened(text, SAMPLE));
    }

    /// Something came that could not be read: it may have been a notification of any subscription.
    pub(super) fn unreadable(&mut self, what: &str) {
        self.bad(what);
        self.machine.missed();
        self.settle();
    }

    fn tell(&mut self, subscription: SubscriptionId, event: ListenEvent) -> Option<Waker> {
        self.listens.get(&subscription)?.push(event)
    }

    fn deliver(&mut self, call: CallId, value: Progress) -> Option<Waker> {
        let entry = self.calls.get_mut(&call)?;
        let (_, report) = entry.held.take_if(|(held, _)| *held == value)?;
        let (dropped, waker) = entry.slot.report(report, entry.buffer);
        self.stats.progress_dropped += u64::from(dropped);
        waker
    }

    fn finish(&mut self, call: CallId, finished: Finished<Answer>) -> Option<Waker> {
        let entry = self.calls.remove(&call)?;
        self.bytes -= entry.bytes;
        let clock = match finished.outcome {
            Outcome::IdleTimeout => Some("idle timeout"),
            Outcome::MaxTimeout => Some("maximum timeout"),
            Outcome::Answered(_) | Outcome::Cancelled | Outcome::NeverSent | Outcome::Unknown => None,
        };
        if let (Some(clock), Some(wire)) = (clock, entry.wire) {
            self.reasons.insert(wire, clock.into());
        }
        let answered = matches!(finished.outcome, Outcome::Answered(_));
        let outcome = self.outcome(finished, entry.limits);
        entry.span.ended(&outcome);
        entry.slot.settle(outcome, answered)
    }

    /// The end as its caller is told, counted.
    fn outcome(&mut self, finished: Finished<Answer>, limits: Limits) -> Result<Raw, CallError> {
        // Without a statement nothing is sent again.
        let verdict = finished.verdict.unwrap_or(Verdict::ReconcileFirst);
        let loss = StdArc::clone(&self.loss);
        let stats = &mut self.stats;
        let (counter, outcome) = match finished.outcome {
            Outcome::Answered(Answer::Result(result)) => (&mut stats.answered, Ok(result)),
            Outcome::Answered(Answer::Error(error)) => (&mut stats.peer_errors, Err(CallError::Peer(error))),
            Outcome::Answered(Answer::Refused(what)) => (&mut stats.refused_elsewhere, Err(CallError::Refused(what))),
            Outcome::Answered(Answer::TooLong | Answer::Notice(_)) => {
                (&mut stats.too_long, Err(CallError::AnswerTooLong))
            }
            Outcome::Cancelled => (&mut stats.cancelled, Err(CallError::Cancelled { verdict })),
            Outcome::IdleTimeout => {
                let limit = limits.idle.unwrap_or(Duration::MAX);
                (&mut stats.idle_timeouts, Err(CallError::IdleTimeout { limit, verdict }))
            }
            Outcome::MaxTimeout => {
                let limit = limits.maximum.unwrap_or(Duration::MAX);
                (&mut stats.max_timeouts, Err(CallError::MaxTimeout { limit, verdict }))
            }
            Outcome::NeverSent => (&mut stats.never_sent, Err(CallError::NeverSent { loss, verdict })),
            Outcome::Unknown => (&mut stats.unknown, Err(CallError::Unknown { loss, verdict })),
        };
        *counter += 1;
        outcome
    }

    /// Whether calls are taken.
    fn check_open(&self) -> Result<(), CallError> {
        if let Some(loss) = &self.closed {
            return Err(CallError::Closed(StdArc::clone(loss)));
        }
        if self.closing {
            let loss = LinkLoss { what: "the application closed it".to_string(), ..LinkLoss::default() };
            return Err(CallError::Closed(StdArc::new(loss)));
        }
        Ok(())
    }

    /// The application closes the client: it gives every call up.
    pub(super) fn close(&mut self, now: Instant) {
        self.closing = true;
        let calls: Vec<CallId> = self.calls.keys().copied().collect();
        for call in calls {
            self.cancel(now, call, Some("the client closes"));
        }
        while let Some((&id, _)) = self.listens.first_key_value() {
            self.unlisten(now, id);
        }
        self.wake_driver();
    }

    pub(super) fn unlisten(&mut self, now: Instant, id: SubscriptionId) {
        self.machine.unlisten(now, id);
        self.settle();
        self.wake_driver();
    }

    pub(super) fn cancel(&mut self, now: Instant, call: CallId, reason: Option<&str>) {
        let out = self.calls.get(&call).and_then(|entry| entry.wire);
        if let (Some(wire), Some(reason)) = (out, reason) {
            self.reasons.insert(wire, shortened(reason, REASON));
        }
        self.machine.cancel(now, call);
        self.settle();
        self.wake_driver();
    }
}

/// What the answer to a listen request means: its result is a graceful end (rule L4), an error is final unless it can pass.
fn listen_answer<R>(wire: WireId, answer: &Answer) -> Input<R> {
    match answer {
        Answer::Error(error) if passes(error.code) => Input::StreamLost { wire },
        // It may have been anything, also a notification: what the stream said is not known.
        Answer::TooLong => Input::StreamLost { wire },
        Answer::Error(_) | Answer::Refused(_) => Input::ListenEnded { wire, refused: true },
        Answer::Result(_) | Answer::Notice(_) => Input::ListenEnded { wire, refused: false },
    }
}

impl Shared {
    /// Fails with what is wrong with the settings.
    pub(super) fn new(config: ClientConfig, timer: StdArc<dyn Timer>, mut jitter: Jitter) -> Result<Self, CallError> {
        let meta = Meta::new(&config).map_err(CallError::Params)?;
        let now = timer.now();
        let own = jitter.fork(0);
        let mut machine = Client::new(now, config.calls.clone(), jitter);
        // A link is attached later.
        machine.handle_input(now, Input::LinkLost);
        let state = State {
            machine,
            calls: BTreeMap::new(),
            listens: BTreeMap::new(),
            reasons: BTreeMap::new(),
            abandoned: VecDeque::new(),
            newest_out: None,
            lost_with_link: None,
            bytes: 0,
            driver: None,
            handles: 0,
            closing: false,
            closed: None,
            loss: StdArc::default(),
            server: None,
            jitter: own,
            forks: 0,
            stats: ClientStats::default(),
            published: ClientStats::default(),
        };
        Ok(Self { meta, config, timer, state: Mutex::new(state) })
    }

    /// The members of `_meta` that this request carries.
    pub(super) fn meta(&self, request: &Request) -> &str {
        self.meta.of(request)
    }

    /// Picks that differ from all others of this client.
    pub(super) fn fork_jitter(&self) -> Jitter {
        let mut state = self.lock();
        state.forks += 1;
        let stream = state.forks;
        state.jitter.fork(stream)
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked { state: Some(self.state.lock()), wakers: Vec::new() }
    }

    /// Registers the loop: from here on it is woken for whatever a caller does.
    pub(super) fn register(&self, waker: &Waker) {
        let mut state = self.state.lock();
        if state.driver.as_ref().is_some_and(|driver| driver.will_wake(waker)) {
            return;
        }
        let old = state.driver.replace(waker.clone());
        drop(state);
        // Not under the lock: what ends with a waker may be a task that holds a call.
        drop(old);
    }

    /// Subscribes.
    pub(super) fn listen(
        &self,
        filter: Filter,
        config: subscription::Config,
        jitter: Jitter,
    ) -> Result<(SubscriptionId, Arc<Inbox>), CallError> {
        // Built for its size; the id is not known yet.
        let listen = request::listen(&filter);
        let _fits = listen.payload(self.meta(&listen), self.config.max_request)?;
        let now = self.timer.now();
        let mut state = self.lock();
        state.check_open()?;
        let inbox = Arc::new(Inbox::new(filter.refetch()));
        let listened = state.machine.listen(now, filter, config, jitter);
        let id = listened.map_err(|TooManySubscriptions| CallError::Full { limit: MAX_SUBSCRIPTIONS })?;
        state.listens.insert(id, Arc::clone(&inbox));
        state.settle();
        state.wake_driver();
        Ok((id, inbox))
    }

    /// Starts a call.
    pub(super) fn start(&self, request: &Request) -> Result<(CallId, Arc<CallSlot>), CallError> {
        let span = CallSpan::start(request.method(), request.params(), self.config.calls.transport);
        let started = self.payload_and_start(request, &span);
        if started.is_err() {
            span.refused();
            let mut state = self.lock();
            state.stats.refused += 1;
            state.publish();
        }
        started
    }

    fn payload_and_start(&self, request: &Request, span: &CallSpan) -> Result<(CallId, Arc<CallSlot>), CallError> {
        let trace = span.inside(|| self.config.trace.as_ref()?.current());
        let payload = request.payload_in(self.meta(request), trace.as_ref(), self.config.max_request)?;
        let options = request.options(&self.config);
        let (bytes, limits) = (payload.size(), options.limits);
        let now = self.timer.now();
        let early = mutant::is("start-checks-early");
        if early {
            self.lock().check_open()?;
        }
        let mut state = self.lock();
        if !early {
            state.check_open()?;
        }
        let limit = self.config.max_in_flight_bytes;
        if state.bytes.saturating_add(bytes) > limit {
            return Err(CallError::FullBytes { limit });
        }
        let call = match state.machine.call(now, StdArc::new(payload), options) {
            Ok(call) => call,
            Err(client::CallError::Full { limit }) => return Err(CallError::Full { limit }),
            Err(client::CallError::NoBudget) => return Err(CallError::NoBudget),
        };
        let slot = Arc::new(CallSlot::default());
        let buffer = request.progress_buffer.unwrap_or(self.config.progress_buffer);
        let span = span.clone();
        let entry = Entry { slot: Arc::clone(&slot), span, wire: None, held: None, buffer, bytes, limits };
        state.calls.insert(call, entry);
        state.bytes += bytes;
        state.stats.started += 1;
        state.settle();
        state.wake_driver();
        Ok((call, slot))
    }

    pub(super) fn stats(&self) -> ClientStats {
        self.state.lock().counted()
    }
}
