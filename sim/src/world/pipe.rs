//! One direction of a byte stream: a pipe, a socket, or what a proxy makes of them.
//!
//! It does what such a stream can do and nothing else. Bytes come late, wait (a proxy that buffers, a reader that does not
//! read), come in pieces of any size, or stop coming: at a clean end, or because the stream was cut, which loses what was on
//! its way. Inside of a stream no byte is lost, doubled or out of order; that happens between streams only.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use steady_core::time::Instant;

use super::executor::Spawner;

/// What a reader finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a stream gives bytes or ends, in one of two ways")]
pub enum Arrived {
    /// Bytes.
    Bytes,
    /// Its writer ended it, and all is read.
    End,
    /// It was cut.
    Cut,
}

/// How a stream behaves, from now on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "all that a stream can do beside ending")]
pub struct Weather {
    /// How long a byte takes.
    pub delay: Duration,
    /// Something in between keeps all that comes.
    pub held: bool,
    /// The reader does not read.
    pub unread: bool,
}

struct State {
    spawner: Spawner,
    weather: Weather,
    capacity: usize,
    /// Bytes on their way or unread.
    waiting: usize,
    segments: VecDeque<(Instant, Vec<u8>)>,
    newest: Instant,
    ends_at: Option<Instant>,
    cut: bool,
    reader_gone: bool,
    /// Whether its writer can know that.
    writer_told: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    rings_at: Option<Instant>,
}

/// Both ends of one direction; clones share it.
#[derive(Clone)]
pub struct Pipe(Arc<Mutex<State>>);

impl Pipe {
    /// An open stream with room for `capacity` bytes that nobody has read, at least one.
    #[must_use]
    pub fn new(spawner: Spawner, capacity: usize, weather: Weather) -> Self {
        Self(Arc::new(Mutex::new(State {
            spawner,
            weather,
            capacity: capacity.max(1),
            waiting: 0,
            segments: VecDeque::new(),
            newest: Instant::ZERO,
            ends_at: None,
            cut: false,
            reader_gone: false,
            writer_told: false,
            reader: None,
            writer: None,
            rings_at: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the weather.
    pub fn set(&self, weather: Weather) {
        let mut state = self.lock();
        state.weather = weather;
        wake_both(state);
    }

    /// Writes some of `bytes`: as many as there is room for.
    ///
    /// # Errors
    /// It was cut or ended, or its reader is known to be gone.
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.lock();
        if state.cut || state.ends_at.is_some() || state.writer_told {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.reader_gone {
            return Poll::Ready(Ok(bytes.len()));
        }
        let room = state.capacity.saturating_sub(state.waiting);
        if room == 0 {
            state.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = room.min(bytes.len());
        state.send(bytes.get(..count).unwrap_or_default());
        wake_reader(state);
        Poll::Ready(Ok(count))
    }

    /// Writes all of `bytes`, of which the writer has a copy as long as it needs one. Nothing, if nobody can read it.
    pub fn put(&self, bytes: &[u8]) {
        let mut state = self.lock();
        if !state.cut && !state.reader_gone && state.ends_at.is_none() {
            state.send(bytes);
        }
        wake_reader(state);
    }

    /// Appends what has come to `into`.
    pub fn poll_read(&self, cx: &Context<'_>, into: &mut Vec<u8>) -> Poll<Arrived> {
        let mut state = self.lock();
        let now = state.spawner.now();
        if state.weather.unread {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if state.cut {
            return Poll::Ready(Arrived::Cut);
        }
        let mut count = 0;
        if !state.weather.held {
            while state.segments.front().is_some_and(|(at, _)| *at <= now) {
                let Some((_, segment)) = state.segments.pop_front() else { break };
                count += segment.len();
                into.extend_from_slice(&segment);
            }
        }
        if count > 0 {
            state.waiting -= count;
            let writer = state.writer.take();
            drop(state);
            writer.into_iter().for_each(Waker::wake);
            return Poll::Ready(Arrived::Bytes);
        }
        let next = state.segments.front().map(|(at, _)| *at).or(state.ends_at);
        if !state.weather.held && state.segments.is_empty() && state.ends_at.is_some_and(|at| at <= now) {
            return Poll::Ready(Arrived::End);
        }
        state.reader = Some(cx.waker().clone());
        if let Some(at) = next.filter(|at| *at > now && state.rings_at.is_none_or(|rings| rings <= now || *at < rings))
        {
            state.rings_at = Some(at);
            state.spawner.ring(at, cx.waker());
        }
        Poll::Pending
    }

    /// The writer ends it; what is on its way still comes.
    pub fn end(&self) {
        let mut state = self.lock();
        if state.ends_at.is_none() {
            let at = (state.spawner.now() + state.weather.delay).max(state.newest);
            state.ends_at = Some(at);
        }
        wake_both(state);
    }

    /// The reader goes away, and a writer on this machine learns it when it writes.
    pub fn leave(&self) {
        self.without_reader(true);
    }

    /// The reader goes away, and nothing tells the writer: what it writes goes nowhere.
    pub fn abandon(&self) {
        self.without_reader(false);
    }

    fn without_reader(&self, told: bool) {
        let mut state = self.lock();
        state.reader_gone = true;
        state.writer_told |= told;
        state.segments.clear();
        state.waiting = 0;
        wake_both(state);
    }

    /// Whether nobody reads it any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.lock().reader_gone
    }

    /// Cuts it: both ends learn it at once, and what was on its way is lost.
    pub fn cut(&self) {
        let mut state = self.lock();
        state.cut = true;
        state.segments.clear();
        state.waiting = 0;
        wake_both(state);
    }

    /// Bytes on their way or unread.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }
}

impl State {
    fn send(&mut self, bytes: &[u8]) {
        let at = (self.spawner.now() + self.weather.delay).max(self.newest);
        self.newest = at;
        self.waiting += bytes.len();
        match self.segments.back_mut().filter(|(last, _)| *last == at) {
            Some((_, segment)) => segment.extend_from_slice(bytes),
            None => self.segments.push_back((at, bytes.to_vec())),
        }
    }
}

fn wake_reader(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    reader.into_iter().for_each(Waker::wake);
}

fn wake_both(mut state: MutexGuard<'_, State>) {
    let wakers = [state.reader.take(), state.writer.take()];
    drop(state);
    wakers.into_iter().flatten().for_each(Waker::wake);
}
