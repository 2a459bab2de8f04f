//! Rows of streams: progress, comments, headers, and the end by hang-up.

use super::Row;
use super::subject::{Subject, ensure, next, why};
use crate::http::{Event, GUARD, Peer, call, post, request};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const ROWS: &[Row] = &[
    Row { about: "a stream says X-Accel-Buffering: no, no-cache", level: "SHOULD", check: stream_headers },
    Row { about: "no SSE id and no retry that invite resumption", level: "MUST NOT", check: no_resumption },
    Row { about: "progress before the one answer, nothing after", level: "MUST", check: progress_then_answer },
    Row { about: "progress strictly increases, whatever a handler says", level: "MUST", check: increases },
    Row { about: "no progress where no token was given", level: "MUST", check: no_token },
    Row { about: "a comment within 30 s of silence", level: "SHOULD", check: comment },
    Row { about: "answers others while one call waits", level: "ours", check: others_go_on },
    Row { about: "hang-up mid-stream cancels", level: "MUST", check: hang_up_mid_stream },
    Row { about: "hang-up before the first byte cancels", level: "MUST", check: hang_up_before },
    Row { about: "hang-up with a pipelined request waiting cancels", level: "MUST", check: hang_up_pipelined },
    Row { about: "half-close before the first byte cancels", level: "ours", check: half_close },
];

fn stream_headers(subject: &Subject) -> Result<(), String> {
    let (_peer, head) = subject.stream(&call(1, "wait", json!({})))?;
    let accel = head.header("x-accel-buffering").unwrap_or_default();
    let cache = head.header("cache-control").unwrap_or_default();
    ensure(accel == "no" && cache.contains("no-cache"), || format!("x-accel-buffering {accel:?}, cache {cache:?}"))
}

fn no_resumption(subject: &Subject) -> Result<(), String> {
    let (mut peer, _) = subject.stream(&call(2, "count", json!({"n": 3})))?;
    let text = peer.body().map_err(why)?;
    let fields: Vec<&str> = text.lines().filter(|line| line.starts_with("id:") || line.starts_with("retry:")).collect();
    ensure(fields.is_empty() && text.contains("counted"), || format!("{fields:?}"))
}

/// The messages of a whole stream.
fn messages(subject: &Subject, message: &Value) -> Result<Vec<Value>, String> {
    let mut peer = Peer::connect(&subject.address).map_err(why)?;
    peer.send(&post(&subject.address, message)).map_err(why)?;
    let head = peer.head().map_err(why)?;
    ensure(head.status == 200, || head.status.to_string())?;
    if !head.is_stream() {
        let body = peer.body().map_err(why)?;
        return Ok(vec![serde_json::from_str(&body).map_err(why)?]);
    }
    let mut all = Vec::new();
    while let Some(message) = peer.message().map_err(why)? {
        all.push(message);
    }
    Ok(all)
}

fn is_progress(message: &Value) -> bool {
    message["method"] == "notifications/progress"
}

fn progress_then_answer(subject: &Subject) -> Result<(), String> {
    let all = messages(subject, &call("p", "count", json!({"n": 5})))?;
    let (last, before) = all.split_last().ok_or("nothing")?;
    let own = |message: &Value| is_progress(message) && message["params"]["progressToken"] == "p";
    let seen: Vec<f64> = before.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
    // Reports may be merged; the last one before the answer is the newest.
    let whole = seen.last() == Some(&5.0) && before.iter().all(own);
    ensure(whole && last["id"] == "p" && last["result"].is_object(), || format!("{all:?}"))
}

fn increases(subject: &Subject) -> Result<(), String> {
    let all = messages(subject, &call("s", "stutter", json!({})))?;
    let seen: Vec<f64> = all.iter().filter_map(|message| message["params"]["progress"].as_f64()).collect();
    let increases = seen.is_sorted_by(|one, other| one < other);
    let answered = all.last().is_some_and(|last| last["result"].is_object());
    ensure(increases && answered && seen.last() == Some(&2.0), || format!("{seen:?}"))
}

fn no_token(subject: &Subject) -> Result<(), String> {
    let mut message = call("t", "count", json!({"n": 3}));
    if let Some(meta) = message["params"]["_meta"].as_object_mut() {
        meta.remove("progressToken");
    }
    let all = messages(subject, &message)?;
    let answered = all.last().is_some_and(|last| last["result"].is_object());
    ensure(answered && !all.iter().any(is_progress), || format!("{all:?}"))
}

/// A stream that says nothing else for longer than the usual interval, 15 s.
fn comment(subject: &Subject) -> Result<(), String> {
    let (mut peer, _) = subject.stream(&call(3, "quiet", json!({"ms": 30_000})))?;
    peer.wait_at_most(2 * GUARD).map_err(why)?;
    next(&mut peer)?;
    loop {
        match peer.event().map_err(why)? {
            Some(Event::Quiet) => return Ok(()),
            Some(Event::Message(message)) if message["result"].is_object() => return Err("no comment".to_string()),
            Some(Event::Message(_)) => {}
            None => return Err("the stream ends".to_string()),
        }
    }
}

fn others_go_on(subject: &Subject) -> Result<(), String> {
    let (mut peer, _) = subject.stream(&call(4, "wait", json!({})))?;
    next(&mut peer)?;
    let said = subject.say("echo", json!({"text": "hi"}))?;
    ensure(said == "hi", || said)
}

/// How many handlers were told of their cancellation, and how many have waited for it so far.
fn counts(subject: &Subject) -> Result<(u64, u64), String> {
    let said = subject.say("cancelled", json!({}))?;
    let (cancelled, started) = said.split_once(" of ").ok_or_else(|| said.clone())?;
    Ok((cancelled.parse().map_err(why)?, started.parse().map_err(why)?))
}

/// Waits until the counts are so.
fn until(subject: &Subject, limit: Duration, holds: impl Fn(u64, u64) -> bool) -> Result<(), String> {
    let since = Instant::now();
    loop {
        let (cancelled, started) = counts(subject)?;
        if holds(cancelled, started) {
            return Ok(());
        }
        if since.elapsed() > limit {
            return Err(format!("{cancelled} of {started} handlers are told within {limit:?}"));
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn one_more(subject: &Subject, before: u64) -> Result<(), String> {
    until(subject, GUARD / 2, |cancelled, _| cancelled > before)
}

/// Earlier rows have hung up too: waits for their handlers, but not for those that are never told.
fn settled(subject: &Subject) -> Result<(u64, u64), String> {
    let _some_are_never_told = until(subject, Duration::from_secs(3), |cancelled, started| cancelled == started);
    counts(subject)
}

fn hang_up_mid_stream(subject: &Subject) -> Result<(), String> {
    let (before, _) = settled(subject)?;
    let (mut peer, _) = subject.stream(&call(6, "wait", json!({})))?;
    next(&mut peer)?;
    peer.hang_up();
    one_more(subject, before)
}

/// A call whose handler runs and has not said a byte.
fn silent(subject: &Subject) -> Result<(Peer, u64), String> {
    let (cancelled, started) = settled(subject)?;
    let mut peer = Peer::connect(&subject.address).map_err(why)?;
    peer.send(&post(&subject.address, &call(7, "silent", json!({})))).map_err(why)?;
    until(subject, GUARD, |_, now| now > started)?;
    Ok((peer, cancelled))
}

fn hang_up_before(subject: &Subject) -> Result<(), String> {
    let (peer, before) = silent(subject)?;
    peer.hang_up();
    one_more(subject, before)
}

fn hang_up_pipelined(subject: &Subject) -> Result<(), String> {
    let (mut peer, before) = silent(subject)?;
    peer.send(&post(&subject.address, &request(8, "tools/list", json!({})))).map_err(why)?;
    peer.hang_up();
    one_more(subject, before)
}

/// A client that has ended its side only: it cannot be told from one that hangs up, and must not be a call for ever.
fn half_close(subject: &Subject) -> Result<(), String> {
    let (peer, before) = silent(subject)?;
    peer.half_close().map_err(why)?;
    one_more(subject, before)
}
