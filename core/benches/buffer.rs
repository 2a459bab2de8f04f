//! The outbound buffer against queues that keep the newest messages: `cargo bench --bench buffer throughput`.
//!
//! A producer hands over a borrowed text of 40 bytes, as a handler does that reports progress. Ours copies it into memory
//! that it keeps; the peers must own it, so each of their messages is a `String` of its own. All three are behind the lock
//! that they ship with and are driven from one thread: what is measured is the cost of a message, not of a contended lock.
//!
//! | group | what one iteration is |
//! |---|---|
//! | `throughput` | one push and one pop |
//! | `overload` | one push; 64 tokens, capacity 256, one pop in a thousand pushes |
//! | `coalesce` | one push of one hot token that nobody pops |
//!
//! The peers do not coalesce: under `overload` and `coalesce` they drop their oldest message instead.

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::{Mutex, PoisonError};

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use crossbeam_queue::ArrayQueue;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Config, Handle, Item, Pushed};

const TEXT: &str = "indexed 00123 of 45678 files in src/core";
const CAPACITY: usize = 256;
const TOKENS: u32 = 64;
const PUSHES_PER_POP: u32 = 1000;

/// A queue that keeps the newest messages.
trait Queue {
    const NAME: &'static str;

    fn new() -> Self;
    fn push(&self, token: u32, progress: f64, message: &str);
    fn pop(&self) -> Option<usize>;
}

struct Ours {
    queue: OutboundQueue,
    tokens: Vec<Handle>,
}

impl Queue for Ours {
    const NAME: &'static str = "ours";

    fn new() -> Self {
        let queue = OutboundQueue::new(Config { capacity: CAPACITY, ..Config::default() });
        let tokens: Vec<Handle> = (0..TOKENS).map(|index| Handle::new(index, 1)).collect();
        tokens.iter().for_each(|token| queue.open(*token, "{\"progress\":"));
        Self { queue, tokens }
    }

    fn push(&self, token: u32, progress: f64, message: &str) {
        let pushed = self.queue.progress(self.tokens[token as usize], progress, Some(1e9), message);
        debug_assert_ne!(pushed, Pushed::Closed);
    }

    fn pop(&self) -> Option<usize> {
        let popped = self.queue.pop(|item| match item {
            Item::Progress { message, .. } => message.len(),
            Item::Text(text) => text.len(),
        });
        popped.map(|(_, length)| length)
    }
}

/// What the peers own of a message.
struct Owned {
    token: u32,
    progress: f64,
    total: Option<f64>,
    message: String,
}

impl Owned {
    fn new(token: u32, progress: f64, message: &str) -> Self {
        Self { token, progress, total: Some(1e9), message: message.to_owned() }
    }

    fn length(self) -> usize {
        black_box((self.token, self.progress, self.total));
        self.message.len()
    }
}

struct Ring(ArrayQueue<Owned>);

impl Queue for Ring {
    const NAME: &'static str = "crossbeam ArrayQueue::force_push";

    fn new() -> Self {
        Self(ArrayQueue::new(CAPACITY))
    }

    fn push(&self, token: u32, progress: f64, message: &str) {
        drop(self.0.force_push(Owned::new(token, progress, message)));
    }

    fn pop(&self) -> Option<usize> {
        self.0.pop().map(Owned::length)
    }
}

struct Deque(Mutex<VecDeque<Owned>>);

impl Queue for Deque {
    const NAME: &'static str = "Mutex<VecDeque>, drop oldest";

    fn new() -> Self {
        Self(Mutex::new(VecDeque::with_capacity(CAPACITY)))
    }

    fn push(&self, token: u32, progress: f64, message: &str) {
        let owned = Owned::new(token, progress, message);
        let mut deque = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = if deque.len() == CAPACITY { deque.pop_front() } else { None };
        deque.push_back(owned);
        drop(deque);
        drop(oldest);
    }

    fn pop(&self) -> Option<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front().map(Owned::length)
    }
}

fn throughput<Q: Queue>(group: &mut BenchmarkGroup<'_, WallTime>) {
    let (queue, mut count) = (Q::new(), 0_u32);
    group.bench_function(Q::NAME, |bencher| {
        bencher.iter(|| {
            count = count.wrapping_add(1);
            queue.push(count % TOKENS, f64::from(count), black_box(TEXT));
            queue.pop()
        });
    });
}

fn overload<Q: Queue>(group: &mut BenchmarkGroup<'_, WallTime>) {
    let (queue, mut count) = (Q::new(), 0_u32);
    group.bench_function(Q::NAME, |bencher| {
        bencher.iter(|| {
            count = count.wrapping_add(1);
            queue.push(count % TOKENS, f64::from(count), black_box(TEXT));
            if count.is_multiple_of(PUSHES_PER_POP) { queue.pop() } else { None }
        });
    });
}

fn coalesce<Q: Queue>(group: &mut BenchmarkGroup<'_, WallTime>) {
    let (queue, mut count) = (Q::new(), 0_u32);
    group.bench_function(Q::NAME, |bencher| {
        bencher.iter(|| {
            count = count.wrapping_add(1);
            queue.push(0, f64::from(count), black_box(TEXT));
        });
    });
}

fn buffer(criterion: &mut Criterion) {
    macro_rules! group {
        ($name:ident) => {
            let mut group = criterion.benchmark_group(stringify!($name));
            group.throughput(Throughput::Elements(1));
            $name::<Ours>(&mut group);
            $name::<Ring>(&mut group);
            $name::<Deque>(&mut group);
            group.finish();
        };
    }
    group!(throughput);
    group!(overload);
    group!(coalesce);
}

criterion_group!(benches, buffer);
criterion_main!(benches);
