//! One alarm that is set again only when it would ring too late.

use alloc::sync::Arc;
use core::task::{Context, Poll};

use super::port::{BoxFuture, Timer};
use crate::time::Instant;

/// The alarm of a connection or exchange. An early ring costs one turn; a new sleep for each deadline that moves costs more.
#[derive(Default)]
pub(super) struct Alarm {
    set: Option<(Instant, BoxFuture<()>)>,
}

impl Alarm {
    /// Rings at the earliest of `deadlines`, or a little before. Pending for ever if there is none.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        timer: &Arc<dyn Timer>,
        deadlines: impl IntoIterator<Item = Option<Instant>>,
    ) -> Poll<()> {
        let Some(at) = deadlines.into_iter().flatten().min() else { return Poll::Pending };
        if self.set.as_ref().is_none_or(|(set, _)| at < *set) {
            self.set = Some((at, timer.sleep_until(at)));
        }
        let Some((_, sleep)) = &mut self.set else { return Poll::Pending };
        let rung = sleep.as_mut().poll(cx);
        if rung.is_ready() {
            self.set = None;
        }
        rung
    }
}
