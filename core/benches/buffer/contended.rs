//! Producer threads against one consumer thread.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, measurement::WallTime};

use crate::peers::{Broadcast, Conflated, Deque, Ours, Queue, Ring};
use crate::{TEXT, TOKENS};

/// Pushes of one iteration, of all producers together: the start of the threads must not count.
const PUSHES: u32 = 1 << 14;
/// The value that tells the consumer to end.
const END: f64 = -1.0;

/// How long the producers take for `rounds` rounds: from the first push of the first to the last of the last.
fn measure<Q: Queue>(producers: u32, rounds: u64) -> Duration {
    let (queue, mut consumer) = Q::new(TOKENS);
    let (queue, start) = (Arc::new(queue), Arc::new(Barrier::new(producers as usize + 1)));
    let consumer = {
        let (queue, start) = (Arc::clone(&queue), Arc::clone(&start));
        thread::spawn(move || {
            start.wait();
            while queue.next(&mut consumer) != END {}
        })
    };
    let share = TOKENS / producers;
    let threads = (0..producers).map(|producer| {
        let (queue, start) = (Arc::clone(&queue), Arc::clone(&start));
        thread::spawn(move || {
            start.wait();
            let started = Instant::now();
            for _ in 0..rounds {
                for count in 0..PUSHES / producers {
                    queue.push(producer * share + count % share, f64::from(count), std::hint::black_box(TEXT));
                }
            }
            (started, Instant::now())
        })
    });
    let threads: Vec<thread::JoinHandle<(Instant, Instant)>> = threads.collect();
    let times = threads.into_iter().map(|thread| thread.join().expect("a producer does not panic"));
    let (first, last) = times.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))).expect("a producer");
    queue.push(0, END, "");
    consumer.join().expect("the consumer does not panic");
    last - first
}

fn run<Q: Queue>(group: &mut BenchmarkGroup<'_, WallTime>, producers: u32) {
    let id = BenchmarkId::new(Q::NAME, format!("{producers}P1C"));
    group.bench_function(id, |bencher| bencher.iter_custom(|rounds| measure::<Q>(producers, rounds)));
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("contended");
    group.throughput(Throughput::Elements(PUSHES.into())).sample_size(15);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(2));
    for producers in [1, 4] {
        run::<Ours>(&mut group, producers);
        run::<Ring<String>>(&mut group, producers);
        run::<Deque<String>>(&mut group, producers);
        run::<Conflated<String>>(&mut group, producers);
        run::<Broadcast<String>>(&mut group, producers);
    }
    group.finish();
}
