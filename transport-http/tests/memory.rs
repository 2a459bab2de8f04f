//! What open streams and calls in flight hold on the heap, counted, and that all of it comes back.
#![cfg(feature = "server")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use steady_http::{HttpCounters, HttpService, Hub, ServeConfig, Server, Tools};

/// A hang guard, not a measure.
const GUARD: Duration = Duration::from_secs(60);

/// A request, with the lines that its method needs besides.
fn request(method: &str, lines: &str, params: &str) -> String {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{params},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":1}}}}}}"#
    );
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: {method}\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn call(tool: &str) -> String {
    request("tools/call", &format!("Mcp-Name: {tool}\r\n"), &format!(r#""name":"{tool}","arguments":{{}}"#))
}

/// Sends a request, and reads up to what it says first; nothing if that is empty.
fn open(address: SocketAddr, text: &str, first: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(GUARD)).expect("a timeout");
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut read = Vec::new();
    let mut byte = [0; 512];
    while !String::from_utf8_lossy(&read).contains(first) {
        let count = stream.read(&mut byte).expect("an event");
        assert!(count > 0, "it answers: {}", String::from_utf8_lossy(&read));
        read.extend_from_slice(&byte[..count]);
    }
    stream
}

/// Runs the server until `reached`, and says by how many heap bytes it has grown.
fn grown(runtime: &tokio::runtime::Runtime, reached: impl Fn() -> bool) -> i64 {
    let measured = allocation_counter::measure(|| {
        runtime.block_on(async {
            let start = std::time::Instant::now();
            while !reached() {
                assert!(start.elapsed() < GUARD, "the server does not get there");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // What ends a moment after it was counted.
            for _ in 0..50 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    });
    measured.bytes_current
}

/// How many bytes each of 100 such requests holds while it is open, and how many are left of all once they are gone.
fn measured(text: &str, first: &'static str, open_now: fn(&HttpCounters) -> usize) -> (i64, i64) {
    let count = 100;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let listener = steady_http::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let hub = Hub::new();
    let any = r#"{"type":"object"}"#;
    let tools =
        Tools::new("waits", "0").tool("waits", "Waits.", any, |_, cx| async move { Err(cx.cancelled().await.into()) });
    let tools = tools.tool("reports", "Reports, and waits.", any, |_, cx| async move {
        cx.report(1.0, None, "reported");
        Err(cx.cancelled().await.into())
    });
    let server = Server::new(tools.subscriptions(&hub), ServeConfig::default());
    let service: HttpService<Tools> = server.service();
    runtime.spawn(server.serve(listener));
    let mut measured = (0, 0);
    // The first round also grows what is kept for the next.
    for _ in 0..2 {
        let text = text.to_owned();
        let client =
            std::thread::spawn(move || (0..count).map(|_| open(address, &text, first)).collect::<Vec<TcpStream>>());
        let held = grown(&runtime, || open_now(&service.counters()) == count && client.is_finished());
        drop(client.join().expect("no panic"));
        let left = held
            + grown(&runtime, || {
                let counters = service.counters();
                open_now(&counters) == 0 && counters.handlers == 0
            });
        measured = (held / count as i64, left);
    }
    assert_eq!(hub.counters().open, 0);
    measured
}

#[test]
fn an_open_listen_holds_little_and_gives_it_back() {
    let listen = request("subscriptions/listen", "", r#""notifications":{"toolsListChanged":true}"#);
    let (each, left) = measured(&listen, "acknowledged", |counters| counters.listens);
    // hyper, and its two buffers of 8 KiB, are gone while the stream is open.
    assert!((1..=8 << 10).contains(&each), "{each} bytes each");
    assert!(left.abs() <= 1024, "{left} bytes are left of 100 streams");
}

#[test]
fn a_call_in_flight_holds_little_and_gives_it_back() {
    // As a stream, and in silence: then hyper is still there, with its two buffers.
    for (tool, first, most) in [("reports", "reported", 12 << 10), ("waits", "", 28 << 10)] {
        let (each, left) = measured(&call(tool), first, |counters| counters.in_flight);
        assert!((1..=most).contains(&each), "{tool}: {each} bytes each");
        assert!(left.abs() <= 1024, "{tool}: {left} bytes are left of 100 calls");
    }
}
