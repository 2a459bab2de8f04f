//! The kernel's ports over tokio. The executor counts the handlers that it runs: they outlive their request.

use std::sync::Arc;

use steady_core::kernel::{BoxFuture, Ports, Spawn};

use super::limits::{Limits, Running};
use crate::clock::tokio_timer;

struct TokioSpawn {
    limits: Arc<Limits>,
}

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<()>) {
        // What is let go of while the runtime ends may have nowhere to go on.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let running = Running::new(&self.limits);
        drop(runtime.spawn(async move {
            task.await;
            drop(running);
        }));
    }

    fn spawn_blocking(&self, job: Box<dyn FnOnce() + Send>) {
        let running = Running::new(&self.limits);
        drop(tokio::task::spawn_blocking(move || {
            job();
            drop(running);
        }));
    }
}

/// The ports of the tokio runtime in which requests are served; handlers are counted in `limits`.
pub(super) fn tokio_ports(limits: Arc<Limits>) -> Ports {
    Ports { timer: tokio_timer(), spawn: Arc::new(TokioSpawn { limits }) }
}
