//! Limits and who calls: 401, 408, 413, 429, 431, 503, slow clients, half-open connections.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use steady_http::{Principal, ServeConfig, Server, Tools, Unauthorized, Warn};

use super::support::{Lab, Peer, call, http, listen, post, post_with};

fn echo() -> String {
    call(1, "echo", r#"{"text":"hello"}"#)
}

#[test]
fn a_body_over_the_limit_is_413_whether_it_says_its_length_or_not() {
    let lab = Lab::with(http(|http| http.max_body = 1000));
    let body = call(1, "echo", &format!(r#"{{"text":"{}"}}"#, "x".repeat(1000)));
    let mut peer = lab.connect();
    // Only the head: it is refused unread.
    peer.send(post(&body).split_inclusive("\r\n\r\n").next().expect("a head").as_bytes());
    let answer = peer.answer();
    assert_eq!((answer.status, answer.header("connection")), (413, Some("close")));
    let length = format!("Content-Length: {}", body.len());
    let head = post(&body).replace(&length, "Transfer-Encoding: chunked").replace(&body, "");
    let mut peer = lab.connect();
    peer.send(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes());
    assert_eq!(peer.answer().status, 413);
    let mut peer = lab.connect();
    let echo = echo();
    let half = echo.len() / 2;
    let (first, second) = echo.split_at(half);
    let chunks = format!("{:x}\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", first.len(), second.len());
    let head = post(&echo).replace(&format!("Content-Length: {}", echo.len()), "Transfer-Encoding: chunked");
    peer.send(head.replace(&echo, &chunks).as_bytes());
    assert!(peer.answer().text().contains("hello"), "chunks are put together");
}

#[test]
fn a_head_over_the_limit_is_431() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.send(post_with(&echo(), &format!("X-Long: {}\r\n", "x".repeat(20_000))).as_bytes());
    assert_eq!(peer.head().status, 431);
    let mut peer = lab.connect();
    let many: String = (0..200).map(|n| format!("X-{n}: 1\r\n")).collect();
    peer.send(post_with(&echo(), &many).as_bytes());
    assert_eq!(peer.head().status, 431);
    lab.ping();
}

#[test]
fn a_request_over_the_cap_is_429_and_told_when_to_retry() {
    let lab = Lab::with(http(|http| http.server.requests.in_flight = 2));
    let mut peers: Vec<Peer> = (0..2).map(|_| lab.connect()).collect();
    for peer in &mut peers {
        peer.post(&call(1, "gate", "{}"));
        lab.hears(&["started"]);
    }
    let mut third = lab.connect();
    third.post(&echo());
    let answer = third.answer();
    assert_eq!((answer.status, answer.header("retry-after"), answer.code()), (429, Some("1"), -31001));
    lab.open_the_gate();
    for peer in &mut peers {
        assert!(peer.answer().text().contains("through the gate"));
    }
    third.post(&echo());
    assert_eq!(third.answer().status, 200, "on the same connection");
}

#[test]
fn a_client_that_starts_and_leaves_cannot_grow_the_server() {
    let lab = Lab::with(http(|http| {
        http.server.requests.in_flight = 1;
        http.server.requests.stragglers = 1;
        http.max_listens = 0;
        http.server.grace = Duration::from_secs(3600);
    }));
    for handlers in 1..=2 {
        let mut peer = lab.connect();
        // Ignores its cancellation.
        peer.post(&call(1, "gate", "{}"));
        lab.hears(&["started"]);
        drop(peer);
        lab.until(|counters| counters.in_flight == 0 && counters.handlers == handlers);
    }
    let mut peer = lab.connect();
    peer.post(&echo());
    assert_eq!(peer.answer().status, 429, "two handlers that outlive their request are the cap");
    lab.open_the_gate();
    lab.until(|counters| counters.handlers == 0);
    peer.post(&echo());
    assert_eq!(peer.answer().status, 200);
}

#[test]
fn a_slow_body_is_408_and_frees_its_place() {
    let lab = Lab::with(http(|http| {
        http.body_timeout = Duration::from_millis(50);
        http.server.requests.in_flight = 1;
    }));
    let mut peer = lab.connect();
    let text = post(&echo());
    peer.send(&text.as_bytes()[..text.len() - 1]);
    let answer = peer.answer();
    assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
    assert_eq!(peer.rest(), b"");
    lab.ping();
}

#[test]
fn a_body_may_take_longer_than_a_head() {
    let short = Duration::from_millis(50);
    let config = ServeConfig { head_timeout: short, idle_timeout: short, ..ServeConfig::default() };
    let lab = Lab::with(config);
    let mut peer = lab.connect();
    let text = post(&echo());
    let (first, rest) = text.as_bytes().split_at(text.len() - 20);
    let (head, body) = first.split_at(first.len() - 20);
    peer.send(head);
    peer.send(body);
    // This one is closed for its head, and one after it for being idle; the body, which is older, goes on.
    let mut slow = lab.connect();
    slow.send(b"POST /mcp HTTP/1.1\r\n");
    assert_eq!((slow.rest(), lab.connect().rest()), (Vec::new(), Vec::new()));
    peer.send(rest);
    assert_eq!(peer.answer().status, 200);
}

#[test]
fn a_slow_head_and_an_idle_connection_are_closed() {
    let config = ServeConfig { head_timeout: Duration::from_millis(50), ..ServeConfig::default() };
    let lab = Lab::with(config);
    let mut peer = lab.connect();
    peer.send(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n");
    assert_eq!(peer.rest(), b"", "closed without an answer");
    let config = ServeConfig { idle_timeout: Duration::from_millis(50), ..ServeConfig::default() };
    let lab = Lab::with(config);
    assert_eq!(lab.connect().rest(), b"");
    let mut peer = lab.connect();
    peer.post(&echo());
    assert_eq!(peer.answer().status, 200);
    assert_eq!(peer.rest(), b"");
}

#[test]
fn a_pending_answer_is_no_idle_connection() {
    let short = Duration::from_millis(50);
    let config = ServeConfig { idle_timeout: short, head_timeout: short, ..ServeConfig::default() };
    let lab = Lab::with(config);
    let mut waiting = lab.connect();
    waiting.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    // This one is closed for being idle; the other one, which is older, is not.
    assert_eq!(lab.connect().rest(), b"");
    lab.open_the_gate();
    assert!(waiting.answer().text().contains("through the gate"));
}

#[test]
fn a_client_that_takes_nothing_is_gone_after_the_write_stall() {
    let config = ServeConfig { write_stall: Duration::from_millis(50), ..ServeConfig::default() };
    let lab = Lab::with(config);
    let mut peer = lab.connect();
    peer.post(&call(1, "flood", r#"{"bytes":4000}"#));
    // Whether the handler finds itself blocked first or not, it hears that the client is gone.
    lab.hears(&["started"]);
    let next = lab.heard();
    if next == "blocked" {
        lab.hears(&["Disconnected"]);
    } else {
        assert_eq!(next, "Disconnected");
    }
}

/// How many descriptors this process may have: as many as the system lets it ask for.
fn descriptors() -> usize {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let _as_it_was = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
        if let Some(most) = getrlimit(Resource::Nofile).current {
            return usize::try_from(most).unwrap_or(usize::MAX);
        }
    }
    usize::MAX
}

#[test]
#[expect(clippy::print_stdout, reason = "how many there were")]
fn half_open_connections_do_not_keep_others_out() {
    // All of them are open at once.
    let lab = Lab::with(ServeConfig { head_timeout: Duration::from_secs(3600), ..ServeConfig::default() });
    let most = descriptors();
    // This process has both ends of each, and other tests run in it.
    let count = (most.saturating_sub(1000) / 2).min(10_000);
    println!("{count} half-open connections; {most} descriptors are allowed");
    assert!(count >= 300, "{most} descriptors are too few for this test");
    let half_open: Vec<_> = (1..=count)
        .map(|nth| {
            let stream = std::net::TcpStream::connect(lab.address).expect("it accepts");
            std::io::Write::write_all(&mut &stream, b"POST /mcp HTTP/1.1\r\nHost: loc").expect("the server reads");
            if nth % 100 == 0 {
                // Others are served meanwhile, and the accept queue is empty afterwards.
                lab.ping();
            }
            stream
        })
        .collect();
    lab.ping();
    // Each of them is still there, and may go on.
    for stream in [half_open.first(), half_open.last()].into_iter().flatten() {
        let mut peer = Peer::of(stream.try_clone().expect("a handle"));
        peer.send(post(&echo()).split_once("Host: 127").expect("a head").1.replacen(".0.0.1", "alhost", 1).as_bytes());
        assert_eq!(peer.answer().status, 200);
    }
}

#[test]
fn at_the_cap_of_connections_the_next_one_waits() {
    let config = ServeConfig { max_connections: 1, ..ServeConfig::default() };
    let lab = Lab::with(config);
    let mut first = lab.connect();
    first.post(&call(1, "gate", "{}"));
    lab.hears(&["started"]);
    let mut second = lab.connect();
    second.post(&echo());
    lab.open_the_gate();
    assert!(first.answer().text().contains("through the gate"));
    drop(first);
    assert_eq!(second.answer().status, 200);
}

#[test]
fn the_principal_comes_from_the_request() {
    let who = |parts: &http::request::Parts| -> Result<Principal, Unauthorized> {
        match parts.headers.get("authorization").and_then(|value| value.to_str().ok()) {
            Some("Bearer ann") => Ok(Some("ann".into())),
            Some("Bearer nobody") => Ok(None),
            Some(_) => Err(Unauthorized::Forbidden),
            None => Err(Unauthorized::Unknown(http::HeaderValue::from_static("Bearer"))),
        }
    };
    let lab = Lab::with(http(|http| http.authenticate = Some(Arc::new(who))));
    let ask = |authorization: &str| {
        let mut peer = lab.connect();
        peer.send(post_with(&call(1, "echo", r#"{"text":"who"}"#), authorization).as_bytes());
        peer.answer()
    };
    assert!(ask("Authorization: Bearer ann\r\n").text().contains("ann"));
    assert!(ask("Authorization: Bearer nobody\r\n").text().contains("nobody"));
    assert_eq!(ask("Authorization: Bearer eve\r\n").status, 403);
    let unknown = ask("");
    assert_eq!((unknown.status, unknown.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(lab.service.counters().requests, 2);
}

#[test]
fn beyond_loopback_without_callers_a_warning_is_given() {
    let warned = |address: &str, named: bool| {
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&warnings);
        let mut config = ServeConfig {
            warn: Warn::to(move |warning| sink.lock().expect("no panic").push(warning.to_owned())),
            ..ServeConfig::default()
        };
        if named {
            config.http.server.principal = Some("one".into());
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind(address).await.expect("a port");
            let server = Server::new(Tools::new("t", "1"), config);
            server.serve_until(listener, std::future::ready(())).await.expect("served");
        });
        Arc::into_inner(warnings).expect("over").into_inner().expect("no panic")
    };
    assert_eq!(warned("127.0.0.1:0", false), Vec::<String>::new());
    assert_eq!(warned("0.0.0.0:0", true), Vec::<String>::new());
    let warnings = warned("0.0.0.0:0", false);
    assert!(warnings.len() == 1 && warnings[0].contains("HttpConfig::authenticate"), "{warnings:?}");
}

#[test]
fn what_could_be_two_requests_is_a_clean_400_or_one_request() {
    let lab = Lab::start();
    let body = echo();
    let length = format!("Content-Length: {}\r\n", body.len());
    let smuggled = [
        post(&body).replace(&length, &format!("{length}Transfer-Encoding: chunked\r\n")),
        post(&body).replace(&length, &format!("{length}Content-Length: 1\r\n")),
        post(&body).replace(&length, "Content-Length: +5\r\n"),
        post(&body).replace(&length, "Content-Length: 5, 5\r\n"),
        post(&body).replace(&length, "Content-Length : 5\r\n"),
        post(&body).replace(&length, "Transfer-Encoding: chunked, identity\r\n"),
        post(&body).replace(&length, "Transfer-Encoding: xchunked\r\n"),
        post(&body).replace("Host: 127.0.0.1\r\n", "Host: 127.0.0.1\r\n folded: x\r\n"),
        post(&body).replace("Host: 127.0.0.1", "Host: 127.0.0.1\0"),
        post(&body).replace(" HTTP/1.1", " HTTP/9.9"),
    ];
    for text in smuggled {
        let mut peer = lab.connect();
        peer.send(text.as_bytes());
        let answer = peer.answer();
        assert_eq!(answer.status, 400, "{text}");
        assert_eq!(peer.rest(), b"", "nothing more is read from it: {text}");
    }
    assert_eq!(lab.service.counters().requests, 0);
    // Transfer-Encoding in front: hyper drops the length, and reads the chunks alone.
    let chunked = post(&body).replace(&length, &format!("Transfer-Encoding: chunked\r\n{length}"));
    let mut peer = lab.connect();
    peer.send(chunked.replace(&body, &format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())).as_bytes());
    assert_eq!(peer.answer().status, 200);
}

#[test]
fn a_request_with_two_lengths_is_the_last_of_its_connection_even_if_a_stream_answers_it() {
    let lab = Lab::start();
    let body = call(1, "stepwise", "{}");
    let chunks = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let plain = format!("Content-Length: {}\r\n", body.len());
    for length in [format!("Transfer-Encoding: chunked\r\n{plain}"), format!("{plain}Transfer-Encoding: chunked\r\n")] {
        let mut peer = lab.connect();
        // What one reader on the way takes for the next request is the body of this one to another.
        peer.send((post(&body).replace(&plain, &length).replace(&body, &chunks) + &post(&echo())).as_bytes());
        assert_eq!(peer.head().status, 200);
        let said = peer.stream_text();
        assert!(said.contains("first") && said.contains("then"), "{said}");
        assert_eq!(String::from_utf8_lossy(&peer.rest()), "", "nothing more is read from it");
    }
    assert_eq!(lab.service.counters().requests, 2);
}

#[test]
fn a_listen_over_the_cap_is_503() {
    let lab = Lab::with(http(|http| http.max_listens = 0));
    let mut peer = lab.connect();
    peer.post(&listen());
    let answer = peer.answer();
    assert_eq!((answer.status, answer.header("retry-after"), answer.code()), (503, Some("1"), -31001));
}
