//! A virtual line link between a client and the kernel's connection loop.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use steady_core::kernel::{Link, Received};

#[derive(Default)]
struct State {
    to_server: VecDeque<String>,
    closed: bool,
    reader: Option<Waker>,
    from_server: Vec<u8>,
}

/// Both ends of the link; the network moves lines between them.
#[derive(Clone, Default)]
pub(super) struct VirtualLink {
    state: Arc<Mutex<State>>,
    current: String,
}

impl VirtualLink {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line arrives at the server.
    pub(super) fn deliver(&self, line: String) {
        let mut state = self.lock();
        state.to_server.push_back(line);
        wake(state);
    }

    /// The client's end closes.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        wake(state);
    }

    /// The lines that the server wrote.
    pub(super) fn take_lines(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut self.lock().from_server);
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}

impl Link for VirtualLink {
    const BEFORE: &'static [u8] = b"";
    const AFTER: &'static [u8] = b"\n";

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Received<'_>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let next = state.to_server.pop_front();
        if next.is_none() && !state.closed {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        drop(state);
        match next {
            None => Poll::Ready(Received::Closed),
            Some(line) => {
                self.current = line;
                Poll::Ready(Received::Message(&self.current))
            }
        }
    }

    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.closed {
            return Poll::Ready(());
        }
        state.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_send(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().from_server.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
