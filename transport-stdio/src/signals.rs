//! Signals that ask a server to end, watched from a thread of their own: a handler that blocks the runtime's thread would
//! otherwise keep the process alive although it was told to go.

use std::future::poll_fn;
use std::io;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use steady_core::kernel::{ServerConfig, Shutdown};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::server::Signals;

/// Drains at the first signal, cuts at the second, and ends the process when both limits are over and it is still there.
pub(crate) fn watch(signals: Signals, config: &ServerConfig) -> io::Result<()> {
    let kinds: &[fn() -> SignalKind] = match signals {
        Signals::Ignore => return Ok(()),
        Signals::Terminate => &[SignalKind::terminate],
        Signals::TerminateAndInterrupt => &[SignalKind::terminate, SignalKind::interrupt],
    };
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let inside = runtime.enter();
    // Before this returns, so that a signal right after the start finds them.
    let mut caught = kinds.iter().map(|kind| signal(kind())).collect::<io::Result<Vec<Signal>>>()?;
    drop(inside);
    let shutdown = config.shutdown.clone();
    let ending = config.drain + config.flush;
    let limit = config.shutdown_limit + ending;
    thread::Builder::new().name("steady-signals".into()).spawn(move || {
        runtime.block_on(async {
            next(&mut caught).await;
            shutdown.drain();
            if tokio::time::timeout(limit, next(&mut caught)).await.is_ok() {
                cut(&shutdown, ending).await;
            }
        });
        // Whoever is still there is stuck in a handler that blocks the thread of the connection.
        std::process::exit(1);
    })?;
    Ok(())
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
