//! The kernel's clock over tokio.

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
