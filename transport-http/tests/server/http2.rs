//! HTTP/2 with prior knowledge, by hyper's own client: what is reset is cancelled, and nothing else (rule C1).

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use steady_http::ServeConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::support::{GUARD, Lab, call, listen};

/// A body in one piece.
struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

/// A client with one connection, on a runtime of its own. Dropping it closes the connection.
struct Client {
    runtime: tokio::runtime::Runtime,
    sender: SendRequest<Whole>,
}

impl Client {
    fn connect(lab: &Lab) -> Self {
        Self::with(lab, |builder| builder)
    }

    fn with(
        lab: &Lab,
        set: impl FnOnce(&mut http2::Builder<TokioExecutor>) -> &mut http2::Builder<TokioExecutor>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(lab.address).await.expect("it accepts");
            let mut builder = http2::Builder::new(TokioExecutor::new());
            let (sender, connection) =
                set(&mut builder).handshake(TokioIo::new(stream)).await.expect("the server speaks HTTP/2");
            tokio::spawn(connection);
            sender
        });
        Self { runtime, sender }
    }

    /// Sends a request; dropping what is returned, or the body of its answer, resets its stream.
    fn post(&mut self, body: String) -> impl Future<Output = Result<Response<Incoming>, hyper::Error>> + use<> {
        let parsed: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        let mut request = Request::post("http://localhost/mcp")
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", parsed["method"].as_str().expect("a method"));
        if let Some(name) = parsed["params"]["name"].as_str() {
            request = request.header("mcp-name", name);
        }
        let request = request.body(Whole(Some(body.into()))).expect("a request");
        self.sender.send_request(request)
    }

    fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(GUARD, what).await.expect("in time") })
    }

    /// The whole answer.
    fn answer(&mut self, body: String) -> (StatusCode, String) {
        let sent = self.post(body);
        self.wait(async {
            let mut response = sent.await.expect("a response");
            (response.status(), rest(&mut response).await)
        })
    }

    /// Sends a request and waits for the head of its answer.
    fn head(&mut self, body: String) -> Response<Incoming> {
        let sent = self.post(body);
        self.wait(sent).expect("a response")
    }
}

async fn frame(response: &mut Response<Incoming>) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        let frame = poll_fn(|cx| Pin::new(response.body_mut()).poll_frame(cx)).await?;
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            Ok(Err(_trailers)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

async fn rest(response: &mut Response<Incoming>) -> String {
    let mut text = Vec::new();
    while let Some(data) = frame(response).await {
        text.extend_from_slice(&data.expect("the stream goes on"));
    }
    String::from_utf8(text).expect("UTF-8")
}

#[test]
fn both_protocols_are_served_at_one_port() {
    let lab = Lab::start();
    let mut client = Client::connect(&lab);
    let (status, text) = client.answer(call(1, "echo", r#"{"text":"over two"}"#));
    assert!(status == 200 && text.contains("over two"), "{text}");
    let (status, text) = client.answer(call(2, "count", r#"{"to":3}"#));
    assert!(status == 200 && text.matches("data:").count() == 4, "{text}");
    lab.ping();
    assert_eq!(lab.service.counters().requests, 3);
    // A start that is none is a bad request of the other protocol.
    let mut peer = lab.connect();
    peer.send(b"PRI * HTTP/2.0\r\n\r\nno\r\n\r\n");
    assert_eq!(peer.head().status, 400);
}

#[test]
fn a_reset_cancels_its_handler_and_leaves_the_neighbours() {
    let lab = Lab::start();
    let mut client = Client::connect(&lab);
    let mut neighbour = client.head(call(1, "says", "{}"));
    lab.hears(&["started"]);
    // Before the head of its answer.
    let sent = client.post(call(2, "wait", "{}"));
    let waiting = client.runtime.spawn(sent);
    lab.hears(&["started"]);
    waiting.abort();
    lab.hears(&["Disconnected"]);
    // Between two events.
    let mut streamed = client.head(call(3, "says", "{}"));
    lab.hears(&["started"]);
    assert!(client.wait(frame(&mut streamed)).is_some());
    drop(streamed);
    lab.hears(&["Disconnected"]);
    assert!(client.answer(call(4, "echo", r#"{"text":"here"}"#)).1.contains("here"));
    assert!(client.wait(frame(&mut neighbour)).is_some(), "the neighbour was not touched");
    lab.until(|counters| counters.abandoned == 2 && counters.in_flight == 1);
    drop(neighbour);
    lab.hears(&["Disconnected"]);
}

#[test]
fn the_loss_of_the_connection_cancels_all_of_it() {
    let lab = Lab::start();
    let mut client = Client::connect(&lab);
    let _open: Vec<_> = (1..=3).map(|id| client.head(call(id, "says", "{}"))).collect();
    lab.hears(&["started"; 3]);
    client.runtime.shutdown_background();
    lab.hears(&["Disconnected"; 3]);
    lab.until(|counters| counters.abandoned == 3 && counters.in_flight == 0);
}

#[test]
fn a_listen_ends_with_its_result_when_the_server_is_told_to_end() {
    let mut lab = Lab::start();
    let mut client = Client::connect(&lab);
    let mut listening = client.head(listen());
    let acknowledged = client.wait(frame(&mut listening)).expect("an event").expect("data");
    assert!(acknowledged.starts_with(b"data:"), "rule L1");
    let mut gated = {
        let sent = client.post(call(2, "gate", "{}"));
        client.runtime.spawn(sent)
    };
    lab.hears(&["started"]);
    lab.stop();
    assert!(client.wait(rest(&mut listening)).contains(r#""id":"s","result""#), "rule L4");
    lab.open_the_gate();
    let mut response = client.wait(&mut gated).expect("no panic").expect("a response");
    assert!(client.wait(rest(&mut response)).contains("through the gate"), "what was pending leaves");
    lab.has_ended();
}

#[test]
fn streams_over_the_limit_wait_for_their_turn() {
    let lab = Lab::with(ServeConfig { max_streams: 2, ..ServeConfig::default() });
    let mut client = Client::connect(&lab);
    // Once the server's settings have arrived.
    assert_eq!(client.answer(call(1, "echo", "{}")).0, 200);
    let sent: Vec<_> = (2..=4).map(|id| client.post(call(id, "gate", "{}"))).collect();
    let answers: Vec<_> = sent.into_iter().map(|sent| client.runtime.spawn(sent)).collect();
    lab.hears(&["started", "started"]);
    lab.ping();
    assert_eq!(lab.service.counters().in_flight, 2, "the third one has not been sent");
    lab.open_the_gate();
    for answer in answers {
        assert_eq!(client.wait(answer).expect("no panic").expect("a response").status(), 200);
    }
}

#[test]
fn a_stream_that_is_not_read_is_gone_after_the_write_stall_and_its_neighbour_is_not() {
    let lab = Lab::with(ServeConfig { write_stall: Duration::from_millis(200), ..ServeConfig::default() });
    let mut client = Client::with(&lab, |builder| builder.initial_stream_window_size(8 << 10));
    let mut neighbour = client.head(call(1, "says", "{}"));
    lab.hears(&["started"]);
    assert!(client.wait(frame(&mut neighbour)).is_some());
    let mut unread = client.head(call(2, "flood", r#"{"bytes":4000}"#));
    lab.hears(&["started"]);
    let next = lab.heard();
    if next == "blocked" {
        lab.hears(&["Disconnected"]);
    } else {
        assert_eq!(next, "Disconnected");
    }
    assert!(client.answer(call(3, "echo", r#"{"text":"here"}"#)).1.contains("here"));
    lab.until(|counters| counters.abandoned == 1 && counters.in_flight == 1);
    assert!(is_reset(&client, &mut unread), "an error, not an end");
    drop(neighbour);
    lab.hears(&["Disconnected"]);
}

#[test]
fn a_stream_that_stalls_while_its_connection_is_quiet_is_gone_after_the_write_stall() {
    let (write_stall, idle_timeout) = (Duration::from_millis(50), Duration::from_millis(500));
    let lab = Lab::with(ServeConfig { write_stall, idle_timeout, ..ServeConfig::default() });
    let mut client = Client::connect(&lab);
    let mut measured = client.head(call(1, "says", "{}"));
    let event = client.wait(frame(&mut measured)).expect("an event").expect("data");
    lab.hears(&["started"]);
    drop(client);
    lab.hears(&["Disconnected"]);
    // The first event fits exactly.
    let window = u32::try_from(event.len()).expect("short");
    let mut client = Client::with(&lab, |builder| builder.initial_stream_window_size(window));
    let mut unread = client.head(call(1, "twice", "{}"));
    lab.hears(&["started"]);
    // Younger connections come and go for being idle: nothing is left to do for this one.
    for _ in 0..2 {
        assert_eq!(lab.connect().rest(), b"");
    }
    lab.open_the_gate();
    lab.hears(&["Disconnected"]);
    lab.until(|counters| counters.abandoned == 2 && counters.in_flight == 0);
    assert!(is_reset(&client, &mut unread), "an error, not an end");
}

#[test]
fn no_duration_is_too_long() {
    let never = Duration::MAX;
    let mut config =
        ServeConfig { head_timeout: never, idle_timeout: never, write_stall: never, ..ServeConfig::default() };
    config.http.keep_alive = never;
    let lab = Lab::with(config);
    let mut client = Client::with(&lab, |builder| builder.initial_stream_window_size(1024));
    assert_eq!(client.answer(call(1, "echo", "{}")).0, 200);
    assert!(client.answer(call(2, "big", r#"{"bytes":1000000,"to":1}"#)).1.len() > 1_000_000);
}

/// Reads up to the end; whether that was an error.
fn is_reset(client: &Client, unread: &mut Response<Incoming>) -> bool {
    client.wait(async {
        loop {
            match frame(unread).await {
                Some(Ok(_)) => {}
                other => return other.is_some(),
            }
        }
    })
}

#[test]
fn an_answer_in_one_piece_that_is_not_read_is_gone_after_the_write_stall() {
    // One stream at a time: the next request goes out once the one before is over.
    let write_stall = Duration::from_millis(200);
    let lab = Lab::with(ServeConfig { write_stall, max_streams: 1, ..ServeConfig::default() });
    // With a window, some of it is taken; without one, nothing is.
    for (window, bytes) in [(1024, 1 << 20), (0, 1 << 20), (0, 10)] {
        let mut client = Client::with(&lab, |builder| builder.initial_stream_window_size(window));
        let mut unread = client.head(call(1, "big", &format!(r#"{{"bytes":{bytes}}}"#)));
        assert_eq!(client.head(call(2, "echo", "{}")).status(), 200, "{window} {bytes}");
        assert!(is_reset(&client, &mut unread), "an error, not an end: {window} {bytes}");
    }
    // Whoever reads gets all of it, in however many pieces.
    let lab = Lab::start();
    let mut client = Client::with(&lab, |builder| builder.initial_stream_window_size(1024));
    let (status, text) = client.answer(call(3, "big", r#"{"bytes":1048576}"#));
    assert!(status == 200 && text.len() > 1 << 20, "{}", text.len());
}

#[test]
fn an_idle_connection_is_told_goodbye_and_closed() {
    let lab = Lab::with(ServeConfig { idle_timeout: Duration::from_millis(50), ..ServeConfig::default() });
    let mut client = Client::connect(&lab);
    assert_eq!(client.answer(call(1, "echo", "{}")).0, 200);
    let mut sender = client.sender.clone();
    client.wait(async {
        while sender.ready().await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    // Whoever says nothing after the preface, or not even that, does not stay either.
    client.wait(async {
        for start in ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "PRI * HTTP/2.0\r\n", ""] {
            let mut stream = TcpStream::connect(lab.address).await.expect("it accepts");
            stream.write_all(start.as_bytes()).await.expect("it reads");
            let _closed_hard = stream.read_to_end(&mut Vec::new()).await;
        }
    });
}
