//! Answers as streams: when an answer becomes one, what is in it, how it ends, and who does not read it (H6, H7, L4).

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use steady_http::sse::{Item, Parser};
use steady_http::{HttpConfig, HttpService};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service as _;

use super::support::{Lab, call, http, listen, post, request};

/// The events of a stream, and how many comments stood between them.
fn events(text: &str) -> (Vec<String>, u64) {
    let (mut parser, mut chunk, mut events) = (Parser::new(1 << 20), text.as_bytes(), Vec::new());
    while let Some(item) = parser.next(&mut chunk) {
        match item {
            Item::Event(event) => events.push(event.to_owned()),
            Item::Rejected(why) => panic!("{why}"),
        }
    }
    let counts = parser.counts();
    assert_eq!((counts.ids, counts.retries, counts.others), (0, 0, 0), "rule H7: {text}");
    (events, counts.comments)
}

#[test]
fn progress_makes_a_stream_of_the_answer() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(4, "count", r#"{"to":3}"#));
    let head = peer.head();
    assert_eq!(head.status, 200);
    for (name, value) in [
        ("content-type", Some("text/event-stream")),
        ("cache-control", Some("no-cache")),
        ("x-accel-buffering", Some("no")),
        ("content-length", None),
    ] {
        assert_eq!(head.header(name), value, "{name} (rule H6)");
    }
    let (events, _) = events(&peer.stream_text());
    assert_eq!(events.len(), 4, "{events:?}");
    for (n, event) in (1..).zip(&events[..3]) {
        assert!(event.contains(&format!(r#""progressToken":4,"progress":{n},"total":3"#)), "{event}");
    }
    assert!(events[3].starts_with(r#"{"jsonrpc":"2.0","id":4,"result":"#), "{events:?}");
    peer.post(&call(5, "echo", r#"{"text":"again"}"#));
    assert!(peer.answer().text().contains("again"), "the connection goes on");
}

#[test]
fn a_silent_handler_gets_a_stream_with_a_first_byte() {
    let lab = Lab::with(http(|http| http.stream_after = Duration::from_millis(20)));
    let mut peer = lab.connect();
    peer.post(&call(1, "gate", "{}"));
    assert_eq!(peer.head().header("content-type"), Some("text/event-stream"));
    assert_eq!(peer.chunk().as_deref(), Some(":\n\n"), "at once");
    lab.open_the_gate();
    let (events, _) = events(&peer.stream_text());
    assert_eq!(events.len(), 1);
}

#[test]
fn a_stream_can_be_asked_for_by_the_settings() {
    let lab = Lab::with(http(|http| http.always_stream = true));
    let mut peer = lab.connect();
    peer.post(&call(1, "echo", r#"{"text":"streamed"}"#));
    assert_eq!(peer.head().header("content-type"), Some("text/event-stream"));
    assert!(peer.stream_text().contains("streamed"));
    peer.post(&request("2", "nonsense", ""));
    assert_eq!(peer.answer().status, 404, "a status says more than a stream");
}

#[test]
fn a_quiet_stream_is_kept_alive_by_comments() {
    let lab = Lab::with(http(|http| http.keep_alive = Duration::from_millis(20)));
    let mut peer = lab.connect();
    peer.post(&call(1, "says", "{}"));
    peer.head();
    assert!(peer.chunk().expect("an event").contains("said"));
    for _ in 0..3 {
        assert_eq!(peer.chunk().as_deref(), Some(":\n\n"));
    }
    drop(peer);
    lab.hears(&["started", "Disconnected"]);
}

/// An input that keeps each write apart.
struct Recorder<T> {
    inner: T,
    writes: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Recorder<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Recorder<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[io::IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().flat_map(|slice| slice.iter().copied()).collect::<Vec<u8>>();
        let written = Pin::new(&mut self.inner).poll_write(cx, &bytes);
        if let Poll::Ready(Ok(count)) = written {
            self.writes.lock().expect("no panic").push(bytes[..count].to_vec());
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Each write of hyper with our service behind it, for one request.
fn writes(text: &str) -> Vec<String> {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let lab = Lab::start();
    let service = lab.service.clone();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (recorded, text) = (Arc::clone(&writes), text.replace("Accept:", "Connection: close\r\nAccept:"));
    let served = runtime.block_on(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = tokio::io::duplex(1 << 20);
        let io = TokioIo::new(Recorder { inner: server, writes: recorded });
        let service = hyper::service::service_fn(move |request| service.clone().call(request));
        let server = tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
        client.write_all(text.as_bytes()).await.expect("written");
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("read");
        server.await
    });
    served.expect("no panic").expect("served");
    let writes = writes.lock().expect("no panic");
    writes.iter().map(|write| String::from_utf8_lossy(write).into_owned()).collect()
}

#[test]
fn the_last_event_the_end_of_its_chunk_and_of_the_stream_are_one_write() {
    let streamed = writes(&post(&call(1, "stepwise", "{}")));
    assert!(streamed.len() >= 2, "progress leaves before the answer: {streamed:#?}");
    let last = streamed.last().expect("a write");
    assert!(last.contains(r#""id":1,"result""#) && last.ends_with("\n\n\r\n0\r\n\r\n"), "{last:?}");
    let whole = writes(&post(&call(1, "echo", r#"{"text":"one write"}"#)));
    assert_eq!(whole.len(), 1, "{whole:#?}");
    assert!(whole[0].starts_with("HTTP/1.1 200") && whole[0].contains("one write"));
}

#[test]
fn a_stream_leaves_its_connection_as_it_found_it() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    // The next requests come with the first one, while its stream is open, and after it.
    let (first, second) = (post(&call(1, "stepwise", "{}")), post(&call(2, "stepwise", "{}")));
    peer.send(format!("{first}{second}").as_bytes());
    for id in 1..=3 {
        let head = peer.head();
        assert_eq!((head.status, head.header("transfer-encoding")), (200, Some("chunked")));
        assert!(head.header("date").is_some_and(|date| date.ends_with(" GMT")), "{head:?}");
        if id == 2 {
            peer.post(&call(3, "stepwise", "{}"));
        }
        let (events, _) = events(&peer.stream_text());
        assert_eq!(events.len(), 2, "{events:?}");
        assert!(events[1].starts_with(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#)), "{events:?}");
    }
    peer.post(&call(4, "echo", r#"{"text":"plain"}"#));
    assert!(peer.answer().text().contains("plain"));
}

#[test]
fn a_stream_ends_its_connection_if_the_client_wants_it_or_knows_no_chunks() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.send(
        post(&call(1, "stepwise", "{}")).replace("Accept:", "Connection: Keep-Alive, Close\r\nAccept:").as_bytes(),
    );
    assert_eq!(peer.head().header("connection"), Some("close"));
    assert_eq!(events(&peer.stream_text()).0.len(), 2);
    assert_eq!(peer.rest(), b"");
    let mut peer = lab.connect();
    peer.send(post(&call(1, "stepwise", "{}")).replace(" HTTP/1.1", " HTTP/1.0").as_bytes());
    assert_eq!(peer.head().header("transfer-encoding"), None);
    let rest = String::from_utf8(peer.rest()).expect("UTF-8");
    assert_eq!(events(&rest).0.len(), 2, "{rest}");
    let mut peer = lab.connect();
    let text = post(&call(1, "stepwise", "{}")).replace("Accept:", "Expect: 100-continue\r\nAccept:");
    let (head, body) = text.split_at(text.find("\r\n\r\n").expect("a head") + 4);
    peer.send(head.as_bytes());
    assert_eq!(peer.head().status, 100);
    peer.send(body.as_bytes());
    assert_eq!(peer.head().status, 200);
    assert_eq!(events(&peer.stream_text()).0.len(), 2);
}

#[test]
fn a_reader_that_does_not_read_holds_no_handler_and_loses_no_answer() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "torrent", r#"{"bytes":200}"#));
    lab.hears(&["started", "reported"]);
    lab.open_the_gate();
    assert_eq!(peer.head().status, 200);
    let (events, _) = events(&peer.stream_text());
    let last = events.len() - 1;
    assert!(events[last].contains(r#""id":1,"result""#) && events[last].contains("done"), "the answer is kept");
    assert!(events[last - 1].contains(r#""progress":999999,"#), "and so is the newest progress: {}", events[last - 1]);
    assert!(events.len() < 500_000, "the rest coalesced: {} events", events.len());
}

#[test]
fn a_large_answer_arrives_whole() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&call(1, "big", r#"{"bytes":20000000}"#));
    assert!(peer.answer().text().contains(&"y".repeat(20_000_000)));
}

#[test]
fn a_shutdown_ends_listens_with_their_result() {
    let mut lab = Lab::start();
    let mut peer = lab.connect();
    peer.post(&listen());
    assert_eq!(peer.head().header("content-type"), Some("text/event-stream"));
    assert!(peer.chunk().expect("an event").contains("notifications/subscriptions/acknowledged"), "rule L1");
    lab.until(|counters| counters.listens == 1 && counters.in_flight == 0);
    lab.stop();
    let (events, _) = events(&peer.stream_text());
    let result = r#"{"jsonrpc":"2.0","id":"s","result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/subscriptionId":"s"}}}"#;
    assert_eq!(events, [result], "rule L4");
    assert_eq!(peer.rest(), b"");
    lab.has_ended();
}

#[test]
fn mounted_into_another_server_a_hang_up_reaches_the_handler() {
    let lab = Lab::mounted(HttpConfig::default());
    for tool in ["wait", "says"] {
        let mut peer = lab.connect();
        peer.post(&call(1, tool, "{}"));
        lab.hears(&["started"]);
        drop(peer);
        lab.hears(&["Disconnected"]);
    }
}

/// The documented limit of a mounted service: with bytes in its hands that nobody asked for, hyper does not look for the
/// end of the input. The next keep-alive that cannot be written shows it.
#[test]
fn mounted_a_hang_up_behind_unread_bytes_shows_at_the_next_keep_alive() {
    let short = Duration::from_millis(20);
    let lab = Lab::mounted(HttpConfig { stream_after: short, keep_alive: short, ..HttpConfig::default() });
    let mut peer = lab.connect();
    peer.send(format!("{}stray", post(&call(1, "wait", "{}"))).as_bytes());
    lab.hears(&["started"]);
    drop(peer);
    lab.hears(&["Disconnected"]);
}

#[test]
fn a_service_is_shared_by_its_clones() {
    let lab = Lab::mounted(HttpConfig::default());
    let again: HttpService<_> = lab.service.clone();
    lab.ping();
    assert_eq!(again.counters().requests, 1);
}
