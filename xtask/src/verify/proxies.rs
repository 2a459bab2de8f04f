//! Our server behind real proxies, with their defaults and the line that
//! forwards. nginx must be there; HAProxy, Apache and Caddy are used if they
//! are.
//!
//! Everything that is checked is an order: an event must be read before the
//! server is let go on to the next one; a hang-up must make the handler speak;
//! a result must come after a silence of twice the proxy's idle timeout. What
//! is measured on the way is printed. Two set-ups must fail, or the checks
//! prove nothing: nginx that does not heed our header must hold an event back,
//! and a proxy must cut a stream that has no comments.

mod kinds;
mod measured;
mod story;

use super::context::Context;
use super::served::Served;
use crate::error::Error;
use crate::http::{GUARD, Peer, call, headers, post, text};
use crate::process::Command;
use kinds::{IDLE_S, NGINX_BUFFERING, PROXIES, Proxy, Running};
pub(crate) use measured::Measured;
use measured::{Ended, Idle, Times, median};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The probe of the one proxy that must be there.
pub(crate) const NGINX: &[&str] = kinds::NGINX.probe;

/// How often an event and a hang-up are timed.
const ROUNDS: u32 = 20;
/// A hang-up that takes longer was not seen as such, but at a write: that is timed twice only, in microseconds.
const AT_A_WRITE: u128 = 200_000;
/// How long a stream is silent, in milliseconds: longer than any proxy here waits.
const SILENCE_MS: u64 = (2 * IDLE_S + 1) * 1000;
/// Time between comments, in milliseconds.
const COMMENTS_MS: u64 = 500;
/// No comment within this step, in milliseconds.
const NO_COMMENTS_MS: u64 = 3_600_000;
/// How long an event that must not come is waited for.
const HELD_BACK: Duration = Duration::from_secs(2);

/// The step.
pub(crate) fn run(cx: &mut Context) -> Result<(), Error> {
    let mut findings = measure(cx)?;
    findings.extend(buffers_anyway(&program(cx)).err().map(|error| error.to_string()));
    findings.extend(story::run(cx).err().map(|error| error.to_string()));
    let text = measured::table(cx.proxies.as_deref().unwrap_or_default());
    text.lines().for_each(|line| cx.say(line));
    cx.say(&format!("medians and maxima; a comment each {COMMENTS_MS} ms; an answer is a stream after 2 s"));
    cx.say(&format!(
        "silent for {SILENCE_MS} ms at an idle timeout of {IDLE_S} s: survived with comments, cut without"
    ));
    Error::unless_empty(findings)
}

/// Checks and measures what each proxy that is there does with our streams; what is wrong.
pub(super) fn measure(cx: &mut Context) -> Result<Vec<String>, Error> {
    cx.line("cargo build -p mcp-steady-http --example proxied")?;
    let program = program(cx);
    let proxies: Vec<&Proxy> = PROXIES.iter().filter(|proxy| is_there(cx, proxy)).collect();
    let (mut rows, mut findings) = (Vec::new(), Vec::new());
    for proxy in &proxies {
        match timed(&program, proxy) {
            Ok(row) => rows.push(row),
            Err(error) => findings.push(format!("{}: {error}", proxy.name)),
        }
    }
    for (name, silences) in silences(&program, &proxies) {
        match silences {
            Ok(idle) => {
                findings.extend(idle.findings().map(|what| format!("{name}: {what}")));
                rows.iter_mut().filter(|row| row.proxy == name).for_each(|row| row.idle = Some(idle));
            }
            Err(why) => findings.push(format!("{name}: {why}")),
        }
    }
    cx.proxies = Some(rows);
    Ok(findings)
}

/// Whether there is any proxy to measure.
pub(super) fn one_is_there() -> bool {
    PROXIES.iter().any(|proxy| proxy.probe.split_first().is_some_and(|(program, args)| works(program, args)))
}

fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args.iter().copied()).works()
}

fn program(cx: &Context) -> Command {
    Command::new(cx.workspace.program("examples/proxied"))
}

fn is_there(cx: &mut Context, proxy: &Proxy) -> bool {
    let Some((program, args)) = proxy.probe.split_first() else { return false };
    let there = works(program, args);
    if !there {
        cx.say(&format!("skipped: {program} is not on this machine"));
    }
    there
}

fn serve(program: &Command, comments_ms: u64) -> Result<Served, Error> {
    Served::start(&program.clone().args(["127.0.0.1:0", &comments_ms.to_string()]))
}

/// Names the place of an error of the socket.
fn at(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |why| Error::check(format!("{what}: {why}"))
}

/// What holds in order, and how long it takes.
fn timed(program: &Command, proxy: &Proxy) -> Result<Measured, Error> {
    let server = serve(program, COMMENTS_MS)?;
    let proxied = Running::start(proxy, server.address())?;
    let answer = Peer::exchange(&proxied.address, &post(&proxied.address, &call(1, "echo", json!({"text": "hi"}))));
    let answer = answer.map_err(at("a plain call"))?;
    let text = answer.message().unwrap_or_default()["result"]["content"][0]["text"].clone();
    if answer.head.status != 200 || text != "hi" {
        return Err(Error::check(format!("a plain call is answered by {answer:?}")));
    }
    let (stream_headers, events) = events(&server, &proxied)?;
    let mid_stream = hang_ups(&server, &proxied, "says")?;
    let before = hang_ups(&server, &proxied, "wait")?;
    refuses_origin(&proxied)?;
    Ok(Measured {
        proxy: proxy.name,
        stream_headers,
        event_delay: Times::of(&events),
        hang_up_mid_stream: Times::of(&mid_stream),
        hang_up_before_first_byte: Times::of(&before),
        public_host_status: status(&proxied, "mcp.example.com", "hi")?,
        two_mib_body_status: status(&proxied, &proxied.address, &"x".repeat(2 << 20))?,
        idle: None,
    })
}

/// The origin of a page is passed on and checked, whatever the proxy makes of the host.
fn refuses_origin(proxied: &Running) -> Result<(), Error> {
    let message = call(8, "echo", json!({"text": "hi"}));
    let mut headers = headers(&message);
    headers.push(("Origin".into(), "http://evil.example.com".into()));
    let request = text("POST", &proxied.address, &headers, &message.to_string());
    let answer = Peer::exchange(&proxied.address, &request).map_err(at("a call from another origin"))?;
    let refused = answer.head.status == 403;
    if refused { Ok(()) } else { Err(Error::check(format!("another origin is answered by {answer:?}"))) }
}

/// What a call gets that this proxy and this server do not agree about by default: it is told, not judged.
fn status(proxied: &Running, host: &str, text: &str) -> Result<u16, Error> {
    let message = post(host, &call(7, "echo", json!({"text": text})));
    let answer = Peer::exchange(&proxied.address, &message).map_err(at("a call"))?;
    Ok(answer.head.status)
}

/// Each event is read before the server may go on to the next. The headers of the stream, and how long each took.
fn events(server: &Served, proxied: &Running) -> Result<(BTreeMap<String, String>, Vec<u128>), Error> {
    let mut peer = Peer::connect(&proxied.address).map_err(at("a connection"))?;
    peer.send(&post(&proxied.address, &call(2, "gated", json!({"n": ROUNDS})))).map_err(at("a call"))?;
    let (mut delays, mut headers) = (Vec::new(), BTreeMap::new());
    for n in 1..=ROUNDS {
        open(server)?;
        if n == 1 {
            let head = peer.head().map_err(at("the head of a stream"))?;
            headers = head.headers().iter().filter(|(name, _)| name != "date").cloned().collect();
        }
        let event = peer.message().map_err(at("an event that is held back"))?.unwrap_or_default();
        let now = now();
        if event["params"]["progress"] != n {
            return Err(Error::check(format!("report {n} is {event}")));
        }
        let said = event["params"]["message"].as_str().and_then(|said| said.parse().ok());
        delays.push(now.saturating_sub(said.unwrap_or(0)));
        expect(server, "reported")?;
    }
    let last = peer.message().map_err(at("the answer"))?.unwrap_or_default();
    if last["result"]["content"][0]["text"] != "through the gate" {
        return Err(Error::check(format!("the answer of a stream is {last}")));
    }
    Ok((headers, delays))
}

/// Lets the gated handler take one more step, past the proxy.
fn open(server: &Served) -> Result<(), Error> {
    let message = call(3, "open", json!({}));
    Peer::exchange(server.address(), &post(server.address(), &message)).map(drop).map_err(at("the gate"))
}

fn expect(server: &Served, what: &str) -> Result<(), Error> {
    let line = server.heard()?;
    if line == what { Ok(()) } else { Err(Error::check(format!("the server says {line:?} instead of {what:?}"))) }
}

/// A client hangs up: its handler hears of it. `says` is a stream by then, `wait` has not said a byte.
fn hang_ups(server: &Served, proxied: &Running, tool: &str) -> Result<Vec<u128>, Error> {
    let mut delays: Vec<u128> = Vec::new();
    let seen_at_a_write = |delays: &[u128]| delays.len() > 1 && median(delays) > AT_A_WRITE;
    while delays.len() < ROUNDS as usize && !seen_at_a_write(&delays) {
        let mut peer = Peer::connect(&proxied.address).map_err(at("a connection"))?;
        peer.send(&post(&proxied.address, &call(4, tool, json!({})))).map_err(at("a call"))?;
        expect(server, "started")?;
        if tool == "says" {
            peer.head().map_err(at("the head of a stream"))?;
            peer.message().map_err(at("the first event"))?;
        }
        let gone = now();
        peer.hang_up();
        let line = server.heard()?;
        let said = line.strip_prefix("cancelled ").and_then(|said| said.parse::<u128>().ok());
        let said = said.ok_or_else(|| Error::check(format!("after a hang-up the server says {line:?}")))?;
        delays.push(said.saturating_sub(gone));
    }
    Ok(delays)
}

/// Every proxy at once, since all of them wait: with comments the answer comes, without them the proxy cuts the stream.
fn silences(program: &Command, proxies: &[&Proxy]) -> Vec<(&'static str, Result<Idle, Error>)> {
    let silent = |proxy: &Proxy, comments_ms: u64| {
        let server = serve(program, comments_ms)?;
        let proxied = Running::start(proxy, server.address())?;
        silence(&proxied)
    };
    let both = |proxy: &Proxy| {
        let (with_comments, without) = (silent(proxy, COMMENTS_MS)?, silent(proxy, NO_COMMENTS_MS)?);
        let (timeout_s, silent_ms, comment_every_ms) = (IDLE_S, SILENCE_MS, COMMENTS_MS);
        Ok(Idle { timeout_s, silent_ms, comment_every_ms, with_comments, without })
    };
    thread::scope(|scope| {
        let running: Vec<_> = proxies.iter().map(|proxy| (proxy.name, scope.spawn(|| both(proxy)))).collect();
        let joined = running.into_iter().map(|(name, one)| {
            let panicked = |_| Err(Error::check("a check panicked"));
            (name, one.join().unwrap_or_else(panicked))
        });
        joined.collect()
    })
}

fn silence(proxied: &Running) -> Result<Ended, Error> {
    let mut peer = Peer::connect(&proxied.address).map_err(at("a connection"))?;
    peer.send(&post(&proxied.address, &call(5, "quiet", json!({"ms": SILENCE_MS})))).map_err(at("a call"))?;
    peer.head().map_err(at("the head of a stream"))?;
    peer.message().map_err(at("the first event"))?;
    Ok(match peer.message() {
        Ok(Some(Value::Object(answer))) if answer.contains_key("result") => Ended::Answered,
        Ok(_) => Ended::Cut,
        Err(why) if [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset].contains(&why.kind()) => Ended::Cut,
        Err(why) => return Err(at("a silent stream")(why)),
    })
}

/// An nginx that ignores our header keeps the first event until the stream has ended.
fn buffers_anyway(program: &Command) -> Result<(), Error> {
    let server = serve(program, NO_COMMENTS_MS)?;
    let proxied = Running::start(&NGINX_BUFFERING, server.address())?;
    let mut peer = Peer::connect(&proxied.address).map_err(at("a connection"))?;
    peer.send(&post(&proxied.address, &call(6, "gated", json!({"n": 2})))).map_err(at("a call"))?;
    open(&server)?;
    expect(&server, "reported")?;
    peer.wait_at_most(HELD_BACK).map_err(at("a socket"))?;
    let head = peer.head();
    let headless = head.is_err();
    let early = head.and_then(|_| peer.message());
    if !early.as_ref().is_err_and(|why| [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&why.kind())) {
        return Err(Error::check(format!(
            "{} does not hold an event back ({early:?}): that none is held back proves nothing",
            NGINX_BUFFERING.name
        )));
    }
    open(&server)?;
    peer.wait_at_most(GUARD).map_err(at("a socket"))?;
    if headless {
        peer.head().map_err(at("the head of a held stream"))?;
    }
    let first = peer.message().map_err(at("a held event"))?.unwrap_or_default();
    if first["params"]["progress"] == 1 { Ok(()) } else { Err(Error::check(format!("held back was {first}"))) }
}

/// Microseconds since 1970, as the server says them.
fn now() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros()
}

#[cfg(test)]
mod tests {
    use super::kinds::PROXIES;
    use std::collections::BTreeSet;

    #[test]
    fn every_proxy_has_a_name_of_its_own() {
        assert_eq!(PROXIES.iter().map(|proxy| proxy.name).collect::<BTreeSet<_>>().len(), PROXIES.len());
    }
}
