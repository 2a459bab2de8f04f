//! What one request costs in decisions, without IO, and what a deadline costs beside many others.
//!
//! Groups: `request` is text in, admission, one progress, the answer, both as bytes; `next deadline` and `expiry` run over a
//! coordinator with 1 000 to 1 000 000 armed requests (1 000 only with `--test`). Expiry ends the request that is due and
//! admits another in its place, so the number that is live stays the same. Allocations are printed once.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use steady_core::coordinator::{Config, Effect, Event, Polled, RequestCoordinator, Start};
use steady_core::deadline::Limits;
use steady_core::id::RequestId;
use steady_core::outbound::{self, Item, Outbound};
use steady_core::progress::Progress;
use steady_core::rpc::{self, Message, encode, request_meta};
use steady_core::time::Instant;

const TOOLS_CALL: &str = concat!(
    r#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"reserve_inventory","#,
    r#""arguments":{"sku":"a-1","quantity":2},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench"},"progressToken":7}}}"#
);
const RESULT: &str = r#"{"resultType":"complete","content":[{"type":"text","text":"reserved 2 of a-1"}]}"#;

/// The machines of one connection, and the buffers that it reuses.
struct Server {
    coordinator: RequestCoordinator,
    outbound: Outbound,
    prefix: String,
    wire: Vec<u8>,
}

impl Server {
    fn new() -> Self {
        let outbound = Outbound::new(outbound::Config::default());
        let coordinator = RequestCoordinator::new(Config::default());
        Self { coordinator, outbound, prefix: String::new(), wire: Vec::with_capacity(4096) }
    }

    /// One request from its text to the text of its progress and its answer; `None` if it was not served.
    fn serve(&mut self, now: Instant, text: &str) -> Option<usize> {
        let Ok(Message::Request { id, method, params }) = rpc::parse(text) else { return None };
        let token = request_meta(&method, params).ok()?.progress_token;
        if let Some(token) = &token {
            encode::progress_prefix(&mut self.prefix, token);
        }
        let start = Start { id: id.clone(), token, listen: false };
        let handle = self.coordinator.start(now, start, |request| request).ok()?;
        self.outbound.open(handle, &self.prefix);
        let request = self.coordinator.seat(handle)?;
        if request.handle(now, Event::Report(Progress::new(1.0)?)) == Effect::Forward {
            let _queued = self.outbound.progress(handle, 1.0, Some(2.0), "half");
        }
        let Effect::Respond { permit, .. } = request.handle(now, Event::Complete) else { return None };
        let mut body = Vec::with_capacity(RESULT.len() + 64);
        encode::result(&mut body, &id, RESULT);
        self.outbound.finish(permit, body).ok()?;
        self.coordinator.handler_ended(handle);
        self.send()
    }

    fn send(&mut self) -> Option<usize> {
        let Self { coordinator, outbound, wire, .. } = self;
        wire.clear();
        while let Some((popped, ())) = outbound.pop(|item| match item {
            Item::Progress { prefix, progress, total, message } => {
                encode::progress(wire, prefix, progress, total, message);
            }
            Item::Text(text) => wire.extend_from_slice(text),
        }) {
            wire.push(b'\n');
            if let (Some(handle), true) = (popped.handle, popped.last) {
                coordinator.release(handle)?;
            }
        }
        Some(wire.len())
    }
}

fn request(criterion: &mut Criterion) {
    let mut server = Server::new();
    let now = Instant::from_millis(1);
    assert_eq!(server.serve(now, TOOLS_CALL), Some(server.wire.len()));
    let info = allocation_counter::measure(|| assert!(server.serve(now, TOOLS_CALL).is_some()));
    println!("allocations: a whole request {:4} times, {:7} bytes", info.count_total, info.bytes_total);
    let mut group = criterion.benchmark_group("request");
    group.bench_function("ours", |bench| bench.iter(|| server.serve(now, black_box(TOOLS_CALL))));
    group.finish();
}

/// A coordinator with `live` requests in flight, one due at each millisecond from `live` on.
struct Crowd {
    coordinator: RequestCoordinator,
    now: u64,
    next_id: i64,
}

impl Crowd {
    fn new(live: u64) -> Self {
        let limits = Limits { idle: None, maximum: Some(Duration::from_millis(live)) };
        let in_flight = usize::try_from(live).unwrap_or(usize::MAX);
        let config = Config { in_flight, stragglers: usize::MAX, limits, ..Config::default() };
        let mut crowd = Self { coordinator: RequestCoordinator::new(config), now: 0, next_id: 0 };
        while crowd.now < live {
            crowd.admit();
            crowd.now += 1;
        }
        crowd
    }

    fn admit(&mut self) {
        let start = Start { id: RequestId::Integer(self.next_id), token: None, listen: false };
        self.next_id += 1;
        let now = Instant::from_millis(self.now);
        let handle = self.coordinator.start(now, start, |request| request).expect("there is room");
        self.coordinator.arm_deadline(handle);
    }

    /// Ends the request that is due now, and admits another.
    fn turn(&mut self) {
        let now = Instant::from_millis(self.now);
        let Polled::Acted(handle, effect) = self.coordinator.poll(now) else { panic!("one is due each millisecond") };
        drop(black_box(effect));
        self.coordinator.handler_ended(handle);
        self.coordinator.release(handle);
        self.admit();
        self.now += 1;
    }
}

fn deadlines(criterion: &mut Criterion) {
    let test = std::env::args().any(|argument| argument == "--test");
    let sizes: &[u64] = if test { &[1_000] } else { &[1_000, 10_000, 100_000, 1_000_000] };
    for &live in sizes {
        let mut crowd = Crowd::new(live);
        let mut group = criterion.benchmark_group("next deadline");
        group.bench_function(BenchmarkId::new("ours", live), |bench| {
            let before = Instant::from_millis(crowd.now.saturating_sub(1));
            bench.iter(|| crowd.coordinator.poll(black_box(before)));
        });
        group.finish();
        let mut group = criterion.benchmark_group("expiry");
        group.bench_function(BenchmarkId::new("ours", live), |bench| bench.iter(|| crowd.turn()));
        group.finish();
    }
}

criterion_group!(benches, request, deadlines);
criterion_main!(benches);
