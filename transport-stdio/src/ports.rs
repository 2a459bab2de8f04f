//! The kernel's clock and executor over tokio.

use std::sync::Arc;
use std::time::Duration;

use steady_core::kernel::{BoxFuture, Timer};
#[cfg(feature = "server")]
use steady_core::kernel::{Ports, Spawn};
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

#[cfg(feature = "server")]
struct TokioSpawn;

#[cfg(feature = "server")]
impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<()>) {
        drop(tokio::spawn(task));
    }

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        drop(tokio::task::spawn_blocking(job));
    }
}

/// A clock that starts now.
pub(crate) fn tokio_timer() -> Arc<dyn Timer> {
    Arc::new(TokioTimer { origin: tokio::time::Instant::now() })
}

/// The ports of the tokio runtime that this is called in.
#[cfg(feature = "server")]
pub(crate) fn tokio_ports() -> Ports {
    Ports { timer: tokio_timer(), spawn: Arc::new(TokioSpawn) }
}
