//! The bodies of the fuzz targets for HTTP: bytes in, a panic if something that must hold does not.
//!
//! The fuzz targets and the replay of their seeds include this file, so both check the same.

use std::cell::LazyCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response};
use http_body::Body as _;
use serde_json::Value;
use steady_http::headers::{Access, decode_value};
use steady_http::sse::{Counts, Item, Parser, Rejected};
use steady_http::{Body, HttpConfig, HttpService, Hub, Reply, Tools};
use tower_service::Service as _;

/// What an event was.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    Text(String),
    Rejected(Rejected),
}

/// The first byte says how long an event may be, and where the rest, a stream, is cut: what is found does not depend on the
/// cuts, and is what the standard's own steps find in the whole text.
pub(crate) fn sse(data: &[u8]) {
    let Some((first, stream)) = data.split_first() else { return };
    let (limit, size) = (usize::from(first >> 4) * 8, usize::from(first & 15) + 1);
    let whole = parsed([stream], limit);
    assert_eq!(parsed(stream.chunks(size), limit), whole, "cut every {size} bytes");
    assert_eq!(whole.0, by_the_standard(stream, limit));
    let dropped = whole.0.iter().filter(|event| matches!(event, Event::Rejected(_))).count() as u64;
    assert_eq!((whole.1.events + whole.1.rejected, whole.1.rejected), (whole.0.len() as u64, dropped));
}

fn parsed<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, limit: usize) -> (Vec<Event>, Counts) {
    let (mut parser, mut events) = (Parser::new(limit), Vec::new());
    for mut chunk in chunks {
        while let Some(item) = parser.next(&mut chunk) {
            events.push(match item {
                Item::Event(text) => Event::Text(text.to_owned()),
                Item::Rejected(why) => Event::Rejected(why),
            });
        }
        assert!(chunk.is_empty(), "a chunk is read to its end");
    }
    (events, parser.counts())
}

/// The lines of a stream, without the last one if nothing ends it.
fn lines(stream: &[u8]) -> Vec<&[u8]> {
    let (mut lines, mut rest) = (Vec::new(), stream.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(stream));
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        lines.push(&rest[..at]);
        let end = if rest[at..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[at + end..];
    }
    lines
}

fn by_the_standard(stream: &[u8], limit: usize) -> Vec<Event> {
    let (mut events, mut data) = (Vec::new(), None::<Vec<u8>>);
    for line in lines(stream) {
        if line.is_empty() {
            events.extend(data.take().map(|data| match String::from_utf8(data) {
                Ok(text) if text.len() <= limit => Event::Text(text),
                Err(error) if error.as_bytes().len() <= limit => Event::Rejected(Rejected::NotUtf8),
                Ok(_) | Err(_) => Event::Rejected(Rejected::TooLong { limit }),
            }));
            continue;
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &b""[..]),
        };
        if field == b"data" {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            data = Some(match data.take() {
                Some(before) => [&*before, b"\n", value].concat(),
                None => value.to_vec(),
            });
        }
    }
    events
}

const MIRRORED: &str = r#"{"type":"object","properties":{"value":{"type":"string","x-mcp-header":"Value"}}}"#;

struct Server {
    runtime: tokio::runtime::Runtime,
    service: HttpService<Tools>,
}

thread_local! {
    static SERVER: LazyCell<Server> = const { LazyCell::new(server) };
}

fn server() -> Server {
    let tools = Tools::new("fuzzed", "0")
        .tool("mirrored", "Has a mirrored parameter.", MIRRORED, |_, _| async { Ok(Reply::text("done")) });
    let config = HttpConfig { max_sessions: 4, max_body: 4096, ..HttpConfig::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    Server { runtime, service: HttpService::new(tools.subscriptions(&Hub::new()), config) }
}

/// A request as text: a method, lines, an empty one, and the body. What is no header for HTTP itself is left out.
fn request(data: &[u8]) -> Request<Whole> {
    let at = data.windows(2).position(|pair| pair == b"\n\n").unwrap_or(data.len());
    let (head, body) = (&data[..at], data.get(at + 2..).unwrap_or_default());
    let mut head = head.split(|byte| *byte == b'\n');
    let method = head.next().and_then(|method| Method::from_bytes(method).ok()).unwrap_or(Method::POST);
    let mut request = Request::new(Whole(Some(bytes::Bytes::copy_from_slice(body))));
    *request.method_mut() = method;
    for line in head {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
            request.headers_mut().append(name, value);
        }
    }
    request
}

/// The body of a request, in one piece.
struct Whole(Option<bytes::Bytes>);

impl http_body::Body for Whole {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

/// A request through the whole service: it is answered, in a form that a client can read, and what ran is what its headers
/// say to whoever reads those alone.
pub(crate) fn post(data: &[u8]) {
    SERVER.with(|server| {
        let request = request(data);
        let (headers, body) = (request.headers().clone(), request.body().0.clone().unwrap_or_default());
        let method = request.method().clone();
        let call = server.service.clone().call(request);
        let Ok(response) = server
            .runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), call).await.expect("it is answered") });
        let may_call = Access::loopback().check(&headers, None).is_ok();
        assert_eq!(response.status() != 403, may_call, "who is refused is refused first, and nobody else");
        let (status, is_json) = (response.status().as_u16(), is_json(&response));
        let known = [200, 202, 204, 400, 403, 404, 405, 406, 413, 415, 503];
        assert!(known.contains(&status), "{status}");
        let said = server.runtime.block_on(async { said(response) });
        if is_json {
            let answer: Value = serde_json::from_slice(&said).expect("one JSON object");
            answered(&answer, status, &headers, &body);
            assert!(method == Method::POST || answer.get("error").is_some(), "nothing else has a result: {answer}");
        } else if status != 200 {
            assert_eq!(said, b"", "{status}");
        }
    });
}

fn is_json(response: &Response<Body>) -> bool {
    response.headers().get("content-type").is_some_and(|kind| kind == "application/json")
}

/// What of an answer is there at once: a stream may stay open.
fn said(mut response: Response<Body>) -> Vec<u8> {
    let mut said = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Some(Ok(frame))) = Pin::new(response.body_mut()).poll_frame(&mut cx) {
        said.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    said
}

fn answered(answer: &Value, status: u16, headers: &HeaderMap, body: &[u8]) {
    assert_eq!(answer["jsonrpc"], "2.0");
    assert_ne!(answer.get("result").is_some(), answer.get("error").is_some(), "{answer}");
    let is_modern = headers.get("mcp-protocol-version").is_some_and(|version| version == "2026-07-28");
    let Some(error) = answer.get("error") else {
        assert_eq!(status, 200, "a result is one (rule M3)");
        if is_modern {
            ran(headers, body);
        }
        return;
    };
    let code = error["code"].as_i64().expect("a code");
    assert!(error["message"].is_string() && (-32768..=-31000).contains(&code), "{error}");
    if is_modern && matches!(code, -32022..=-32020 | -32700) {
        assert_eq!(status, 400, "rule M5: {error}");
    }
}

/// What the headers say of a request that got a result.
fn ran(headers: &HeaderMap, body: &[u8]) {
    let said: Value = serde_json::from_slice(body).expect("it was read");
    let header = |name: &str| {
        let mut lines = headers.get_all(name).iter();
        let line = lines.next().and_then(|line| line.to_str().ok());
        assert!(lines.next().is_none(), "{name} stands twice");
        line.and_then(|line| decode_value(line.trim()).ok())
    };
    assert_eq!(header("mcp-method").as_deref(), said["method"].as_str());
    if said["method"] == "tools/call" {
        assert_eq!(header("mcp-name").as_deref(), said["params"]["name"].as_str());
        assert_eq!(header("mcp-param-value").as_deref(), said["params"]["arguments"]["value"].as_str());
    }
}
