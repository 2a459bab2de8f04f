//! What a client does about a server that goes and comes back: one question at a time, fresh state before anything else,
//! tasks that go on, and nothing to replay.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use serde_json::{Value, json};
use steady_http::client::{CallError, Change, Client, Config, Filter, Fresh, TaskOptions};
use steady_http::steady_core::backoff::Backoff;
use steady_http::{Reply, ServeConfig, Server, Tools, bind};

use super::clock::Manual;
use super::listens::{acknowledge, filter, stamped};
use super::support::{Asked, Raw, by_hand, run, tool, unasked};

const RECORD: &str = "inventory://acme/widget";

fn stock(asked: &mut Asked, available: u32) {
    assert_eq!((asked.method(), asked.header("mcp-name")), ("resources/read", Some(RECORD)));
    asked.result(&json!({"contents": [{"uri": RECORD, "text": available.to_string()}]}));
}

/// What a record says, read from its authoritative method.
fn available(change: &Change) -> Option<u32> {
    let Change::Fresh { state: Fresh::One(raw), .. } = change else { return None };
    let read: Value = raw.parse().expect("JSON");
    read["contents"][0]["text"].as_str()?.parse().ok()
}

/// Polls it once; whether it waits.
async fn waits<F: Future + Unpin>(future: &mut F) -> bool {
    poll_fn(|cx| Poll::Ready(Pin::new(&mut *future).poll(cx).is_pending())).await
}

#[test]
fn l5_subscription_lost_refetch_the_record_then_decide() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let filter = json!({"resourceSubscriptions": [RECORD]}).to_string();
        let mut changes = client.changes(Filter::parse(&filter).expect("a filter")).expect("a place");
        let mut listen = raw.asked();
        acknowledge(&mut listen);
        let updated = |asked: &mut Asked| {
            let mut notice = stamped(asked, "notifications/resources/updated");
            notice["params"]["uri"] = RECORD.into();
            asked.event(&notice);
        };
        // What was read before the stream is older than it.
        assert!(matches!(changes.next().await, Change::Gap { .. }));
        let mut next = Box::pin(changes.next());
        assert!(waits(&mut next).await);
        stock(&mut raw.asked(), 5);
        assert_eq!(available(&next.await), Some(5));
        let mut next = Box::pin(changes.next());
        assert!(waits(&mut next).await, "it is told that all is read");
        updated(&mut listen);
        assert!(matches!(next.await, Change::Notice(_)));
        let first = listen.body["id"].clone();
        listen.cut();
        // While nobody listens the last five are sold; the new stream says nothing of it.
        let mut listen = raw.asked();
        assert_eq!((listen.method(), listen.header("last-event-id")), ("subscriptions/listen", None));
        assert_ne!(listen.body["id"], first);
        acknowledge(&mut listen);
        assert!(matches!(changes.next().await, Change::Gap { .. }));
        let reader = tokio::spawn(async move { changes.next().await });
        let mut read = raw.asked();
        // A change meanwhile waits until what was missed is told.
        updated(&mut listen);
        stock(&mut read, 0);
        let decided = reader.await.expect("no panic");
        assert_eq!(available(&decided), Some(0), "nothing is decided on what was known before: {decided:?}");
    });
}

/// Lets pauses pass, each once somebody makes it, until it has happened. Sockets take their time, and a question that is out
/// must not wait for its answer for longer than it may: so the clock rests while nobody pauses.
async fn until(clock: &Manual, happened: impl Fn() -> bool) {
    let longest = Backoff::default().cap;
    while !happened() {
        if clock.is_armed_within(longest) {
            clock.advance(longest);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn row_79_ten_listens_that_lose_their_server_ask_one_at_a_time() {
    run(async {
        let raw = Raw::start();
        let (mut config, clock) = by_hand();
        // Time that goes on for a pause is none for a connection that is being made.
        config.connect_timeout = Duration::from_secs(3600);
        let client = raw.client(config).await;
        let mut listeners: Vec<_> = (0..10).map(|_| client.listen(filter()).expect("a place")).collect();
        let mut streams: Vec<Asked> = (0..10).map(|_| raw.asked()).collect();
        streams.iter_mut().for_each(acknowledge);
        streams.iter_mut().for_each(|asked| {
            let notice = stamped(asked, "notifications/tools/list_changed");
            asked.event(&notice);
        });
        for listener in &mut listeners {
            let _all_are_open = listener.next().await;
        }
        streams.into_iter().for_each(Asked::cut);
        // Every loss is noticed before time goes on: each is counted as an exchange that ended.
        let posts = client.traffic().posts;
        let mut down = None;
        for nth in 1..=5 {
            until(&clock, || client.traffic().posts >= posts + 2 * nth - 1).await;
            down = Some(raw.asked());
            let asked = down.as_mut().expect("a question");
            assert_eq!(asked.method(), "subscriptions/listen");
            // However much time passes, and whatever else goes on, the others wait for its answer.
            clock.advance(Duration::from_secs(10));
            let call = client.call(tool("a", "{}"));
            let mut other = raw.asked();
            assert_eq!(other.method(), "tools/call");
            other.text("served");
            call.await.expect("an answer");
            assert_eq!(client.traffic().posts, posts + 2 * nth);
            asked.respond("503 Busy", "text/plain", "later");
        }
        assert!(down.is_some());
        until(&clock, || client.traffic().posts >= posts + 11).await;
        acknowledge(&mut raw.asked());
        for _ in 0..9 {
            assert_eq!(raw.asked().method(), "subscriptions/listen", "all others follow its answer");
        }
        assert_eq!(client.traffic().posts, posts + 20);
    });
}

/// A server at this address, until it is dropped with its connections.
fn up(address: SocketAddr) -> (tokio::task::JoinHandle<()>, SocketAddr) {
    let listener = bind(address).expect("a port");
    let address = listener.local_addr().expect("bound");
    let tools = Tools::new("upstream", "1.0.0")
        .tool("echo", "", r#"{"type":"object"}"#, |_, _| async { Ok(Reply::text("pong")) });
    let server = Server::new(tools, ServeConfig::default());
    let task = tokio::spawn(async move { server.serve(listener).await.expect("it serves") });
    (task, address)
}

async fn connected(at: SocketAddr) -> Client {
    Client::connect(&format!("http://{at}/mcp"), Config::default()).await.expect("it is up")
}

async fn echo(client: &Client) -> Result<String, CallError> {
    Ok(client.call(tool("echo", "{}")).tool_result().await?.text())
}

#[test]
fn row_81_84_85_87_one_of_two_servers_restarts_while_idle_and_the_next_call_is_served() {
    run(async {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let ((one, at), (_other, elsewhere)) = (up(any), up(any));
        let (client, neighbour) = (connected(at).await, connected(elsewhere).await);
        assert_eq!(echo(&client).await.expect("an answer"), "pong");
        one.abort();
        let _it_is_gone = one.await;
        let error = echo(&client).await.expect_err("nobody is there");
        // What was written before the end of the kept connection was seen may have run.
        let honest = matches!(error, CallError::NeverSent { .. } | CallError::Unknown { .. });
        assert!(honest, "not \"closed\", and not cancelled: {error}");
        assert_eq!(echo(&neighbour).await.expect("an answer"), "pong");
        let (_again, _) = up(at);
        // No handshake, no session: the very next call.
        assert_eq!(echo(&client).await.expect("an answer"), "pong");
        assert_eq!(echo(&neighbour).await.expect("an answer"), "pong");
    });
}

#[test]
fn row_83_an_old_session_is_no_cancellation_and_the_next_call_is_served() {
    run(async {
        let raw = Raw::start();
        let client = raw.client(unasked()).await;
        let call = client.call(tool("a", "{}"));
        raw.asked().respond("404 Not Found", "text/plain", "session not found");
        let error = call.await.expect_err("refused");
        assert!(matches!(&error, CallError::Refused(what) if what.contains("session not found")), "{error}");
        let call = client.call(tool("a", "{}"));
        let mut asked = raw.asked();
        assert_eq!((asked.method(), asked.header("mcp-session-id")), ("tools/call", None));
        asked.text("served");
        assert_eq!(call.tool_result().await.expect("an answer").text(), "served");
    });
}

#[test]
fn l5_k6_a_task_is_followed_over_a_server_that_goes_and_is_never_made_twice() {
    run(async {
        let raw = Raw::start();
        let mut config = unasked();
        config.calls.calls.backoff = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
        let client = raw.client(config).await;
        let task = |status: &str| json!({"taskId": "t/1", "status": status, "pollIntervalMs": 600_000});
        let follower = client.clone();
        let end = tokio::spawn(async move {
            follower.call_to_end(tool("ship", "{}"), TaskOptions::default(), |_| async { None }).await
        });
        let mut asked = raw.asked();
        let declared = &asked.body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]["extensions"];
        assert!(declared["io.modelcontextprotocol/tasks"].is_object(), "declared with the request");
        let mut created = task("working");
        created["resultType"] = "task".into();
        asked.result(&created);
        let (mut listen, mut get) = (raw.asked(), raw.asked());
        if listen.method() == "tasks/get" {
            std::mem::swap(&mut listen, &mut get);
        }
        assert_eq!(listen.body["params"]["notifications"], json!({"taskIds": ["t/1"]}));
        assert_eq!((get.method(), get.header("mcp-name")), ("tasks/get", Some("t/1")));
        get.result(&task("working"));
        acknowledge(&mut listen);
        // What was asked before the stream is older than it.
        let mut get = raw.asked();
        assert_eq!(get.method(), "tasks/get");
        get.result(&task("working"));
        // The server goes: the listen is lost, and its gap is a question soon, ten minutes before the next one is due.
        listen.cut();
        let mut listen = raw.asked();
        assert_eq!(listen.method(), "subscriptions/listen");
        acknowledge(&mut listen);
        let get = raw.asked();
        assert_eq!(get.method(), "tasks/get");
        // The reply to the question is lost too: it is asked again, and nothing else is.
        get.cut();
        let mut get = raw.asked();
        assert_eq!(get.method(), "tasks/get");
        let mut completed = task("completed");
        completed["result"] = json!({"content": [{"type": "text", "text": "shipped"}]});
        get.result(&completed);
        assert_eq!(end.await.expect("no panic").expect("a result").text(), "shipped");
        listen.hears_the_end();
        assert!(raw.is_quiet());
    });
}
