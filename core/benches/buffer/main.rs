//! The outbound buffer against queues and channels: `cargo bench --bench buffer [GROUP]`.
//!
//! A producer hands over a token, two numbers and a borrowed text of 40 bytes, as a handler does that reports progress. Ours
//! copies the text into memory that it keeps; a peer must own it, so each of its messages (`owned`) is a `String` of its own.
//! The rows named `inline` give the peers a payload of 40 bytes inside the message instead: nobody allocates there, only the
//! structures differ. Every consumer sees the same of a message: whose it is, both numbers, and the bytes of its text.
//!
//! | group | what one iteration is |
//! |---|---|
//! | `throughput` | one push and one pop, one thread |
//! | `overload` | one push; 64 tokens, capacity 256, one pop in a thousand pushes |
//! | `coalesce` | one push of one hot token that nobody pops |
//! | `many_tokens` | one push; 10,000 tokens in turn, one pop in a hundred pushes, only conflating queues |
//! | `contended` | one push; 1 or 4 producer threads and one consumer thread that sleeps when nothing waits |
//! | `end_to_end` | CPU time of the writer for one line: a producer thread, the queue, encoding, a pipe that is read |
//!
//! The rows of one thread are CPU time of that thread, so that what else runs on the machine counts less.
//!
//! Each queue is behind the lock that it ships with. A peer that does not conflate drops its oldest message under
//! `overload` and `coalesce`. tokio's mpsc refuses the newest when it is full, which is not the policy of an outbound
//! buffer; it stands only where nothing is dropped (`throughput`, `end_to_end`).
//!
//! `contended` times the producers, from the first push to the last; the consumer takes all that it can in the meantime.
//! Every consumer that finds nothing lets other threads run once before it sleeps, in `end_to_end` too.
//! `end_to_end` coalesces and drops nothing: the producer waits while 192 messages are on their way.

mod contended;
mod end_to_end;
mod peers;
mod single;

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};

const TEXT: &str = "indexed 00123 of 45678 files in src/core";
const CAPACITY: usize = 256;
const TOKENS: u32 = 64;

/// CPU time of this thread so far.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn buffer(criterion: &mut Criterion) {
    single::bench(criterion);
    contended::bench(criterion);
    end_to_end::bench(criterion);
}

criterion_group!(benches, buffer);
criterion_main!(benches);
