//! One thread: the cost of a message, not of a contended lock.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, measurement::WallTime};

use crate::peers::{Broadcast, Conflated, Deque, Inline, Mpsc, Ours, Queue, Ring};
use crate::{TEXT, TOKENS, cpu};

type Group<'a> = BenchmarkGroup<'a, WallTime>;

/// Pushes over `tokens` in turn; one pop in `pushes_per_pop` pushes, none at all for zero.
fn run<Q: Queue>(group: &mut Group<'_>, parameter: &str, tokens: u32, pushes_per_pop: u32) {
    let (queue, mut consumer) = Q::new(tokens);
    let (mut count, mut token, mut until_pop) = (0_u32, 0, pushes_per_pop);
    group.bench_function(BenchmarkId::new(Q::NAME, parameter), |bencher| {
        bencher.iter_custom(|pushes| {
            let started = cpu();
            for _ in 0..pushes {
                count = count.wrapping_add(1);
                token = if token + 1 == tokens { 0 } else { token + 1 };
                queue.push(token, f64::from(count), black_box(TEXT));
                until_pop = until_pop.wrapping_sub(1);
                if until_pop == 0 {
                    until_pop = pushes_per_pop;
                    black_box(queue.pop(&mut consumer));
                }
            }
            cpu() - started
        });
    });
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> Group<'a> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(1)).sample_size(30);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_millis(1500));
    group
}

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut throughput = group(criterion, "throughput");
    for parameter in ["owned", "inline"] {
        run::<Ours>(&mut throughput, parameter, TOKENS, 1);
        if parameter == "owned" {
            run::<Ring<String>>(&mut throughput, parameter, TOKENS, 1);
            run::<Deque<String>>(&mut throughput, parameter, TOKENS, 1);
            run::<Conflated<String>>(&mut throughput, parameter, TOKENS, 1);
            run::<Mpsc<String>>(&mut throughput, parameter, TOKENS, 1);
            run::<Broadcast<String>>(&mut throughput, parameter, TOKENS, 1);
        } else {
            run::<Ring<Inline>>(&mut throughput, parameter, TOKENS, 1);
            run::<Deque<Inline>>(&mut throughput, parameter, TOKENS, 1);
            run::<Conflated<Inline>>(&mut throughput, parameter, TOKENS, 1);
        }
    }
    throughput.finish();
    let mut overload = group(criterion, "overload");
    for parameter in ["owned", "inline"] {
        run::<Ours>(&mut overload, parameter, TOKENS, 1000);
        if parameter == "owned" {
            run::<Ring<String>>(&mut overload, parameter, TOKENS, 1000);
            run::<Deque<String>>(&mut overload, parameter, TOKENS, 1000);
            run::<Conflated<String>>(&mut overload, parameter, TOKENS, 1000);
            run::<Broadcast<String>>(&mut overload, parameter, TOKENS, 1000);
        } else {
            run::<Ring<Inline>>(&mut overload, parameter, TOKENS, 1000);
            run::<Deque<Inline>>(&mut overload, parameter, TOKENS, 1000);
            run::<Conflated<Inline>>(&mut overload, parameter, TOKENS, 1000);
        }
    }
    overload.finish();
    let mut coalesce = group(criterion, "coalesce");
    run::<Ours>(&mut coalesce, "owned", 1, 0);
    run::<Ring<String>>(&mut coalesce, "owned", 1, 0);
    run::<Deque<String>>(&mut coalesce, "owned", 1, 0);
    run::<Conflated<String>>(&mut coalesce, "owned", 1, 0);
    coalesce.finish();
    let mut many = group(criterion, "many_tokens");
    run::<Ours>(&mut many, "owned", 10_000, 100);
    run::<Conflated<String>>(&mut many, "owned", 10_000, 100);
    many.finish();
}
