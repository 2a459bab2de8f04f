//! Signals that ask a server to end, watched from a thread of their own: a handler that blocks the runtime's thread would
//! otherwise keep the process alive although it was told to go.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use steady_core::kernel::{ServerConfig, Shutdown};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::server::Signals;

/// The server is served until this is dropped; from then on the process is the program's own affair.
#[derive(Debug)]
pub(crate) struct Serving(Arc<AtomicBool>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What a shell reports for a process that SIGTERM has ended.
const TERMINATED: i32 = 128 + 15;

/// Drains at the first signal, cuts at the second, and ends the process when both limits are over and it still serves. A
/// signal that comes when it does not serve any more ends the process at once, as it would without this.
pub(crate) fn watch(signals: Signals, config: &ServerConfig) -> io::Result<Serving> {
    let served = Arc::new(AtomicBool::new(false));
    let serving = Serving(Arc::clone(&served));
    let kinds: &[fn() -> SignalKind] = match signals {
        Signals::Ignore => return Ok(serving),
        Signals::Terminate => &[SignalKind::terminate],
        Signals::TerminateAndInterrupt => &[SignalKind::terminate, SignalKind::interrupt],
    };
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let inside = runtime.enter();
    // Before this returns, so that a signal right after the start finds them.
    let mut caught = kinds.iter().map(|kind| signal(kind())).collect::<io::Result<Vec<Signal>>>()?;
    drop(inside);
    let shutdown = config.shutdown.clone();
    let ending = config.drain.saturating_add(config.flush);
    let limit = config.shutdown_limit.saturating_add(ending);
    thread::Builder::new().name("steady-signals".into()).spawn(move || {
        let served = || served.load(Ordering::Acquire);
        runtime.block_on(async {
            next(&mut caught).await;
            shutdown.drain();
            if !served() && tokio::time::timeout(limit, next(&mut caught)).await.is_ok() && !served() {
                cut(&shutdown, ending).await;
            }
            // Whoever is still there is stuck in a handler that blocks the thread of the connection.
            if !served() {
                std::process::exit(1);
            }
            next(&mut caught).await;
        });
        std::process::exit(TERMINATED);
    })?;
    Ok(serving)
}

async fn cut(shutdown: &Shutdown, ending: Duration) {
    shutdown.cut();
    tokio::time::sleep(ending).await;
}

/// The next of these signals.
async fn next(signals: &mut [Signal]) {
    poll_fn(|cx| {
        let mut got = false;
        for signal in &mut *signals {
            got |= signal.poll_recv(cx).is_ready();
        }
        if got { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
