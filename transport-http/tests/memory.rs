//! What open streams hold on the heap, counted, and that all of it comes back.
#![cfg(feature = "server")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use steady_http::{HttpService, Hub, ServeConfig, Server, Tools};

/// A hang guard, not a measure.
const GUARD: Duration = Duration::from_secs(60);

fn request() -> String {
    let method = "subscriptions/listen";
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"notifications":{{"toolsListChanged":true}},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":1}}}}}}"#
    );
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: {method}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn open(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.set_read_timeout(Some(GUARD)).expect("a timeout");
    stream.write_all(request().as_bytes()).expect("it reads");
    let mut read = Vec::new();
    let mut byte = [0; 512];
    while !String::from_utf8_lossy(&read).contains("acknowledged") {
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

#[test]
fn an_open_listen_holds_little_and_gives_it_back() {
    let count = 100;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let _inside = runtime.enter();
    let listener = steady_http::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    let hub = Hub::new();
    let server = Server::new(Tools::new("waits", "0").subscriptions(&hub), ServeConfig::default());
    let service: HttpService<Tools> = server.service();
    runtime.spawn(server.serve(listener));
    let mut measured = (0, 0);
    // The first round also grows what is kept for the next.
    for _ in 0..2 {
        let client = std::thread::spawn(move || (0..count).map(|_| open(address)).collect::<Vec<TcpStream>>());
        let held = grown(&runtime, || service.counters().listens == count && client.is_finished());
        drop(client.join().expect("no panic"));
        let left = held + grown(&runtime, || service.counters().listens == 0 && service.counters().handlers == 0);
        measured = (held / count as i64, left);
    }
    let (each, left) = measured;
    // hyper, and its two buffers of 8 KiB, are gone while the stream is open.
    assert!((1..=8 << 10).contains(&each), "{each} bytes each");
    assert_eq!(hub.counters().open, 0);
    assert!(left.abs() <= 1024, "{left} bytes are left of {count} streams");
}
