//! The kernel's clock and executor over tokio. The executor counts the handlers that it runs: they outlive their request.

use std::sync::Arc;
use std::time::Duration;

use steady_core::kernel::{BoxFuture, Ports, Spawn, Timer};
use steady_core::time::Instant;

use super::limits::Limits;

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

struct TokioSpawn {
    limits: Arc<Limits>,
}

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<()>) {
        let running = self.limits.handlers.count();
        drop(tokio::spawn(async move {
            task.await;
            drop(running);
        }));
    }

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        let running = self.limits.handlers.count();
        drop(tokio::task::spawn_blocking(move || {
            job();
            drop(running);
        }));
    }
}

/// The ports of the tokio runtime in which requests are served; handlers are counted in `limits`.
pub(super) fn tokio_ports(limits: Arc<Limits>) -> Ports {
    let timer = TokioTimer { origin: tokio::time::Instant::now() };
    Ports { timer: Arc::new(timer), spawn: Arc::new(TokioSpawn { limits }) }
}
