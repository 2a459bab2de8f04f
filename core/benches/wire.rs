//! Reading and writing one message, against what a server without this module would use.
//!
//! Groups: `parse` and `parse 100 KB` (the envelope), `request` (envelope and `_meta`, what a server needs before it can
//! admit), `encode` (one progress notification). How often each allocates is printed once, before the timings.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde::Serialize;
use serde_json::Value;
use steady_core::id::ProgressToken;
use steady_core::rpc::{self, Message, encode, request_meta};

const TOOLS_CALL: &str = concat!(
    r#"{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"reserve_inventory","#,
    r#""arguments":{"sku":"a-1","quantity":2},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#,
    r#""io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"#,
    r#""io.modelcontextprotocol/clientInfo":{"name":"bench"},"progressToken":7}}}"#
);

/// A call whose arguments are 100 KB of orders.
fn large() -> String {
    let order = r#"{"sku":"a-1","quantity":2,"note":"left at the door, \"ring twice\"","tags":["x","y"]}"#;
    let orders = vec![order; (100 << 10) / order.len()].join(",");
    TOOLS_CALL.replace(r#""quantity":2"#, &format!(r#""orders":[{orders}]"#))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    progress_token: u64,
    progress: f64,
    total: f64,
    message: &'a str,
}

#[derive(Serialize)]
struct Notification<'a> {
    jsonrpc: &'a str,
    method: &'a str,
    params: ProgressParams<'a>,
}

fn notification(progress: f64) -> Notification<'static> {
    let params = ProgressParams { progress_token: 7, progress, total: 100.0, message: "resolving the dependencies" };
    Notification { jsonrpc: "2.0", method: "notifications/progress", params }
}

fn prefix() -> String {
    let mut prefix = String::new();
    encode::progress_prefix(&mut prefix, &ProgressToken(7.into()));
    prefix
}

/// Parses a request and its metadata; how many bytes of capabilities it declares.
fn request(text: &str) -> Option<usize> {
    let Ok(Message::Request { method, params, .. }) = rpc::parse(text) else { return None };
    request_meta(&method, params).ok().map(|meta| meta.client_capabilities.len())
}

fn value(text: &str) -> Option<usize> {
    let tree: Value = serde_json::from_str(text).ok()?;
    let capabilities = &tree["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    capabilities.as_object().map(serde_json::Map::len)
}

fn allocations(name: &str, mut run: impl FnMut()) {
    run();
    let info = allocation_counter::measure(run);
    println!("allocations: {name:28} {:4} times, {:7} bytes", info.count_total, info.bytes_total);
}

fn report_allocations() {
    let large = large();
    println!("a call of {} bytes, a large one of {} bytes", TOOLS_CALL.len(), large.len());
    let mut out = Vec::with_capacity(512);
    let prefix = prefix();
    allocations("parse, ours", || drop(black_box(rpc::parse(TOOLS_CALL))));
    allocations("parse, Value", || drop(black_box(serde_json::from_str::<Value>(TOOLS_CALL))));
    allocations("parse 100 KB, ours", || drop(black_box(rpc::parse(&large))));
    allocations("parse 100 KB, Value", || drop(black_box(serde_json::from_str::<Value>(&large))));
    allocations("request, ours", || assert!(black_box(request(TOOLS_CALL)).is_some()));
    allocations("request, Value", || assert!(black_box(value(TOOLS_CALL)).is_some()));
    allocations("encode, ours", || {
        out.clear();
        encode::progress(&mut out, &prefix, 42.0, Some(100.0), "resolving the dependencies");
    });
    allocations("encode, to_vec", || drop(black_box(serde_json::to_vec(&notification(42.0)))));
}

fn parse(criterion: &mut Criterion) {
    report_allocations();
    let large = large();
    for (name, text) in [("parse", TOOLS_CALL), ("parse 100 KB", large.as_str())] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("ours", |bench| bench.iter(|| rpc::parse(black_box(text)).is_ok()));
        group.bench_function("Value", |bench| bench.iter(|| serde_json::from_str::<Value>(black_box(text)).is_ok()));
        group.finish();
    }
    let mut group = criterion.benchmark_group("request");
    group.bench_function("ours", |bench| bench.iter(|| request(black_box(TOOLS_CALL))));
    group.bench_function("Value", |bench| bench.iter(|| value(black_box(TOOLS_CALL))));
    group.finish();
}

fn encode_progress(criterion: &mut Criterion) {
    let prefix = prefix();
    let mut out = Vec::with_capacity(512);
    let mut group = criterion.benchmark_group("encode");
    group.bench_function("ours", |bench| {
        bench.iter(|| {
            out.clear();
            encode::progress(&mut out, &prefix, black_box(42.0), Some(100.0), "resolving the dependencies");
            out.len()
        });
    });
    group.bench_function("to_vec", |bench| bench.iter(|| serde_json::to_vec(&notification(black_box(42.0)))));
    group.finish();
    let mut group = criterion.benchmark_group("encode a fraction");
    group.bench_function("ours", |bench| {
        bench.iter(|| {
            out.clear();
            encode::progress(&mut out, &prefix, black_box(42.625), Some(100.0), "resolving the dependencies");
            out.len()
        });
    });
    group.bench_function("to_vec", |bench| bench.iter(|| serde_json::to_vec(&notification(black_box(42.625)))));
    group.finish();
}

criterion_group!(benches, parse, encode_progress);
criterion_main!(benches);
