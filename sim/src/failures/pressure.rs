//! Nobody reads, or something in between collects.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use steady_core::coordinator::{Effect, Event, ServedRequest};
use steady_core::deadline::Limits;
use steady_core::id::ProgressToken;
use steady_core::kernel::OutboundQueue;
use steady_core::outbound::{Config, Handle};
use steady_core::request::{self, Request, Terminal};
use steady_core::rpc::encode;
use steady_core::time::Instant;
use steady_http::sse;

use super::{FailureError, Shown, judge};

const REQUESTS: u32 = 100;
const UPDATES: u32 = 100;
const CAPACITY: usize = 64;

/// What an overloaded queue came to.
struct Load {
    most: usize,
    finals: usize,
}

/// A hundred requests report a hundred times each and complete, while nobody reads; then somebody does.
fn ours() -> Load {
    let queue = OutboundQueue::new(Config { capacity: CAPACITY, ..Config::default() });
    let handles: Vec<Handle> = (0..REQUESTS).map(|index| Handle::new(index, 1)).collect();
    for (handle, index) in handles.iter().zip(0_i64..) {
        let mut prefix = String::new();
        encode::progress_prefix(&mut prefix, &ProgressToken(index.into()));
        queue.open(*handle, &prefix);
    }
    let mut most = 0;
    for update in 0..UPDATES {
        for handle in &handles {
            // What became of it is counted at the end, by what is read.
            let _kept_or_not = queue.progress(*handle, update.into(), Some(UPDATES.into()), "working");
            most = most.max(queue.occupancy().0);
        }
    }
    for handle in &handles {
        let mut request = ServedRequest::start(Instant::ZERO, *handle, Limits::default(), true, Duration::ZERO);
        if let Effect::Respond { permit, .. } = request.handle(Instant::ZERO, Event::Complete) {
            queue.finish(permit, b"{}".to_vec());
        }
    }
    let mut finals = 0;
    while let Some((popped, ())) = queue.pop(|_| ()) {
        finals += usize::from(popped.last);
    }
    Load { most, finals }
}

/// The same messages, into a queue of this capacity that drops its oldest when full; or of none.
fn wrong(capacity: Option<usize>) -> Load {
    let mut queue: VecDeque<bool> = VecDeque::new();
    let mut most = 0;
    let progress = (0..UPDATES * REQUESTS).map(|_| false);
    for is_final in progress.chain((0..REQUESTS).map(|_| true)) {
        if capacity.is_some_and(|capacity| queue.len() >= capacity) {
            queue.pop_front();
        }
        queue.push_back(is_final);
        most = most.max(queue.len());
    }
    Load { most, finals: queue.into_iter().filter(|is_final| *is_final).count() }
}

pub(super) fn unbounded(_: &Path) -> Result<Shown, FailureError> {
    let asked = REQUESTS * UPDATES;
    Ok(judge(
        &wrong(None),
        &ours(),
        |load| load.most > CAPACITY,
        |load| format!("{asked} progress values while nobody reads: up to {} messages waited", load.most),
    ))
}

pub(super) fn final_dropped(_: &Path) -> Result<Shown, FailureError> {
    let all = REQUESTS as usize;
    Ok(judge(
        &wrong(Some(CAPACITY)),
        &ours(),
        |load| load.finals < all,
        |load| format!("{} of {all} final responses arrived", load.finals),
    ))
}

/// A model of a proxy by nginx's rule: a response is collected up to a buffer's size or its end, unless it says no.
struct Proxy {
    collects: bool,
    held: Vec<u8>,
}

/// nginx's `proxy_buffer_size` on most systems.
const BUFFER: usize = 4096;

impl Proxy {
    fn new(headers: &[(&str, &str)]) -> Self {
        let says_no = headers.iter().any(|(name, value)| *name == "x-accel-buffering" && *value == "no");
        Self { collects: !says_no, held: Vec::new() }
    }

    /// What it passes on.
    fn pass(&mut self, bytes: &[u8], end: bool) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        if self.collects && !end && self.held.len() < BUFFER { Vec::new() } else { std::mem::take(&mut self.held) }
    }
}

/// What a client behind a proxy saw.
struct Behind {
    early: u64,
    end: Option<Terminal>,
}

/// A server reports each 10 s for a minute, then answers; the client's idle limit is 30 s.
fn behind(headers: &[(&str, &str)]) -> Behind {
    let limits = Limits { idle: Some(Duration::from_secs(30)), maximum: Some(Duration::from_secs(300)) };
    let mut proxy = Proxy::new(headers);
    let mut request = Request::start(Instant::ZERO, limits);
    let mut parser = sse::Parser::new(1 << 20);
    let mut early = 0;
    for beat in 1..=7_u64 {
        let now = Instant::from_millis(beat * 10_000);
        let last = beat == 7;
        let mut event = Vec::new();
        let text = if last { r#"{"jsonrpc":"2.0","id":1,"result":{}}"#.to_owned() } else { progress(beat) };
        sse::write_event(&mut event, &text);
        let passed = proxy.pass(&event, last);
        let before = parser.counts().events;
        let mut chunk = passed.as_slice();
        while parser.next(&mut chunk).is_some() {}
        let arrived = parser.counts().events - before;
        if arrived > 0 && !last {
            early += arrived;
            let _extended = request.handle(now, request::Event::Progress);
        }
        let _elapsed = request.handle(now, if last { request::Event::Complete } else { request::Event::Tick });
    }
    Behind { early, end: request.terminal() }
}

fn progress(value: u64) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":1,"progress":{value}}}}}"#
    )
}

pub(super) fn buffered_stream(_: &Path) -> Result<Shown, FailureError> {
    let (wrong, ours) = (behind(&[("content-type", "text/event-stream")]), behind(&sse::RESPONSE_HEADERS));
    Ok(judge(
        &wrong,
        &ours,
        |behind| behind.end != Some(Terminal::Completed),
        |behind| {
            let end = behind.end.map_or_else(|| "in flight".to_owned(), |end| end.to_string());
            format!("{} of 6 progress values came while it worked; the call: {end}", behind.early)
        },
    ))
}
