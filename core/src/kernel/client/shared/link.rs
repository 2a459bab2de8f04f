//! What the link takes from a client's calls, and what its end does to them.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc as StdArc;

use super::super::error::LinkLoss;
use super::super::incoming::Answer;
use super::super::request::Payload;
use super::super::trace;
use super::Locked;
use crate::client::{CancelSignal, Input, Output};
use crate::id::WireId;
use crate::subscription::RecoveryPlan;
use crate::time::Instant;

/// Calls given up between two rounds that wait for the link; the server hears of no more, and its own clocks end them.
const ABANDONED: usize = 1024;

/// A message for the link.
pub(in crate::kernel::client) enum ForLink {
    Request(WireId, StdArc<Payload>),
    Cancellation(WireId, Option<Box<str>>),
    /// No message: the request's stream is to end (rule C1).
    Close(WireId),
    /// No message either: a call waits for input on a server of an older revision, and gets none.
    Abandon(WireId),
    Listen(RecoveryPlan),
}

impl Locked<'_> {
    /// The next message for the link.
    pub(in crate::kernel::client) fn poll_link(&mut self) -> Option<ForLink> {
        if let Some(wire) = self.abandoned.pop_front() {
            return Some(ForLink::Abandon(wire));
        }
        loop {
            match self.machine.poll_link()? {
                Output::Send { call, wire, payload, .. } => {
                    if let Some(entry) = self.calls.get_mut(&call) {
                        entry.wire = Some(wire);
                        entry.span.sent(wire);
                        // Of the attempt before.
                        entry.held = None;
                    }
                    self.newest_out = Some(wire);
                    return Some(ForLink::Request(wire, payload));
                }
                Output::Listen { plan, .. } => {
                    self.newest_out = Some(plan.wire());
                    return Some(ForLink::Listen(plan));
                }
                Output::Signal { wire, signal } => {
                    let reason = self.reasons.remove(&wire);
                    // What was to be told to a server that is gone is nothing to the next one.
                    if self.lost_with_link.is_none_or(|lost| wire > lost) {
                        return Some(match signal {
                            CancelSignal::Notify => ForLink::Cancellation(wire, reason),
                            CancelSignal::CloseStream => ForLink::Close(wire),
                        });
                    }
                }
                Output::Progress { .. }
                | Output::Finished { .. }
                | Output::Gap { .. }
                | Output::Notice { .. }
                | Output::Unsubscribed { .. }
                | Output::Idle { .. } => return None,
            }
        }
    }

    /// The link is gone. `again`: there will be another; otherwise every call ends here, and every later one is refused.
    pub(in crate::kernel::client) fn lose_link(
        &mut self,
        now: Instant,
        unsent: &[WireId],
        loss: LinkLoss,
        again: bool,
    ) {
        if self.closed.is_some() {
            return;
        }
        trace::link_lost(loss.generation, again);
        self.loss = StdArc::new(loss);
        self.lost_with_link = self.newest_out;
        for wire in unsent {
            self.machine.handle_input(now, Input::NotSent { wire: *wire });
        }
        if again {
            self.machine.handle_input(now, Input::LinkLost);
        } else {
            self.closed = Some(StdArc::clone(&self.loss));
            self.machine.give_up(now);
        }
        self.settle();
        self.calls.values_mut().for_each(|entry| entry.wire = None);
        self.reasons.clear();
        self.abandoned.clear();
        self.publish();
    }

    /// The application does not answer what this call was asked.
    pub(in crate::kernel::client) fn abandon(&mut self, call: WireId) {
        if self.abandoned.len() < ABANDONED {
            self.abandoned.push_back(call);
        }
        self.wake_driver();
    }

    /// The stream of one request ended, or never was; the link goes on.
    pub(in crate::kernel::client) fn lose_stream(
        &mut self,
        now: Instant,
        wire: WireId,
        input: Input<Answer>,
        what: Box<str>,
        generation: u64,
    ) {
        self.loss = StdArc::new(LinkLoss { what: what.into(), stderr: String::new(), generation });
        // In the pause that may follow there is nothing out that could be given up.
        if let Some(entry) = self.machine.call_of(wire).and_then(|call| self.calls.get_mut(&call)) {
            entry.wire = None;
        }
        self.machine.handle_input(now, input);
    }
}

#[cfg(all(test, not(steady_loom)))]
mod tests {
    use core::time::Duration;

    use super::super::Shared;
    use super::*;
    use crate::backoff::{Backoff, Jitter};
    use crate::id::ClientId;
    use crate::kernel::client::{ClientConfig, Request};
    use crate::kernel::port::{BoxFuture, Timer};
    use crate::transport::Transport;

    /// A clock that stands still.
    struct Still;

    impl Timer for Still {
        fn now(&self) -> Instant {
            Instant::ZERO
        }

        fn sleep_until(&self, _: Instant) -> BoxFuture<()> {
            Box::pin(core::future::pending())
        }
    }

    fn ms(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_reason_is_kept_for_an_attempt_that_is_out_and_for_no_longer() {
        for transport in [Transport::Stdio, Transport::Http] {
            let mut config = ClientConfig::new(transport);
            let pause = Duration::from_secs(60);
            config.calls.backoff = Backoff { base: pause, cap: pause };
            let shared =
                Shared::new(config, StdArc::new(Still), Jitter::seeded(ClientId::new(1), 0)).expect("settings");
            shared.lock().machine.handle_input(ms(0), Input::LinkUp);
            let call = |millis| Request::raw("m", "{}").safe().max(Some(Duration::from_millis(millis)));
            let mut keep = alloc::vec::Vec::new();
            // The first ends in the pause after its stream, the second in the one after its link; the third is out.
            for millis in [10, 20, 30] {
                keep.push(shared.start(&call(millis)).expect("room"));
                let mut state = shared.lock();
                let Some(ForLink::Request(wire, _)) = state.poll_link() else { panic!("it goes out") };
                match millis {
                    10 => state.lose_stream(ms(0), wire, Input::StreamLost { wire }, "cut".into(), 1),
                    20 => {
                        state.lose_link(ms(0), &[], LinkLoss::default(), true);
                        state.machine.handle_input(ms(0), Input::LinkUp);
                    }
                    _ => {}
                }
                state.machine.handle_timeout(ms(millis));
                state.settle();
                assert_eq!(state.reasons.len(), usize::from(millis == 30), "{transport:?} {millis}");
            }
            assert_eq!(shared.stats().max_timeouts, 3);
            let mut state = shared.lock();
            assert!(matches!(state.poll_link(), Some(ForLink::Cancellation(_, Some(_)) | ForLink::Close(_))));
            assert!(state.reasons.is_empty() && state.poll_link().is_none());
        }
    }
}
