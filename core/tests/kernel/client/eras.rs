//! A client on a link whose server may be of either era: what it asks first, and what it says to an older one.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use serde_json::{Value, json};
use steady_core::kernel::client::{
    CallError, Caller, ClientConfig, Driver, LinkEnd, ListenEvent, Listener, Request, Turn,
};
use steady_core::kernel::{EraLink, Eras};
use steady_core::subscription::{self, Filter};

use super::super::ms;
use super::super::support::{Driven, VirtualLink, World};
use super::{config, jitter};

struct Loop(Driver<EraLink<VirtualLink>>);

impl Future for Loop {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        self.0.poll(cx)
    }
}

pub(super) struct Client {
    pub(super) world: World,
    driver: Driven<Loop>,
    pub(super) caller: Caller,
}

impl Client {
    fn new(eras: Eras, capabilities: &str) -> Self {
        let probe = ClientConfig::new(steady_core::client::Transport::Stdio).probe;
        let config = ClientConfig { probe, eras, capabilities: capabilities.into(), ..config() };
        let world = World::default();
        let timer = world.ports().timer;
        let (mut driver, caller) = Driver::new(config, timer.clone(), jitter()).expect("fine settings");
        driver.attach(EraLink::new(world.link(), eras, timer));
        Self { world, driver: Driven::new(Loop(driver)), caller }
    }

    pub(super) fn run(&mut self) -> Option<Turn> {
        for _ in 0..100_000 {
            match self.driver.turn() {
                Some(Poll::Ready(turn)) => return Some(turn),
                Some(Poll::Pending) => {}
                None => return None,
            }
        }
        panic!("it does not come to rest");
    }

    pub(super) fn say(&mut self, message: &Value) {
        self.world.send(message.to_string());
        assert!(self.run().is_none(), "the link holds");
    }

    /// What the server read.
    pub(super) fn read(&mut self) -> Vec<Value> {
        assert!(self.run().is_none(), "the link holds");
        self.world.lines().iter().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }

    /// The loop with a server that shook hands under this revision.
    pub(super) fn shaken(revision: &str, capabilities: &str) -> Self {
        let mut client = Self::new(Eras::Both, capabilities);
        let probe = &client.read()[0];
        let unknown = json!({"jsonrpc":"2.0","id":probe["id"],"error":{"code":-32601,"message":"unknown"}});
        client.say(&unknown);
        let shakes = client.read();
        assert_eq!((shakes.len(), &shakes[0]["method"]), (1, &json!("initialize")));
        let capabilities: Value = serde_json::from_str(capabilities).expect("JSON");
        let info = json!({"name":"mcp-steady","version":env!("CARGO_PKG_VERSION")});
        let params = json!({"protocolVersion":"2025-11-25","capabilities":capabilities,"clientInfo":info});
        assert_eq!(shakes[0]["params"], params);
        let result = json!({
            "protocolVersion":revision,"capabilities":{"tools":{"listChanged":true}},
            "serverInfo":{"name":"old","version":"1"},"instructions":"use it",
        });
        client.say(&json!({"jsonrpc":"2.0","id":shakes[0]["id"],"result":result}));
        assert_eq!(client.read(), [json!({"jsonrpc":"2.0","method":"notifications/initialized","params":{}})]);
        client
    }
}

/// What a future has come to.
pub(super) fn now<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(std::task::Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_modern_server_is_asked_once_and_nothing_of_it_is_touched() {
    let mut client = Client::new(Eras::Both, "{}");
    let probe = client.read().remove(0);
    assert_eq!(probe["method"], "server/discover");
    let result = json!({"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"public"});
    client.say(&json!({"jsonrpc":"2.0","id":probe["id"],"result":result}));
    let mut call = Box::pin(client.caller.call(Request::raw("tools/call", "{}")).into_future());
    let sent = client.read().remove(0);
    assert_eq!(sent["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    client.say(&json!({"jsonrpc":"2.0","id":sent["id"],"result":{"resultType":"complete"}}));
    assert!(now(call.as_mut()).expect("answered").is_ok());
    assert!(client.caller.server().is_some());
}

#[test]
fn an_error_of_the_modern_revision_is_no_reason_for_a_handshake() {
    for (code, data) in [
        (-32022, json!({"supported":["2027-01-01"],"requested":"2026-07-28"})),
        (-32021, json!({"requiredCapabilities":{}})),
    ] {
        let mut client = Client::new(Eras::Both, "{}");
        let probe = client.read().remove(0);
        let error = json!({"jsonrpc":"2.0","id":probe["id"],"error":{"code":code,"message":"no","data":data}});
        client.world.send(error.to_string());
        assert!(matches!(client.run(), Some(Turn::Lost(LinkEnd::Refused(_)))), "{code}");
    }
    let mut client = Client::new(Eras::Both, "{}");
    let probe = client.read().remove(0);
    let data = json!({"supported":["2025-06-18"],"requested":"2026-07-28"});
    client.say(&json!({"jsonrpc":"2.0","id":probe["id"],"error":{"code":-32022,"message":"no","data":data}}));
    assert_eq!(client.read()[0]["method"], "initialize", "it names revisions that only a handshake reaches");
}

#[test]
fn a_server_that_is_silent_on_the_probe_is_one_of_the_older_ones() {
    let mut client = Client::new(Eras::Both, "{}");
    assert_eq!(client.read()[0]["method"], "server/discover");
    client.world.advance(ms(2_999));
    assert_eq!(client.read(), [] as [Value; 0]);
    client.world.advance(ms(3_000));
    let shakes = client.read();
    assert_eq!(shakes[0]["method"], "initialize");
    client.say(&json!({"jsonrpc":"2.0","id":9,"method":"ping"}));
    assert_eq!(client.read(), [json!({"jsonrpc":"2.0","id":9,"result":{}})]);
}

#[test]
fn a_client_of_one_era_tries_no_other() {
    let mut legacy = Client::new(Eras::Legacy, "{}");
    assert_eq!(legacy.read()[0]["method"], "initialize", "no probe");
    let mut modern = Client::new(Eras::Modern, "{}");
    let probe = modern.read().remove(0);
    modern.world.send(json!({"jsonrpc":"2.0","id":probe["id"],"error":{"code":-32601,"message":"no"}}).to_string());
    assert!(matches!(modern.run(), Some(Turn::Lost(LinkEnd::Refused(_)))));
}

#[test]
fn a_revision_that_is_not_spoken_ends_the_link_and_is_named() {
    let mut client = Client::new(Eras::Legacy, "{}");
    let shakes = client.read().remove(0);
    let result = json!({"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"s","version":"1"}});
    client.world.send(json!({"jsonrpc":"2.0","id":shakes["id"],"result":result}).to_string());
    let Some(Turn::Lost(LinkEnd::Refused(error))) = client.run() else { panic!("it goes on") };
    assert!(error.message.contains("2024-11-05"), "{error}");
}

#[test]
fn calls_progress_and_cancellations_are_those_of_the_older_revision() {
    for revision in ["2025-11-25", "2025-06-18", "2025-03-26"] {
        let mut client = Client::shaken(revision, "{}");
        let server = client.caller.server().expect("the handshake says what it is");
        assert_eq!(server.supported_versions, ["2026-07-28"]);
        let mut call = client.caller.call(Request::raw("tools/call", r#"{"name":"t","_meta":{"own":1}}"#));
        let sent = client.read().remove(0);
        let id = &sent["id"];
        assert_eq!(sent["params"], json!({"name":"t","_meta":{"own":1,"progressToken":id}}), "no modern metadata");
        client.say(
            &json!({"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":id,"progress":1}}),
        );
        assert!(now(Box::pin(call.progress()).as_mut()).expect("it arrived").is_some());
        let given_up = client.caller.call(Request::raw("tools/call", r#"{"name":"u"}"#));
        let other = client.read().remove(0);
        given_up.cancel("enough");
        assert_eq!(client.read()[0]["params"], json!({"requestId":other["id"],"reason":"enough"}));
        client.say(&json!({"jsonrpc":"2.0","id":id,"result":{"content":[]}}));
        let mut call = Box::pin(call.into_future());
        assert_eq!(now(call.as_mut()).expect("answered").expect("a result").get(), r#"{"content":[]}"#);
        let mut plain = Box::pin(client.caller.call(Request::raw("tools/list", "{}").without_progress()).into_future());
        assert_eq!(client.read()[0]["params"], json!({}));
        assert!(now(plain.as_mut()).is_none());
    }
}

#[test]
fn a_question_of_the_server_is_a_demand_for_input_and_its_answer_goes_back() {
    let mut client = Client::shaken("2025-11-25", r#"{"elicitation":{},"roots":{}}"#);
    let caller = client.caller.clone();
    let request = Request::raw("tools/call", r#"{"name":"t"}"#);
    let mut call = Box::pin(caller.call_with_input(request, |asked| async move {
        Some(format!(r#"{{"action":"accept","content":{{"of":"{}"}}}}"#, asked.kind.method()))
    }));
    assert!(now(call.as_mut()).is_none());
    let sent = client.read().remove(0);
    client.say(
        &json!({"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"message":"?","requestedSchema":{}}}),
    );
    client.say(&json!({"jsonrpc":"2.0","id":"q2","method":"roots/list"}));
    assert!(now(call.as_mut()).is_none(), "the first is answered, and its round is out");
    let answers = client.read();
    let accepted = |of: &str| json!({"action":"accept","content":{"of":of}});
    assert_eq!(
        answers,
        [json!({"jsonrpc":"2.0","id":"q1","result":accepted("elicitation/create")})],
        "no second request"
    );
    assert!(now(call.as_mut()).is_none());
    assert_eq!(client.read(), [json!({"jsonrpc":"2.0","id":"q2","result":accepted("roots/list")})]);
    client.say(&json!({"jsonrpc":"2.0","id":sent["id"],"result":{"content":[1]}}));
    assert_eq!(now(call.as_mut()).expect("answered").expect("a result").get(), r#"{"content":[1]}"#);
}

#[test]
fn a_question_that_the_application_leaves_is_refused_and_its_call_cancelled() {
    let question =
        json!({"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"?","requestedSchema":{}}});
    for answers in [true, false] {
        let mut client = Client::shaken("2025-11-25", r#"{"elicitation":{}}"#);
        let caller = client.caller.clone();
        let request = Request::raw("tools/call", r#"{"name":"t"}"#);
        let mut call = Box::pin(caller.call_with_input(request, |_| async move {
            if !answers {
                std::future::pending::<()>().await;
            }
            None
        }));
        assert!(now(call.as_mut()).is_none());
        let sent = client.read().remove(0);
        client.say(&question);
        assert_eq!(now(call.as_mut()).is_some(), answers);
        drop(call);
        let said = client.read();
        assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&json!("q"), &json!(-32603)));
        assert_eq!(
            (&said[1]["method"], &said[1]["params"]["requestId"]),
            (&json!("notifications/cancelled"), &sent["id"])
        );
        assert_eq!(said.len(), 2);
    }
}

#[test]
fn a_question_that_nobody_can_answer_is_refused_with_the_reason() {
    let mut client = Client::shaken("2025-11-25", r#"{"roots":{}}"#);
    let ask = |id: u32, method: &str| json!({"jsonrpc":"2.0","id":id,"method":method,"params":{}});
    for (id, method, code) in [
        (1, "elicitation/create", -32601),
        (2, "sampling/createMessage", -32601),
        (3, "roots/list", -32603),
        (4, "tools/list", -32601),
    ] {
        client.say(&ask(id, method));
        let refused = client.read().remove(0);
        assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(id), &json!(code)), "{method}");
    }
    client.say(&ask(5, "ping"));
    assert_eq!(client.read(), [json!({"jsonrpc":"2.0","id":5,"result":{}})]);
}

#[test]
fn a_listen_on_an_older_server_hears_what_it_asked_for() {
    let mut client = Client::shaken("2025-11-25", "{}");
    let filter = Filter::parse(r#"{"toolsListChanged":true,"resourceSubscriptions":["x:y"]}"#).expect("a filter");
    let mut listener = client.caller.listen(filter, subscription::Config::default(), jitter()).expect("room");
    let sent = client.read();
    assert_eq!((sent.len(), &sent[0]["method"]), (1, &json!("resources/subscribe")));
    assert_eq!(sent[0]["params"], json!({"uri":"x:y"}));
    client.say(&json!({"jsonrpc":"2.0","id":sent[0]["id"],"result":{}}));
    let opened = now(Box::pin(listener.next()).as_mut());
    assert!(matches!(opened, Some(ListenEvent::Gap { refetch }) if refetch.len() == 2), "it begins with a read");
    listener.refetched();
    client.say(&json!({"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}));
    client.say(&json!({"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:z"}}));
    client.say(&json!({"jsonrpc":"2.0","method":"notifications/tools/list_changed"}));
    client.say(&json!({"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}));
    let mut heard = Vec::new();
    while let Some(event) = now(Box::pin(listener.next()).as_mut()) {
        if let ListenEvent::Notice(notice) = event {
            heard.push(notice.method.to_string());
        }
    }
    assert_eq!(heard, ["notifications/tools/list_changed", "notifications/resources/updated"]);
    drop(listener);
    let sent = client.read();
    assert_eq!((&sent[0]["method"], &sent[0]["params"]), (&json!("resources/unsubscribe"), &json!({"uri":"x:y"})));
}

/// The requests about single resources that the server reads now, each of which it answers.
fn about_resources(client: &mut Client) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let sent = client.read();
    for request in &sent {
        client.say(&json!({"jsonrpc":"2.0","id":request["id"],"result":{}}));
    }
    sent.iter().map(|sent| (text(&sent["method"]), text(&sent["params"]["uri"]))).collect()
}

#[test]
fn a_resource_is_unsubscribed_when_the_last_listen_that_names_it_goes() {
    let mut client = Client::shaken("2025-11-25", "{}");
    let listen = |client: &mut Client, filter: &str| {
        let filter = Filter::parse(filter).expect("a filter");
        let mut listener = client.caller.listen(filter, subscription::Config::default(), jitter()).expect("room");
        let _subscribed = about_resources(client);
        assert!(matches!(now(Box::pin(listener.next()).as_mut()), Some(ListenEvent::Gap { .. })));
        listener.refetched();
        listener
    };
    let first = listen(&mut client, r#"{"resourceSubscriptions":["x:y","x:a"]}"#);
    let mut other = listen(&mut client, r#"{"resourceSubscriptions":["x:y"]}"#);
    drop(first);
    let pair = |method: &str, uri: &str| (format!("resources/{method}"), uri.to_owned());
    assert_eq!(about_resources(&mut client), [pair("unsubscribe", "x:a")]);
    client.say(&json!({"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x:y"}}));
    assert!(matches!(now(Box::pin(other.next()).as_mut()), Some(ListenEvent::Notice(_))));
    drop(other);
    assert_eq!(about_resources(&mut client), [pair("unsubscribe", "x:y")]);
}

fn resource_listener(client: &Client) -> Listener {
    let filter = Filter::parse(r#"{"toolsListChanged":true,"resourceSubscriptions":["x:y","x:z"]}"#).expect("a filter");
    client.caller.listen(filter, subscription::Config::default(), jitter()).expect("room")
}

#[test]
fn a_listen_is_open_once_the_server_has_subscribed_to_all_of_its_resources() {
    let mut client = Client::shaken("2025-11-25", "{}");
    let mut listener = resource_listener(&client);
    let sent = client.read();
    assert_eq!(sent.len(), 2);
    for subscribe in &sent {
        assert!(
            now(Box::pin(listener.next()).as_mut()).is_none(),
            "what is read now may be older than the subscription"
        );
        // It is read after the acknowledgement.
        client.say(&json!({"jsonrpc":"2.0","method":"notifications/tools/list_changed"}));
        client.say(&json!({"jsonrpc":"2.0","id":subscribe["id"],"result":{}}));
    }
    assert!(matches!(now(Box::pin(listener.next()).as_mut()), Some(ListenEvent::Gap { .. })));
    // One more has nothing to wait for.
    let mut other = resource_listener(&client);
    assert_eq!(client.read(), [] as [Value; 0]);
    assert!(matches!(now(Box::pin(other.next()).as_mut()), Some(ListenEvent::Gap { .. })));
}

#[test]
fn a_listen_whose_resource_is_refused_is_refused_and_leaves_nothing_behind() {
    let mut client = Client::shaken("2025-11-25", "{}");
    let mut listener = resource_listener(&client);
    let sent = client.read();
    client.say(&json!({"jsonrpc":"2.0","id":sent[0]["id"],"result":{}}));
    client.say(&json!({"jsonrpc":"2.0","id":sent[1]["id"],"error":{"code":-32002,"message":"no such resource"}}));
    let ended = now(Box::pin(listener.next()).as_mut());
    assert!(matches!(ended, Some(ListenEvent::Ended(subscription::End::Refused))), "{ended:?}");
    let pair = ("resources/unsubscribe".to_owned(), sent[0]["params"]["uri"].as_str().expect("a text").to_owned());
    assert_eq!(about_resources(&mut client), [pair]);
}

#[test]
fn a_resource_is_subscribed_again_after_the_answer_to_what_ended_it() {
    let mut client = Client::shaken("2025-11-25", "{}");
    let first = resource_listener(&client);
    assert_eq!(about_resources(&mut client).len(), 2);
    drop(first);
    let left = client.read();
    let mut listener = resource_listener(&client);
    assert_eq!(client.read(), [] as [Value; 0], "it could overtake");
    for unsubscribe in &left {
        assert!(now(Box::pin(listener.next()).as_mut()).is_none());
        assert_eq!(unsubscribe["method"], "resources/unsubscribe");
        // A server that has no such method keeps it.
        client.say(&json!({"jsonrpc":"2.0","id":unsubscribe["id"],"error":{"code":-32601,"message":"unknown"}}));
        let again =
            ("resources/subscribe".to_owned(), unsubscribe["params"]["uri"].as_str().expect("a text").to_owned());
        assert_eq!(about_resources(&mut client), [again]);
    }
    assert!(matches!(now(Box::pin(listener.next()).as_mut()), Some(ListenEvent::Gap { .. })));
}

#[test]
fn a_resource_whose_unsubscription_is_never_answered_is_subscribed_again_all_the_same() {
    let mut client = Client::shaken("2025-11-25", "{}");
    let first = resource_listener(&client);
    assert_eq!(about_resources(&mut client).len(), 2);
    drop(first);
    assert_eq!(client.read().len(), 2);
    let mut listener = resource_listener(&client);
    assert_eq!(client.read(), [] as [Value; 0]);
    client.world.advance(ms(9_999));
    assert_eq!(client.read(), [] as [Value; 0]);
    client.world.advance(ms(10_000));
    let pair = |uri: &str| ("resources/subscribe".to_owned(), uri.to_owned());
    assert_eq!(about_resources(&mut client), [pair("x:y"), pair("x:z")]);
    assert!(matches!(now(Box::pin(listener.next()).as_mut()), Some(ListenEvent::Gap { .. })));
}

#[test]
fn what_an_older_server_does_not_have_is_answered_here() {
    let mut client = Client::shaken("2025-11-25", "{}");
    let mut task = Box::pin(client.caller.call(Request::raw("tasks/get", r#"{"taskId":"t"}"#)).into_future());
    let caller = client.caller.clone();
    let mut discover = Box::pin(caller.discover());
    assert!(now(discover.as_mut()).is_none());
    assert_eq!(client.read(), [] as [Value; 0]);
    assert!(matches!(now(task.as_mut()).expect("answered"), Err(CallError::Peer(error)) if error.code == -32601));
    assert!(now(discover.as_mut()).expect("answered").is_ok());
}

#[test]
fn a_server_that_asks_and_does_not_read_is_not_read_either() {
    const PINGS: u32 = 20_000;
    let mut client = Client::shaken("2025-11-25", "{}");
    client.world.allow(Some(0));
    let before = client.world.lock().reads;
    for id in 0..PINGS {
        client.world.send(json!({"jsonrpc":"2.0","id":id,"method":"ping"}).to_string());
    }
    assert!(client.run().is_none(), "the link holds");
    let read = client.world.lock().reads - before;
    assert!((1..4_000).contains(&read), "{read} answers wait to be written");
    // It reads again: each is answered.
    client.world.allow(None);
    let answers = client.read();
    assert!(answers.iter().map(|answer| &answer["id"]).eq((0..PINGS).map(Value::from).collect::<Vec<_>>().iter()));
    // One that never does is given up.
    client.world.allow(Some(0));
    (0..PINGS).for_each(|id| client.world.send(json!({"jsonrpc":"2.0","id":id,"method":"ping"}).to_string()));
    assert!(client.run().is_none(), "the link holds");
    client.world.advance(ms(300_000));
    assert!(matches!(client.run(), Some(Turn::Lost(LinkEnd::Stalled(_)))));
}

#[test]
fn messages_that_are_answered_below_the_loop_count_as_its_turn() {
    let mut client = Client::shaken("2025-11-25", "{}");
    let before = client.world.lock().reads;
    (0..5_000).for_each(|id| client.world.send(json!({"jsonrpc":"2.0","id":id,"method":"ping"}).to_string()));
    assert!(matches!(client.driver.turn(), Some(Poll::Pending)));
    let read = client.world.lock().reads - before;
    assert!((1..1_000).contains(&read), "{read} in one turn (rule T5)");
    assert_eq!(client.read().len(), 5_000);
}
