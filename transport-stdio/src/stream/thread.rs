//! A blocking stream with a thread of its own, read and written through a small bounded buffer.

use std::io::{self, Read, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread;

use tokio::io::ReadBuf;

/// Bytes between the thread and the reactor, at most.
const CAPACITY: usize = 64 << 10;

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The thread waits here: a reader for room, a writer for bytes.
    turn: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    /// The future waits here.
    waker: Option<Waker>,
    /// The stream has ended, with this error if there was one.
    ended: bool,
    error: Option<io::Error>,
    /// The other side of the buffer is gone.
    dropped: bool,
    /// The writer thread is in a write with bytes it has taken.
    writing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.turn.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Registers who waits. The waker before is dropped without the lock.
fn wait<T>(mut state: MutexGuard<'_, State>, cx: &Context<'_>) -> Poll<T> {
    let old = state.waker.replace(cx.waker().clone());
    drop(state);
    drop(old);
    Poll::Pending
}

fn wake(mut state: MutexGuard<'_, State>) {
    let waker = state.waker.take();
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Reads a blocking stream.
pub(crate) struct ThreadReader(Arc<Shared>);

impl ThreadReader {
    pub(crate) fn start(mut stream: impl Read + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::Builder::new().name("steady-stdin".into()).spawn(move || {
            let mut chunk = vec![0; CAPACITY / 4];
            loop {
                let read = stream.read(&mut chunk);
                let mut state = theirs.lock();
                match read {
                    Ok(count) if count > 0 => state.bytes.extend_from_slice(&chunk[..count]),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Ok(_) => state.ended = true,
                    Err(error) => {
                        state.ended = true;
                        state.error = Some(error);
                    }
                }
                let over = state.ended || state.dropped;
                wake(state);
                if over {
                    return;
                }
                let mut state = theirs.lock();
                while state.bytes.len() > CAPACITY - chunk.len() && !state.dropped {
                    state = theirs.wait(state);
                }
            }
        })?;
        Ok(Self(shared))
    }

    pub(super) fn poll_read(&self, cx: &Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.bytes.is_empty() && !state.ended {
            return wait(state, cx);
        }
        let count = state.bytes.len().min(out.remaining());
        out.put_slice(&state.bytes[..count]);
        state.bytes.drain(..count);
        self.0.turn.notify_one();
        if count > 0 { Poll::Ready(Ok(())) } else { Poll::Ready(state.error.take().map_or(Ok(()), Err)) }
    }
}

impl Drop for ThreadReader {
    fn drop(&mut self) {
        self.0.lock().dropped = true;
        self.0.turn.notify_one();
    }
}

/// Writes a blocking stream.
pub(crate) struct ThreadWriter(Arc<Shared>);

impl ThreadWriter {
    pub(crate) fn start(mut stream: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        thread::Builder::new().name("steady-stdout".into()).spawn(move || {
            let mut taken = Vec::new();
            loop {
                let mut state = theirs.lock();
                while state.bytes.is_empty() && !state.dropped {
                    state = theirs.wait(state);
                }
                if state.bytes.is_empty() {
                    return;
                }
                std::mem::swap(&mut state.bytes, &mut taken);
                state.writing = true;
                drop(state);
                let written = stream.write_all(&taken).and_then(|()| stream.flush());
                taken.clear();
                let mut state = theirs.lock();
                state.writing = false;
                let failed = written.is_err();
                if let Err(error) = written {
                    state.ended = true;
                    state.error = Some(error);
                }
                wake(state);
                if failed {
                    return;
                }
            }
        })?;
        Ok(Self(shared))
    }

    pub(super) fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.0.lock();
        if state.ended {
            return Poll::Ready(Err(broken(&mut state)));
        }
        let count = bytes.len().min(CAPACITY.saturating_sub(state.bytes.len()));
        if count == 0 && !bytes.is_empty() {
            return wait(state, cx);
        }
        state.bytes.extend_from_slice(&bytes[..count]);
        self.0.turn.notify_one();
        Poll::Ready(Ok(count))
    }

    pub(super) fn poll_flush(&self, cx: &Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.ended {
            return Poll::Ready(Err(broken(&mut state)));
        }
        if state.bytes.is_empty() && !state.writing {
            return Poll::Ready(Ok(()));
        }
        wait(state, cx)
    }
}

fn broken(state: &mut State) -> io::Error {
    state.error.take().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into())
}

impl Drop for ThreadWriter {
    fn drop(&mut self) {
        self.0.lock().dropped = true;
        self.0.turn.notify_one();
    }
}
