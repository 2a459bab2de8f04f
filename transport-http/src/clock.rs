//! The clock: tokio's, or another one that was handed in.

use std::sync::Arc;
use std::time::Duration;

use steady_core::kernel::{BoxFuture, Timer};
use steady_core::time::Instant;

/// tokio's clock; the origin is the moment it was made.
struct TokioTimer {
    origin: tokio::time::Instant,
}

impl Timer for TokioTimer {
    fn now(&self) -> Instant {
        let nanos = self.origin.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        match self.origin.checked_add(Duration::from_nanos(at.as_nanos())) {
            Some(at) => Box::pin(tokio::time::sleep_until(at)),
            None => Box::pin(std::future::pending()),
        }
    }
}

/// A clock that starts now.
pub(crate) fn tokio_timer() -> Arc<dyn Timer> {
    Arc::new(TokioTimer { origin: tokio::time::Instant::now() })
}

/// So much later; what is too late to be told is in 30 years.
#[cfg(feature = "server")]
pub(crate) fn later(at: tokio::time::Instant, by: Duration) -> tokio::time::Instant {
    at.checked_add(by).unwrap_or_else(|| at + Duration::from_secs(30 * 365 * 24 * 3600))
}

#[cfg(feature = "client")]
pub use of_client::Clock;
#[cfg(feature = "client")]
pub(crate) use of_client::within;

#[cfg(feature = "client")]
mod of_client {
    use super::{Arc, BoxFuture, Duration, Instant, Timer, tokio_timer};
    use std::fmt;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    /// What a client reads the time from and sleeps by. Default: tokio's clock.
    #[derive(Clone)]
    pub struct Clock(Arc<dyn Timer>);

    impl Clock {
        /// This timer. With one that a test or a simulation moves, no duration of the client passes by itself.
        #[must_use]
        pub fn of(timer: Arc<dyn Timer>) -> Self {
            Self(timer)
        }

        pub(crate) fn timer(&self) -> Arc<dyn Timer> {
            Arc::clone(&self.0)
        }

        pub(crate) fn now(&self) -> Instant {
            self.0.now()
        }
    }

    impl Default for Clock {
        fn default() -> Self {
            Self(tokio_timer())
        }
    }

    impl fmt::Debug for Clock {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Clock")
        }
    }

    /// What the future says, or `None` once `limit` has passed before it does. What is there at once costs no alarm.
    pub(crate) async fn within<T>(clock: &Clock, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        let mut alarm: Option<BoxFuture<()>> = None;
        poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(value));
            }
            let alarm = alarm.get_or_insert_with(|| clock.0.sleep_until(clock.now() + limit));
            alarm.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}
