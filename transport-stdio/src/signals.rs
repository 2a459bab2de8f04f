//! Signals that ask a server to end, watched from a thread of their own: a handler that blocks the runtime's thread would
//! otherwise keep the process alive although it was told to go.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::thread;

use steady_core::kernel::{ServerConfig, end_at_signals};
use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ports::tokio_timer;
use crate::server::Signals;

/// The server is served until this is dropped; from then on the process is the program's own affair.
#[derive(Debug)]
pub(crate) struct Serving(Arc<AtomicBool>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Ends what is served under `config` at these signals, as [`end_at_signals`] does, and then the process.
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
    let config = config.clone();
    thread::Builder::new().name("steady-signals".into()).spawn(move || {
        let (timer, has_ended) = (tokio_timer(), || served.load(Ordering::Acquire));
        let code = runtime.block_on(end_at_signals(|cx| poll_any(&mut caught, cx), &*timer, &config, has_ended));
        std::process::exit(code);
    })?;
    Ok(serving)
}

/// The next of these signals.
fn poll_any(signals: &mut [Signal], cx: &mut Context<'_>) -> Poll<()> {
    let mut got = false;
    for signal in signals {
        // All of them: two that come at once are one order.
        got |= signal.poll_recv(cx).is_ready();
    }
    if got { Poll::Ready(()) } else { Poll::Pending }
}
