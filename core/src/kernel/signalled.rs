//! What a process that serves does when signals ask it to end. A transport brings the signals; the order is the same for all.
//!
//! | signal | while it serves | when it serves no more |
//! |---|---|---|
//! | first | [`Shutdown::drain`](super::Shutdown::drain) | the process ends |
//! | second | [`Shutdown::cut`](super::Shutdown::cut) | the process ends |
//! | none in time | the process ends: whoever still serves is stuck in a handler that blocks its thread | |

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::{Context, Poll};
use core::time::Duration;

use super::engine::ServerConfig;
use super::port::Timer;

/// What a shell reports for a process that SIGTERM has ended.
const TERMINATED: i32 = 128 + 15;
/// It still served when its time was over.
const STUCK: i32 = 1;

/// Ends what is served under `config` in the order above. `poll_signal` resolves at each signal, `has_ended` says whether
/// serving is over. Resolves with the exit code of a process that must end now.
pub async fn end_at_signals(
    mut poll_signal: impl FnMut(&mut Context<'_>) -> Poll<()>,
    timer: &dyn Timer,
    config: &ServerConfig,
    has_ended: impl Fn() -> bool,
) -> i32 {
    poll_fn(&mut poll_signal).await;
    if has_ended() {
        return TERMINATED;
    }
    config.shutdown.drain();
    let ending = config.drain.saturating_add(config.flush);
    let limit = config.shutdown_limit.saturating_add(ending);
    if within(timer, limit, poll_fn(&mut poll_signal)).await {
        // Serving is over, and what the program still does is not what the second signal waits for.
        if has_ended() {
            return TERMINATED;
        }
        config.shutdown.cut();
        timer.sleep_until(timer.now() + ending).await;
    }
    if !has_ended() {
        return STUCK;
    }
    poll_fn(&mut poll_signal).await;
    TERMINATED
}

/// Whether `event` comes within `limit`.
async fn within(timer: &dyn Timer, limit: Duration, event: impl Future<Output = ()>) -> bool {
    let mut over = timer.sleep_until(timer.now() + limit);
    let mut event = pin!(event);
    poll_fn(|cx| match event.as_mut().poll(cx) {
        Poll::Ready(()) => Poll::Ready(true),
        Poll::Pending => over.as_mut().poll(cx).map(|()| false),
    })
    .await
}
