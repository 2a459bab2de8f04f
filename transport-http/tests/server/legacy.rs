//! Clients of the older revisions on the same endpoint: their sessions, their streams, and what a hang-up means to them.

use std::time::Duration;

use serde_json::{Value, json};
use steady_http::steady_core::kernel::Eras;
use steady_http::{HttpConfig, Principal, ServeConfig, ServerConfig, Unauthorized};

use super::support::{Answer, Lab, Peer, call, post, post_with};

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

pub(super) fn plain(id: u32, method: &str, params: &Value) -> String {
    json!({"jsonrpc":"2.0","id":id,"method":method,"params":params}).to_string()
}

pub(super) fn tool(id: u32, name: &str, arguments: &Value) -> String {
    plain(id, "tools/call", &json!({"name":name,"arguments":arguments,"_meta":{"progressToken":id}}))
}

fn initialize(revision: &str) -> String {
    let info = json!({"name":"c","version":"1"});
    plain(0, "initialize", &json!({"protocolVersion":revision,"capabilities":{"roots":{}},"clientInfo":info}))
}

pub(super) fn cancel(id: u32) -> String {
    json!({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":id,"reason":"enough"}}).to_string()
}

pub(super) fn head(method: &str, more: &str) -> String {
    format!(
        "{method} /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n\
         Content-Type: application/json\r\n{more}"
    )
}

/// A POST without what the modern revision adds to it.
fn post_in(session: &str, body: &str) -> String {
    let length = body.len();
    format!("{}{session}Content-Length: {length}\r\n\r\n{body}", head("POST", ""))
}

/// A client with a session.
pub(super) struct Client<'a> {
    pub(super) lab: &'a Lab,
    /// Its header lines.
    pub(super) session: String,
}

impl<'a> Client<'a> {
    pub(super) fn open(lab: &'a Lab, revision: &str) -> Self {
        Self::open_as(lab, revision, "")
    }

    fn open_as(lab: &'a Lab, revision: &str, more: &str) -> Self {
        let mut peer = lab.connect();
        peer.send(post_in(more, &initialize(revision)).as_bytes());
        let answer = peer.answer();
        assert_eq!(answer.status, 200);
        let result: Value = serde_json::from_slice(&answer.body).expect("JSON");
        assert_eq!(result["result"]["protocolVersion"], revision);
        let id = answer.header("mcp-session-id").expect("a session");
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "128 bits: {id}");
        let client = Self { lab, session: format!("Mcp-Session-Id: {id}\r\n{more}") };
        assert_eq!(client.answer(INITIALIZED).status, 202);
        client
    }

    /// The text of a POST in this session.
    pub(super) fn post(&self, body: &str) -> String {
        post_in(&self.session, body)
    }

    /// Sends it on a connection of its own.
    pub(super) fn send(&self, body: &str) -> Peer {
        let mut peer = self.lab.connect();
        peer.send(self.post(body).as_bytes());
        peer
    }

    pub(super) fn answer(&self, body: &str) -> Answer {
        self.send(body).answer()
    }

    pub(super) fn bare(&self, method: &str) -> Peer {
        let mut peer = self.lab.connect();
        peer.send(format!("{}{}\r\n", head(method, ""), self.session).as_bytes());
        peer
    }

    pub(super) fn delete(&self) -> u16 {
        self.bare("DELETE").head().status
    }
}

pub(super) fn lab_with(change: impl FnOnce(&mut HttpConfig)) -> Lab {
    let mut http = HttpConfig::default();
    change(&mut http);
    Lab::with(ServeConfig { http, ..ServeConfig::default() })
}

#[test]
fn a_session_is_served_in_its_own_terms_beside_modern_requests() {
    let lab = Lab::start();
    for revision in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let client = Client::open(&lab, revision);
        let listed = client.answer(&plain(1, "tools/list", &json!({})));
        let listed: Value = serde_json::from_slice(&listed.body).expect("JSON");
        assert_eq!(listed["result"].as_object().expect("a result").keys().collect::<Vec<_>>(), ["tools"]);
        for (body, code) in [
            (plain(2, "prompts/list", &json!({})), -32601),
            (plain(3, "server/discover", &json!({})), -32601),
            (plain(4, "resources/read", &json!({"uri":"x:y"})), -32002),
        ] {
            let answer = client.answer(&body);
            assert_eq!((answer.status, answer.code()), (200, code), "404 would mean that the session is gone: {body}");
        }
        assert!(client.answer(&plain(5, "ping", &json!({}))).text().ends_with(r#""result":{}}"#));
        lab.ping();
    }
}

#[test]
fn a_request_without_a_session_is_judged_as_a_modern_one() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.send(post_in("", &plain(1, "tools/list", &json!({}))).as_bytes());
    let answer = peer.answer();
    assert_eq!((answer.status, answer.code()), (400, -32602));
    for method in ["GET", "DELETE"] {
        let mut peer = lab.connect();
        peer.send(format!("{}\r\n", head(method, "")).as_bytes());
        assert_eq!(peer.answer().status, 405, "{method} without a session");
    }
    let client = Client::open(&lab, "2025-11-25");
    // Rule H7: a modern request has no session, whatever its header says.
    let mut peer = lab.connect();
    peer.send(post_with(&call(1, "echo", r#"{"text":"modern"}"#), &client.session).as_bytes());
    let answer = peer.answer();
    assert!(answer.text().contains("modern") && answer.header("mcp-session-id").is_none());
    for method in ["GET", "DELETE"] {
        let mut peer = lab.connect();
        let version = "MCP-Protocol-Version: 2026-07-28\r\n";
        peer.send(format!("{}{}\r\n", head(method, version), client.session).as_bytes());
        assert_eq!(peer.answer().status, 405, "{method} of the modern revision");
    }
    assert_eq!(client.answer(&plain(2, "ping", &json!({}))).status, 200, "the session lives");
}

#[test]
fn row_83_an_unknown_session_is_404_so_that_its_client_begins_anew() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    assert_eq!(client.delete(), 204);
    assert_eq!(client.delete(), 404);
    let gone = client.answer(&plain(1, "tools/list", &json!({})));
    assert_eq!(gone.status, 404);
    assert_eq!(serde_json::from_slice::<Value>(&gone.body).expect("JSON")["id"], 1);
    assert_eq!(client.answer(INITIALIZED).status, 404);
    assert_eq!(client.bare("GET").head().status, 404);
    let made_up = Client { lab: &lab, session: "Mcp-Session-Id: made-up\r\n".into() };
    assert_eq!(made_up.answer(&plain(1, "ping", &json!({}))).status, 404);
    assert_eq!(Client::open(&lab, "2025-11-25").answer(&plain(1, "ping", &json!({}))).status, 200);
}

#[test]
fn a_hang_up_is_no_cancellation() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    let peer = client.send(&tool(1, "gate", &json!({})));
    lab.hears(&["started"]);
    drop(peer);
    // The server has seen it once another request with the same id is... still refused: the first goes on.
    lab.ping();
    let again = client.answer(&tool(1, "echo", &json!({})));
    assert_eq!((again.status, again.code()), (400, -32600));
    assert!(!again.text().contains("\"id\":1,"), "rule C10: {}", again.text());
    lab.open_the_gate();
    lab.hears(&["cancelled: false", "dropped"]);
    lab.until(|counters| counters.in_flight == 0 && counters.handlers == 0);
    assert_eq!(lab.service.counters().abandoned, 0);
    assert!(client.answer(&tool(1, "echo", &json!({"text":"free"}))).text().contains("free"));
}

#[test]
fn a_posted_cancellation_stops_a_request_of_its_own_session_only() {
    let lab = Lab::start();
    let (one, other) = (Client::open(&lab, "2025-11-25"), Client::open(&lab, "2025-06-18"));
    let mut of_one = one.send(&tool(7, "says", &json!({})));
    lab.hears(&["started"]);
    assert_eq!(of_one.head().status, 200);
    assert!(of_one.chunk().expect("an event").contains("said"));
    let mut of_other = other.send(&tool(7, "wait", &json!({})));
    lab.hears(&["started"]);
    assert_eq!(one.answer(&cancel(8)).status, 202, "an unknown id is ignored");
    assert_eq!(one.answer(&cancel(7)).status, 202);
    lab.hears(&["Cancelled(Some(\"enough\"))"]);
    assert_eq!(of_one.stream_text(), "", "rule C3: nothing more, and the stream ends");
    assert_eq!(other.answer(&plain(8, "ping", &json!({}))).status, 200);
    assert_eq!(other.answer(&cancel(7)).status, 202);
    lab.hears(&["Cancelled(Some(\"enough\"))"]);
    let answer = of_other.head();
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    let said = of_other.stream_text();
    assert!(!said.contains("data:"), "{said}");
    lab.until(|counters| counters.in_flight == 0 && counters.handlers == 0);
}

#[test]
fn an_unread_stream_blocks_no_other_request_and_can_be_cancelled() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    let unread = client.send(&tool(1, "flood", &json!({"bytes":4000})));
    lab.hears(&["started", "blocked"]);
    for id in 2..50 {
        assert!(client.answer(&tool(id, "echo", &json!({"text":"served"}))).text().contains("served"));
    }
    assert_eq!(client.answer(&cancel(1)).status, 202);
    lab.hears(&["Cancelled(Some(\"enough\"))"]);
    drop(unread);
    lab.until(|counters| counters.in_flight == 0);
}

#[test]
fn a_stream_of_a_session_gives_way_to_the_next_and_ends_with_it() {
    let lab = lab_with(|http| http.keep_alive = Duration::from_millis(20));
    let client = Client::open(&lab, "2025-11-25");
    let mut first = client.bare("GET");
    let answer = first.head();
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/event-stream")));
    assert!(first.chunk().expect("a comment").starts_with(':'));
    let mut second = client.bare("GET");
    assert_eq!(second.head().status, 200);
    let said = first.stream_text();
    assert!(said.lines().all(|line| line.is_empty() || line.starts_with(':')), "no events, no ids: {said}");
    let waiting = client.send(&tool(1, "wait", &json!({})));
    lab.hears(&["started"]);
    assert_eq!(client.delete(), 204);
    lab.hears(&["Disconnected"]);
    second.stream_text();
    drop(waiting);
    lab.until(|counters| counters.listens == 0 && counters.in_flight == 0 && counters.sessions == 0);
}

#[test]
fn a_shutdown_ends_the_streams_of_sessions() {
    let mut lab = Lab::start();
    let mut stream = Client::open(&lab, "2025-11-25").bare("GET");
    assert_eq!(stream.head().status, 200);
    assert!(stream.chunk().is_some());
    lab.stop();
    stream.stream_text();
    lab.has_ended();
}

fn caller(parts: &http::request::Parts) -> Result<Principal, Unauthorized> {
    let name = parts.headers.get("x-caller").ok_or(Unauthorized::Forbidden)?;
    Ok(Some(name.to_str().map_err(|_| Unauthorized::Forbidden)?.into()))
}

#[test]
fn a_session_is_bound_to_its_principal() {
    let lab = lab_with(|http| http.authenticate = Some(std::sync::Arc::new(caller)));
    let ann = Client::open_as(&lab, "2025-11-25", "X-Caller: ann\r\n");
    assert!(ann.answer(&tool(1, "echo", &json!({"text":"who"}))).text().contains("ann"));
    let stolen = Client { lab: &lab, session: ann.session.replace("ann", "bob") };
    assert_eq!(stolen.answer(&tool(2, "echo", &json!({"text":"who"}))).status, 404);
    assert_eq!((stolen.bare("GET").head().status, stolen.delete()), (404, 404));
    let nobody = Client { lab: &lab, session: ann.session.replace("X-Caller: ann\r\n", "") };
    assert_eq!((nobody.bare("GET").head().status, nobody.delete()), (403, 403));
    assert_eq!(ann.delete(), 204);
}

#[test]
fn batches_are_read_under_the_revision_that_has_them() {
    let lab = Lab::start();
    let batch = json!([
        {"jsonrpc":"2.0","id":1,"method":"ping"},
        {"jsonrpc":"2.0","method":"notifications/roots/list_changed"},
        {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"two"}}},
        {"jsonrpc":"2.0","id":3,"method":"server/discover"},
    ]);
    let client = Client::open(&lab, "2025-03-26");
    let mut peer = client.send(&batch.to_string());
    assert_eq!(peer.head().header("content-type"), Some("text/event-stream"));
    let said = peer.stream_text();
    let answers: Vec<Value> = said
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    assert_eq!(answers.len(), 3, "{said}");
    let of = |id: u32| answers.iter().find(|answer| answer["id"] == id).expect("an answer to each");
    assert_eq!(of(1)["result"], json!({}));
    assert_eq!(of(2)["result"]["content"][0]["text"], "two");
    assert_eq!(of(3)["error"]["code"], -32601);
    assert_eq!(client.answer(&json!([{"jsonrpc":"2.0","method":"notifications/x"}]).to_string()).status, 202);
    for bad in [
        json!([]),
        json!([1]),
        json!([{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":1,"method":"ping"}]),
    ] {
        assert_eq!(client.answer(&bad.to_string()).status, 400, "{bad}");
    }
    for revision in ["2025-06-18", "2025-11-25"] {
        let answer = Client::open(&lab, revision).answer(&batch.to_string());
        assert_eq!((answer.status, answer.code()), (400, -32600), "{revision}");
    }
}

#[test]
fn a_question_travels_on_the_stream_of_its_request_and_is_answered_by_a_post() {
    let lab = Lab::start();
    let (client, other) = (Client::open(&lab, "2025-11-25"), Client::open(&lab, "2025-11-25"));
    let mut peer = client.send(&tool(1, "asks", &json!({})));
    assert_eq!(peer.head().header("content-type"), Some("text/event-stream"));
    let asked = peer.chunk().expect("a question");
    let asked: Value = serde_json::from_str(asked.trim().strip_prefix("data: ").expect("an event")).expect("JSON");
    assert_eq!(asked["method"], "roots/list");
    let answer = json!({"jsonrpc":"2.0","id":asked["id"],"result":{"roots":[]}}).to_string();
    assert_eq!(other.answer(&answer).status, 202, "accepted, and nothing to do with this session's questions");
    assert_eq!(client.answer(&answer).status, 202);
    let said = peer.stream_text();
    assert!(said.contains(r#""given":{"where":{"roots":[]}}"#), "{said}");
}

#[test]
fn a_version_header_must_name_a_revision_with_sessions() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    for (version, status) in [("2025-11-25", 200), ("2025-03-26", 200), ("2024-11-05", 400), ("", 400)] {
        let session = format!("{}MCP-Protocol-Version: {version}\r\n", client.session);
        let answer = Client { lab: &lab, session }.answer(&plain(1, "ping", &json!({})));
        assert_eq!(answer.status, status, "{version:?}");
    }
}

#[test]
fn a_handshake_that_is_refused_begins_no_session() {
    let lab = Lab::start();
    let mut peer = lab.connect();
    peer.send(post_in("", &plain(1, "initialize", &json!({"protocolVersion":"2025-11-25"}))).as_bytes());
    let answer = peer.answer();
    assert_eq!((answer.status, answer.code()), (200, -32602));
    assert!(answer.header("mcp-session-id").is_none());
    assert_eq!(lab.service.counters().sessions, 0);
}

#[test]
fn at_the_cap_the_longest_idle_session_makes_room() {
    let lab = lab_with(|http| http.max_sessions = 2);
    let first = Client::open(&lab, "2025-11-25");
    let mut stream = first.bare("GET");
    assert_eq!(stream.head().status, 200);
    let second = Client::open(&lab, "2025-11-25");
    let third = Client::open(&lab, "2025-11-25");
    let status = |client: &Client<'_>| client.answer(&plain(1, "ping", &json!({}))).status;
    assert_eq!((status(&first), status(&second), status(&third)), (200, 404, 200));
    let mut busy = third.bare("GET");
    assert_eq!(busy.head().status, 200);
    let mut peer = lab.connect();
    peer.send(post_in("", &initialize("2025-11-25")).as_bytes());
    let refused = peer.answer();
    assert_eq!((refused.status, refused.code()), (503, -31001));
    assert!(refused.header("retry-after").is_some());
}

#[test]
fn a_server_of_one_era_says_which() {
    let modern = lab_with(|http| http.server = ServerConfig { eras: Eras::Modern, ..http.server.clone() });
    let mut peer = modern.connect();
    peer.send(post_in("", &initialize("2025-11-25")).as_bytes());
    let answer = peer.answer();
    assert_eq!((answer.status, answer.code()), (400, -32022));
    assert!(answer.text().contains(r#""supported":["2026-07-28"]"#), "rule M8");
    let session = Client { lab: &modern, session: "Mcp-Session-Id: x\r\n".into() };
    assert_eq!((session.bare("GET").head().status, session.delete()), (405, 405));

    let legacy = lab_with(|http| http.server = ServerConfig { eras: Eras::Legacy, ..http.server.clone() });
    let mut peer = legacy.connect();
    peer.send(post(&call(1, "echo", "{}")).as_bytes());
    let answer = peer.answer();
    assert_eq!((answer.status, answer.code()), (400, -32600), "no error of the modern revision: clients fall back");
    assert!(
        Client::open(&legacy, "2025-06-18").answer(&tool(1, "echo", &json!({"text":"old"}))).text().contains("old")
    );
}

#[test]
fn a_request_of_a_session_must_accept_a_stream() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-03-26");
    let send = |body: &str| {
        let mut peer = lab.connect();
        let only_json = post_in(&client.session, body).replace(", text/event-stream", "");
        peer.send(only_json.as_bytes());
        peer.answer().status
    };
    assert_eq!(send(&plain(1, "ping", &json!({}))), 406);
    assert_eq!(send(INITIALIZED), 202, "what is not answered needs none");
}

#[test]
fn each_request_of_a_batch_has_a_place_and_none_of_them_a_key_of_all() {
    let lab = lab_with(|http| http.server.requests.in_flight = 2);
    let client = Client::open(&lab, "2025-03-26");
    let batch = |count: u32| {
        let one = |id| json!({"jsonrpc":"2.0","id":id,"method":"ping"});
        Value::from((0..count).map(one).collect::<Vec<_>>()).to_string()
    };
    assert_eq!(client.answer(&batch(3)).status, 429);
    let mut peer = client.send(&batch(2));
    assert_eq!(peer.head().status, 200);
    peer.stream_text();
    let keyed = Client { lab: &lab, session: format!("{}Idempotency-Key: \"k\"\r\n", client.session) };
    assert_eq!((keyed.answer(&batch(2)).status, keyed.answer(&plain(9, "ping", &json!({}))).status), (400, 200));
}

#[test]
fn a_cancellation_in_a_batch_is_of_the_requests_before_it() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-03-26");
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    let batch = json!([parse(&tool(1, "wait", &json!({}))), parse(&cancel(1))]);
    let mut peer = client.send(&batch.to_string());
    lab.hears(&["started", "Cancelled(Some(\"enough\"))"]);
    assert_eq!(peer.head().status, 200);
    peer.stream_text();
}

#[test]
fn a_version_that_is_unknown_is_refused_whatever_the_method() {
    let lab = Lab::start();
    let client = Client::open(&lab, "2025-11-25");
    let unknown = Client { lab: &lab, session: format!("{}MCP-Protocol-Version: 2024-11-05\r\n", client.session) };
    assert_eq!((unknown.bare("GET").head().status, unknown.delete()), (400, 400));
    assert_eq!(client.delete(), 204);
}
