//! From a producer thread to a pipe that is read: what one line costs the thread that encodes and writes it.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use criterion::{Criterion, Throughput};
use serde::Serialize;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Batch, Config, Handle, Item};
use steady_core::rpc::encode;
use tokio::sync::mpsc;

use crate::peers::{Owned, block_on};
use crate::{CAPACITY, TEXT, cpu};

/// Lines of one iteration.
const LINES: u64 = 1 << 14;
/// Messages on their way at most: each is of a token of its own, so nothing coalesces and nothing is dropped.
const ON_THEIR_WAY: u64 = 192;
const PREFIX: &str =
    "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":7,\"progress\":";

/// Counts the lines until the other end closes.
fn read(mut reader: PipeReader) -> u64 {
    let (mut lines, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        match reader.read(&mut buffer).expect("a pipe") {
            0 => return lines,
            count => lines += memchr::memchr_iter(b'\n', &buffer[..count]).count() as u64,
        }
    }
}

/// Runs a writer against a reader of its own; the writer's CPU time.
fn measure(lines: u64, write: impl FnOnce(PipeWriter) -> Duration) -> Duration {
    let (reader, writer) = pipe().expect("a pipe");
    let reader = thread::spawn(move || read(reader));
    let spent = write(writer);
    assert_eq!(reader.join().expect("the reader does not panic"), lines, "every line arrives");
    spent
}

fn ours(lines: u64) -> Duration {
    let queue = Arc::new(OutboundQueue::new(Config { capacity: CAPACITY, ..Config::default() }));
    let handles: Vec<Handle> = (0..256).map(|index| Handle::new(index, 1)).collect();
    handles.iter().for_each(|handle| queue.open(*handle, PREFIX));
    let taken = Arc::new(AtomicU64::new(0));
    let producer = {
        let (queue, taken) = (Arc::clone(&queue), Arc::clone(&taken));
        thread::spawn(move || {
            for (count, handle) in (0..lines).zip(handles.iter().cycle()) {
                while count - taken.load(Ordering::Acquire) >= ON_THEIR_WAY {
                    thread::yield_now();
                }
                let _queued = queue.progress(*handle, (count % 1000) as f64, Some(1000.0), std::hint::black_box(TEXT));
            }
        })
    };
    let spent = measure(lines, |mut writer| {
        let (mut bytes, mut batch, mut written, started) = (Vec::new(), Batch::default(), 0, cpu());
        while written < lines {
            queue.pop_into(&mut batch, 64, usize::MAX);
            written += batch.len() as u64;
            batch.drain(|_, item| append(&mut bytes, item));
            if bytes.is_empty() {
                block_on(std::future::poll_fn(|cx| queue.park(cx)));
                continue;
            }
            taken.store(written, Ordering::Release);
            writer.write_all(&bytes).expect("the reader reads");
            bytes.clear();
        }
        cpu() - started
    });
    producer.join().expect("the producer does not panic");
    spent
}

fn append(bytes: &mut Vec<u8>, item: Item<'_>) {
    if let Item::Progress { prefix, progress, total, message } = item {
        encode::progress(bytes, prefix, progress, total, message);
        bytes.push(b'\n');
    }
}

#[derive(Serialize)]
struct Notification<'a> {
    jsonrpc: &'static str,
    method: &'static str,
    params: Params<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    progress_token: u32,
    progress: f64,
    total: Option<f64>,
    message: &'a str,
}

impl<'a> Notification<'a> {
    fn of(owned: &'a Owned<String>) -> Self {
        let Owned { token, progress, total, message } = owned;
        let params = Params { progress_token: *token, progress: *progress, total: *total, message };
        Self { jsonrpc: "2.0", method: "notifications/progress", params }
    }
}

/// tokio mpsc, `recv_many`, serde into a reused buffer, one write a batch.
fn channel(lines: u64) -> Duration {
    let (sender, mut receiver) = mpsc::channel(CAPACITY);
    let producer = thread::spawn(move || {
        for count in 0..lines {
            let owned = Owned::<String>::new((count % 256) as u32, (count % 1000) as f64, std::hint::black_box(TEXT));
            block_on(sender.send(owned)).expect("the receiver is there");
        }
    });
    let spent = measure(lines, |mut writer| {
        let (mut bytes, mut batch, started) = (Vec::new(), Vec::with_capacity(64), cpu());
        while block_on(receiver.recv_many(&mut batch, 64)) > 0 {
            for owned in batch.drain(..) {
                serde_json::to_writer(&mut bytes, &Notification::of(&owned)).expect("plain data");
                bytes.push(b'\n');
            }
            writer.write_all(&bytes).expect("the reader reads");
            bytes.clear();
        }
        cpu() - started
    });
    producer.join().expect("the producer does not panic");
    spent
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("end_to_end");
    group.throughput(Throughput::Elements(LINES)).sample_size(15);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    group.bench_function("ours", |bencher| bencher.iter_custom(|rounds| ours(rounds * LINES)));
    let peer = "tokio mpsc recv_many, serde_json, one write a batch";
    group.bench_function(peer, |bencher| bencher.iter_custom(|rounds| channel(rounds * LINES)));
    group.finish();
}
