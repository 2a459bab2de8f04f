//! The opening story on real sockets, through a proxy that buffers answers: the client times out, the server finishes
//! all the same, and the client calls again. Without a key that reserves twice, with one once. The proxy stands in front of
//! the server, or is the client's own.
#![cfg(feature = "live")]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use steady_core::idempotency::Key;
use steady_core::retry::Verdict;
use steady_http::client::{CallError, Client, Config, Proxy, Request};
use steady_sim::lab::Inventory;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

const GUARD: Duration = Duration::from_secs(60);

/// `steady-sim serve --http`, as a process of its own.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(ledger: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_steady-sim"))
            .args(["serve", "--http", "127.0.0.1:0", "--ledger"])
            .arg(ledger)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("serving http://").and_then(|at| at.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("where it serves: {line:?}")).to_owned();
        Self { child, address }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// A proxy that passes requests on at once, and holds every byte of an answer until it is opened. Like a real one it reads
/// on from the server after its client is gone.
async fn proxy(server: String) -> (String, watch::Sender<bool>, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound").to_string();
    let (open, is_open) = watch::channel(false);
    let (held_to, held) = watch::channel(0);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.expect("the server");
            let (mut from_client, mut to_client) = client.into_split();
            let (mut from_server, mut to_server) = server.into_split();
            let (mut is_open, held_to) = (is_open.clone(), held_to.clone());
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(size @ 1..) = from_client.read(&mut buffer).await {
                    to_server.write_all(&buffer[..size]).await.expect("the server reads");
                }
                // The server is not told that the client is gone.
                std::future::pending::<()>().await;
            });
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(size @ 1..) = from_server.read(&mut buffer).await {
                    held_to.send_modify(|held| *held += size);
                    drop(is_open.wait_for(|open| *open).await);
                    let _client_may_be_gone = to_client.write_all(&buffer[..size]).await;
                }
            });
        }
    });
    (address, open, held)
}

/// Where the proxy stands.
#[derive(Clone, Copy)]
enum Place {
    Reverse,
    Forward,
}

fn order(key: Option<&str>) -> Request {
    let request = Request::tool("reserve_inventory", &json!({"sku": "gadget", "quantity": 2, "tenant": "acme"}));
    match key {
        Some(key) => request.key(Key::parse(key).expect("a key")),
        None => request,
    }
}

/// Reserves through the proxy, gives up while the answer is held there, and reserves again.
async fn story(address: &str, key: Option<&str>, place: Place) -> Value {
    let (at, open, mut held) = proxy(address.to_owned()).await;
    let (url, proxy) = match place {
        Place::Reverse => (format!("http://{at}/mcp"), Proxy::Direct),
        Place::Forward => (format!("http://{address}/mcp"), Proxy::through(&at).expect("an address")),
    };
    let mut config = Config { proxy, ..Config::default() };
    config.calls.probe = None;
    let client = Client::connect(&url, config).await.expect("connected");
    let call = client.call(order(key).max(Some(Duration::from_millis(300))));
    // The server answers, whether before or after the client's time is up: the client cannot know.
    let ended = call.await;
    let verdict = if key.is_some() { Verdict::RetrySameKey } else { Verdict::ReconcileFirst };
    assert!(matches!(ended, Err(CallError::MaxTimeout { verdict: said, .. }) if said == verdict), "{ended:?}");
    held.wait_for(|held| *held > 0).await.expect("an answer");
    open.send_replace(true);
    let again = client.call(order(key)).tool_result().await.expect("an answer");
    assert_eq!(client.traffic().posts, 2, "no POST says that something is cancelled");
    let structured = again.structured.expect("data");
    serde_json::from_str(structured.get()).expect("JSON")
}

fn run(key: Option<&str>, place: Place) -> (Value, (i64, i64)) {
    let dir = tempfile::tempdir().expect("a folder");
    let ledger = dir.path().join("shop.db");
    let served = Served::start(&ledger);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let told = async { tokio::time::timeout(GUARD, story(&served.address, key, place)).await.expect("it hangs") };
    let told = runtime.block_on(told);
    drop(served);
    (told, Inventory::open(&ledger, "local").expect("a ledger").count("gadget").expect("read"))
}

#[test]
fn statement_06_without_a_key_a_retry_through_a_buffering_proxy_reserves_twice() {
    for place in [Place::Reverse, Place::Forward] {
        let (told, (available, reservations)) = run(None, place);
        assert_eq!((&told["replayed"], available, reservations), (&false.into(), 6, 2));
    }
}

#[test]
fn statement_07_with_one_key_a_retry_through_a_buffering_proxy_reserves_once() {
    for place in [Place::Reverse, Place::Forward] {
        let (told, (available, reservations)) = run(Some("order-7"), place);
        assert_eq!((&told["replayed"], available, reservations), (&true.into(), 8, 1));
    }
}
