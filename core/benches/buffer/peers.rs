//! Ours and the peers behind one trait.

use std::collections::VecDeque;
use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use crossbeam_queue::ArrayQueue;
use hashlink::LinkedHashMap;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Batch, Config, Handle, Item, Pushed};
use tokio::sync::{broadcast, mpsc};

use crate::CAPACITY;

/// A queue between producers and one consumer. A message is known by its progress value.
pub(crate) trait Queue: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// What only the consumer has.
    type Consumer: Send;

    fn new(tokens: u32) -> (Self, Self::Consumer);
    fn push(&self, token: u32, progress: f64, message: &str);
    fn pop(&self, consumer: &mut Self::Consumer) -> Option<f64>;
    /// Takes at least one message, sleeping until there is one; the least of their values.
    fn next(&self, consumer: &mut Self::Consumer) -> f64;
}

/// The text that a peer owns.
pub(crate) trait Text: Send + Sync + Clone + 'static {
    fn of(text: &str) -> Self;
    fn bytes(&self) -> &[u8];
}

impl Text for String {
    fn of(text: &str) -> Self {
        text.to_owned()
    }

    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// Forty bytes inside the message.
#[derive(Clone)]
pub(crate) struct Inline(pub(crate) [u8; 40]);

impl Text for Inline {
    fn of(text: &str) -> Self {
        Self(text.as_bytes().first_chunk().copied().unwrap_or([0; 40]))
    }

    fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What the peers own of a message.
#[derive(Clone)]
pub(crate) struct Owned<T> {
    pub(crate) token: u32,
    pub(crate) progress: f64,
    pub(crate) total: Option<f64>,
    pub(crate) message: T,
}

impl<T: Text> Owned<T> {
    pub(crate) fn new(token: u32, progress: f64, message: &str) -> Self {
        Self { token, progress, total: Some(1e9), message: T::of(message) }
    }

    fn taken(self) -> f64 {
        look(black_box(self.token), self.progress, self.total, self.message.bytes())
    }
}

/// What every consumer sees of a message: whose it is, its numbers, the bytes of its text.
#[inline]
fn look<T>(_whose: T, progress: f64, total: Option<f64>, text: &[u8]) -> f64 {
    black_box(total);
    black_box(text);
    progress
}

pub(crate) struct Ours {
    pub(crate) queue: OutboundQueue,
    tokens: Vec<Handle>,
}

impl Ours {
    fn read(item: Item<'_>) -> f64 {
        match item {
            Item::Progress { prefix, progress, total, message } => {
                look(black_box(prefix), progress, total, message.as_bytes())
            }
            Item::Text(_) => f64::NAN,
        }
    }
}

impl Queue for Ours {
    const NAME: &'static str = "ours";
    type Consumer = Batch;

    fn new(tokens: u32) -> (Self, Batch) {
        let queue = OutboundQueue::new(Config { capacity: CAPACITY, ..Config::default() });
        let tokens: Vec<Handle> = (0..tokens).map(|index| Handle::new(index, 1)).collect();
        tokens.iter().for_each(|token| queue.open(*token, "{\"progress\":"));
        (Self { queue, tokens }, Batch::default())
    }

    #[inline]
    fn push(&self, token: u32, progress: f64, message: &str) {
        let pushed = self.queue.progress(self.tokens[token as usize], progress, Some(1e9), message);
        debug_assert_ne!(pushed, Pushed::Closed);
    }

    #[inline]
    fn pop(&self, _: &mut Batch) -> Option<f64> {
        self.queue.pop(Self::read).map(|(_, progress)| progress)
    }

    fn next(&self, batch: &mut Batch) -> f64 {
        let mut least = f64::INFINITY;
        loop {
            self.queue.pop_into(batch, 32, usize::MAX);
            batch.drain(|_, item| least = least.min(Self::read(item)));
            if least < f64::INFINITY {
                return least;
            }
            block_on(std::future::poll_fn(|cx| self.queue.park(cx)));
        }
    }
}

pub(crate) struct Ring<T>(ArrayQueue<Owned<T>>, Bell);

impl<T: Text> Queue for Ring<T> {
    const NAME: &'static str = "crossbeam ArrayQueue::force_push";
    type Consumer = ();

    fn new(_: u32) -> (Self, ()) {
        (Self(ArrayQueue::new(CAPACITY), Bell::default()), ())
    }

    fn push(&self, token: u32, progress: f64, message: &str) {
        drop(self.0.force_push(Owned::new(token, progress, message)));
        self.1.ring();
    }

    fn pop(&self, (): &mut ()) -> Option<f64> {
        self.0.pop().map(Owned::taken)
    }

    fn next(&self, (): &mut ()) -> f64 {
        self.1.wait(|| self.pop(&mut ()))
    }
}

pub(crate) struct Deque<T>(Mutex<VecDeque<Owned<T>>>, Bell);

impl<T: Text> Queue for Deque<T> {
    const NAME: &'static str = "Mutex<VecDeque>, drop oldest";
    type Consumer = ();

    fn new(_: u32) -> (Self, ()) {
        (Self(Mutex::new(VecDeque::with_capacity(CAPACITY)), Bell::default()), ())
    }

    fn push(&self, token: u32, progress: f64, message: &str) {
        let owned = Owned::new(token, progress, message);
        let mut deque = lock(&self.0);
        let oldest = if deque.len() == CAPACITY { deque.pop_front() } else { None };
        deque.push_back(owned);
        drop(deque);
        drop(oldest);
        self.1.ring();
    }

    fn pop(&self, (): &mut ()) -> Option<f64> {
        let popped = lock(&self.0).pop_front();
        popped.map(Owned::taken)
    }

    fn next(&self, (): &mut ()) -> f64 {
        self.1.wait(|| self.pop(&mut ()))
    }
}

pub(crate) struct Conflated<T>(Mutex<LinkedHashMap<u32, Owned<T>>>, Bell);

impl<T: Text> Queue for Conflated<T> {
    const NAME: &'static str = "Mutex<hashlink::LinkedHashMap>, conflating";
    type Consumer = ();

    fn new(_: u32) -> (Self, ()) {
        (Self(Mutex::new(LinkedHashMap::with_capacity(CAPACITY)), Bell::default()), ())
    }

    fn push(&self, token: u32, progress: f64, message: &str) {
        let owned = Owned::new(token, progress, message);
        let mut map = lock(&self.0);
        let old = if let Some(waiting) = map.get_mut(&token) {
            Some(std::mem::replace(waiting, owned))
        } else {
            let oldest = if map.len() == CAPACITY { map.pop_front() } else { None };
            map.insert(token, owned);
            oldest.map(|(_, oldest)| oldest)
        };
        drop(map);
        drop(old);
        self.1.ring();
    }

    fn pop(&self, (): &mut ()) -> Option<f64> {
        let popped = lock(&self.0).pop_front();
        popped.map(|(_, owned)| owned.taken())
    }

    fn next(&self, (): &mut ()) -> f64 {
        self.1.wait(|| self.pop(&mut ()))
    }
}

pub(crate) struct Mpsc<T>(pub(crate) mpsc::Sender<Owned<T>>);

impl<T: Text> Queue for Mpsc<T> {
    const NAME: &'static str = "tokio mpsc try_send";
    type Consumer = mpsc::Receiver<Owned<T>>;

    fn new(_: u32) -> (Self, Self::Consumer) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self(sender), receiver)
    }

    fn push(&self, token: u32, progress: f64, message: &str) {
        drop(self.0.try_send(Owned::new(token, progress, message)));
    }

    fn pop(&self, consumer: &mut Self::Consumer) -> Option<f64> {
        consumer.try_recv().ok().map(Owned::taken)
    }

    fn next(&self, consumer: &mut Self::Consumer) -> f64 {
        consumer.blocking_recv().map_or(f64::NAN, Owned::taken)
    }
}

pub(crate) struct Broadcast<T>(broadcast::Sender<Owned<T>>);

impl<T: Text> Queue for Broadcast<T> {
    const NAME: &'static str = "tokio broadcast";
    type Consumer = broadcast::Receiver<Owned<T>>;

    fn new(_: u32) -> (Self, Self::Consumer) {
        let (sender, receiver) = broadcast::channel(CAPACITY);
        (Self(sender), receiver)
    }

    fn push(&self, token: u32, progress: f64, message: &str) {
        drop(self.0.send(Owned::new(token, progress, message)));
    }

    fn pop(&self, consumer: &mut Self::Consumer) -> Option<f64> {
        loop {
            match consumer.try_recv() {
                Ok(owned) => return Some(owned.taken()),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => return None,
            }
        }
    }

    fn next(&self, consumer: &mut Self::Consumer) -> f64 {
        loop {
            if let Some(progress) = self.pop(consumer) {
                return progress;
            }
            if let Ok(owned) = block_on(consumer.recv()) {
                return owned.taken();
            }
        }
    }
}

/// Wakes the consumer of a queue that has no wake-up of its own; free while the consumer is awake.
#[derive(Default)]
struct Bell {
    asleep: AtomicBool,
    thread: Mutex<Option<Thread>>,
}

impl Bell {
    fn ring(&self) {
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            let thread = lock(&self.thread).clone();
            thread.inspect(Thread::unpark);
        }
    }

    fn wait(&self, mut pop: impl FnMut() -> Option<f64>) -> f64 {
        loop {
            if let Some(progress) = pop() {
                return progress;
            }
            std::thread::yield_now();
            if let Some(progress) = pop() {
                return progress;
            }
            *lock(&self.thread) = Some(std::thread::current());
            self.asleep.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if let Some(progress) = pop() {
                return progress;
            }
            // The bell spares its producers a fence; what that lets slip is found a little later.
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls until ready, sleeping in between. Like [`Bell::wait`] it lets others run before it sleeps.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker: Waker = Arc::new(Unpark(std::thread::current())).into();
    let (mut cx, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
