//! Durable tasks over a virtual link: declared for their requests only, followed in the server's rhythm, never made twice.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use steady_core::follow;
use steady_core::idempotency::Key;
use steady_core::kernel::client::{CallError, Called, ClientConfig, Request, TaskError, TaskOptions, ToolResult};
use steady_core::retry::Verdict;
use steady_core::task::Status;

use super::listens::stamped;
use super::{Client, config};

const ACK: &str = "notifications/subscriptions/acknowledged";

fn tool() -> Request {
    Request::raw("tools/call", r#"{"name":"ship","arguments":{}}"#)
}

fn task(status: &str, more: Value) -> Value {
    let mut task = json!({"taskId": "t-1", "status": status, "createdAt": "", "lastUpdatedAt": "", "ttlMs": null,
        "pollIntervalMs": 2000});
    if let (Value::Object(task), Value::Object(more)) = (&mut task, more) {
        task.extend(more);
    }
    task
}

fn answer(id: u64, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn created(id: u64) -> Value {
    answer(id, task("working", json!({"resultType": "task"})))
}

fn completed(id: u64) -> Value {
    let result = json!({"content": [{"type": "text", "text": "shipped"}]});
    answer(id, task("completed", json!({"resultType": "complete", "result": result})))
}

fn polling() -> TaskOptions {
    TaskOptions { notifications: false, ..TaskOptions::default() }
}

/// A future that a test looks at now and then.
struct Waits<F>(Pin<Box<F>>);

impl<F: Future> Waits<F> {
    fn new(future: F) -> Self {
        Self(Box::pin(future))
    }

    fn look(&mut self, client: &mut Client) -> Option<F::Output> {
        client.run();
        let looked = self.0.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        client.run();
        match looked {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }
}

fn shipped(end: Option<Result<ToolResult, TaskError>>) {
    assert_eq!(end.expect("it is over").expect("a result").text(), "shipped");
}

#[test]
fn the_extension_is_declared_with_the_requests_that_need_it_and_beside_what_the_client_declares() {
    let capabilities = r#"{"elicitation":{},"extensions":{"com.example/x":{"level":1}}}"#.to_owned();
    let mut client = Client::new(ClientConfig { capabilities, ..config() });
    let _plain = client.caller.call(tool());
    let _tasks = client.caller.call(tool().with_tasks());
    let handle = client.caller.task("t \"1\"");
    let mut get = Waits::new(handle.get());
    assert!(get.look(&mut client).is_none());
    let lines = client.world.lines();
    let declared: Vec<Value> = lines
        .iter()
        .map(|line| {
            let line: Value = serde_json::from_str(line).expect("JSON");
            line["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
        })
        .collect();
    let tasks =
        json!({"elicitation": {}, "extensions": {"com.example/x": {"level": 1}, "io.modelcontextprotocol/tasks": {}}});
    assert_eq!(
        declared,
        [json!({"elicitation": {}, "extensions": {"com.example/x": {"level": 1}}}), tasks.clone(), tasks]
    );
    let asked: Value = serde_json::from_str(&lines[2]).expect("JSON");
    assert_eq!((&asked["method"], &asked["params"]["taskId"]), (&"tasks/get".into(), &"t \"1\"".into()));
}

#[test]
fn a_call_gives_a_result_or_a_handle_and_the_handle_gets_updates_and_cancels() {
    let mut client = Client::new(config());
    let caller = client.caller.clone();
    let mut done = Waits::new(caller.call_or_task(tool()));
    assert!(done.look(&mut client).is_none());
    client.say(&answer(1, json!({"content": []})));
    assert!(matches!(done.look(&mut client), Some(Ok(Called::Done(_)))));
    let mut called = Waits::new(caller.call_or_task(tool()));
    assert!(called.look(&mut client).is_none());
    client.say(&created(2));
    let Some(Ok(Called::Task(handle))) = called.look(&mut client) else { panic!("a handle") };
    assert_eq!(handle.id(), "t-1");

    let mut get = Waits::new(handle.get());
    assert!(get.look(&mut client).is_none());
    client.say(&answer(3, task("working", json!({"statusMessage": "half", "ttlMs": 60000}))));
    let view = get.look(&mut client).expect("an answer").expect("a task");
    assert_eq!((view.status, view.message.as_deref()), (Status::Working, Some("half")));
    assert_eq!((view.poll_interval, view.ttl), (Some(Duration::from_secs(2)), Some(Duration::from_secs(60))));

    let mut cancel = Waits::new(handle.cancel());
    assert!(cancel.look(&mut client).is_none());
    client.world.lines();
    client.say(&answer(4, json!({"resultType": "complete"})));
    assert!(matches!(cancel.look(&mut client), Some(Ok(()))));
    let mut update = Waits::new(handle.update(&[("name", r#"{"action":"accept"}"#)]));
    assert!(update.look(&mut client).is_none());
    let line: Value = serde_json::from_str(&client.world.lines().concat()).expect("one line");
    assert_eq!(line["params"]["inputResponses"], json!({"name": {"action": "accept"}}));
    client.say(&json!({"jsonrpc": "2.0", "id": 5, "error": {"code": -32602, "message": "no such task"}}));
    assert!(update.look(&mut client).is_none());
    assert_eq!(client.heard(), ["6 tasks/get"], "it may be about the answers as well");
    client.say(&json!({"jsonrpc": "2.0", "id": 6, "error": {"code": -32602, "message": "no such task"}}));
    assert!(matches!(update.look(&mut client), Some(Err(TaskError::Gone { task })) if &*task == "t-1"));
}

#[test]
fn it_is_asked_for_in_the_servers_rhythm_until_its_end() {
    let mut client = Client::new(config());
    let caller = client.caller.clone();
    let mut end = Waits::new(caller.call_to_end(tool(), polling(), |_| async { None }));
    assert!(end.look(&mut client).is_none());
    client.say(&created(1));
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["1 tools/call", "2 tasks/get"]);
    for (id, at) in [(2, 0), (3, 2_200), (4, 4_400)] {
        client.at(at);
        assert!(end.look(&mut client).is_none());
        assert_eq!(client.heard(), if id == 2 { vec![] } else { vec![format!("{id} tasks/get")] });
        client.say(&answer(id, task("working", json!({}))));
        assert!(end.look(&mut client).is_none());
        client.at(at + 1_999);
        assert!(end.look(&mut client).is_none());
        assert_eq!(client.heard(), [""; 0], "not before the interval");
    }
    client.at(6_600);
    assert!(end.look(&mut client).is_none());
    client.say(&completed(5));
    shipped(end.look(&mut client));
    assert_eq!(client.caller.stats().in_flight, 0);
}

#[test]
fn a_notification_of_the_end_shortens_the_wait() {
    let mut client = Client::new(config());
    let caller = client.caller.clone();
    let handle = caller.task("t-1");
    let mut end = Waits::new(handle.finish(TaskOptions::default()));
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["1 subscriptions/listen", "2 tasks/get"]);
    client.say(&stamped(ACK, 1));
    client.say(&answer(2, task("working", json!({}))));
    assert!(end.look(&mut client).is_none());
    let notice = |more: Value| {
        let mut notice = stamped("notifications/tasks", 1);
        let (Value::Object(params), Value::Object(more)) = (&mut notice["params"], more) else { panic!("objects") };
        params.extend(more);
        notice
    };
    // Another task's, and one that says nothing new: the wait goes on.
    client.say(&notice(json!({"taskId": "other", "status": "completed"})));
    client.say(&notice(task("working", json!({}))));
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), [""; 0]);
    client.at(100);
    let result = json!({"content": [{"type": "text", "text": "shipped"}]});
    client.say(&notice(task("completed", json!({"result": result}))));
    shipped(end.look(&mut client));
    drop(end);
    assert_eq!(client.heard(), ["cancelled 1"], "its subscription ends with it");
}

#[test]
fn lost_notifications_are_made_good_by_a_question_and_a_server_without_listens_is_asked_only() {
    let mut client = Client::new(config());
    let handle = client.caller.task("t-1");
    let mut end = Waits::new(handle.finish(TaskOptions::default()));
    assert!(end.look(&mut client).is_none());
    client.say(&stamped(ACK, 1));
    client.say(&answer(2, task("working", json!({"pollIntervalMs": 30000}))));
    assert!(end.look(&mut client).is_none());
    client.world.lines();
    client.lose(true);
    client.at(500);
    assert_eq!(client.heard(), ["3 subscriptions/listen"]);
    client.say(&stamped(ACK, 3));
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["4 tasks/get"], "not after 30 s");
    client.say(&completed(4));
    shipped(end.look(&mut client));

    let mut client = Client::new(config());
    let handle = client.caller.task("t-1");
    let mut end = Waits::new(handle.finish(TaskOptions::default()));
    assert!(end.look(&mut client).is_none());
    client.say(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32601, "message": "no listens"}}));
    client.say(&completed(2));
    shipped(end.look(&mut client));
}

#[test]
fn what_a_task_asks_for_is_answered_by_the_callback_of_the_call_each_key_once() {
    let capabilities = r#"{"elicitation":{}}"#.to_owned();
    let mut client = Client::new(ClientConfig { capabilities, ..config() });
    let (caller, asked) = (client.caller.clone(), RefCell::new(Vec::new()));
    let mut end = Waits::new(caller.call_to_end(tool(), polling(), |input| {
        asked.borrow_mut().push(input.key.to_string());
        async { Some(r#"{"action":"accept"}"#.to_owned()) }
    }));
    let question = json!({"method": "elicitation/create", "params": {"message": "?"}});
    assert!(end.look(&mut client).is_none());
    client.say(&answer(1, json!({"resultType": "input_required", "inputRequests": {"before": question}})));
    assert!(end.look(&mut client).is_none());
    client.say(&created(2));
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["1 tools/call", "2 tools/call", "3 tasks/get"]);
    client.say(&answer(3, task("input_required", json!({"inputRequests": {"where": question}}))));
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["4 tasks/update"]);
    client.say(&answer(4, json!({"resultType": "complete"})));
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["5 tasks/get"], "at once");
    // The worker has not looked yet, and has one more question.
    let both = json!({"where": question, "when": question});
    client.say(&answer(5, task("input_required", json!({"inputRequests": both}))));
    assert!(end.look(&mut client).is_none());
    let line: Value = serde_json::from_str(&client.world.lines().concat()).expect("one line");
    assert_eq!(line["params"]["inputResponses"], json!({"when": {"action": "accept"}}));
    client.say(&answer(6, json!({"resultType": "complete"})));
    assert!(end.look(&mut client).is_none());
    client.say(&completed(7));
    shipped(end.look(&mut client));
    drop(end);
    assert_eq!(asked.into_inner(), ["before", "where", "when"]);

    // Without an answer it waits, and can be taken up again.
    let handle = caller.task("t-1");
    let mut end = Waits::new(handle.finish(polling()));
    assert!(end.look(&mut client).is_none());
    client.say(&answer(8, task("input_required", json!({"inputRequests": {"where": question}}))));
    let Some(Err(TaskError::NoInput { task, key })) = end.look(&mut client) else { panic!("no input") };
    assert_eq!((&*task, &*key), ("t-1", "where"));
}

#[test]
fn a_lost_reply_makes_no_second_task_without_a_key_and_finds_the_first_with_one() {
    let mut client = Client::new(config());
    let caller = client.caller.clone();
    let mut unkeyed = Waits::new(caller.call_to_end(tool(), polling(), |_| async { None }));
    let key = Key::parse("order-7").expect("a key");
    let mut keyed = Waits::new(caller.call_to_end(tool().key(key), polling(), |_| async { None }));
    assert!(unkeyed.look(&mut client).is_none() && keyed.look(&mut client).is_none());
    let before = client.world.lines();
    assert_eq!(before.len(), 2);
    client.lose(true);
    let Some(Err(TaskError::Call(CallError::Unknown { verdict, .. }))) = unkeyed.look(&mut client) else {
        panic!("it may have a task");
    };
    assert_eq!(verdict, Verdict::ReconcileFirst);
    let again = client.world.lines();
    assert_eq!(again.len(), 1, "the keyed one only: {again:?}");
    let same =
        |line: &str, id: u64| line.replace(&format!("\"id\":{id}"), "").replace(&format!("\"progressToken\":{id}"), "");
    assert_eq!(same(&again[0], 3), same(&before[1], 2), "the same key and the same bytes, under a new id");
    client.say(&created(3));
    assert!(keyed.look(&mut client).is_none());
    assert_eq!(client.heard(), ["4 tasks/get"]);
    // From here on only questions are repeated, over any number of links.
    for id in 4..8 {
        client.lose(true);
        assert!(keyed.look(&mut client).is_none());
        client.at(id * 1000);
        assert!(keyed.look(&mut client).is_none());
        assert_eq!(client.heard(), [format!("{} tasks/get", id + 1)]);
    }
    client.say(&completed(8));
    shipped(keyed.look(&mut client));
}

type Fits = fn(TaskError) -> bool;

#[test]
fn every_other_end_names_the_task() {
    let error = json!({"code": -32000, "message": "no truck"});
    let gone = |id: u64| json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no such task"}});
    let ends: [(Value, Fits); 4] = [
        (
            answer(1, task("failed", json!({"error": error}))),
            |end| matches!(end, TaskError::Failed { error, .. } if error.code == -32000),
        ),
        (answer(1, task("cancelled", json!({}))), |end| matches!(end, TaskError::Cancelled { .. })),
        (gone(1), |end| matches!(end, TaskError::Gone { task } if &*task == "t-1")),
        (answer(1, json!({"taskId": "t-1", "status": "sleeping"})), |end| {
            matches!(end, TaskError::Call(CallError::Answer(_)))
        }),
    ];
    for (said, expected) in ends {
        let mut client = Client::new(config());
        let handle = client.caller.task("t-1");
        let mut end = Waits::new(handle.finish(polling()));
        assert!(end.look(&mut client).is_none());
        client.say(&said);
        let end = end.look(&mut client).expect("over").expect_err("no result");
        assert!(expected(end.clone()), "{end}");
    }
    let mut client = Client::new(config());
    let handle = client.caller.task("t-1");
    let limits = follow::Config { maximum: Some(Duration::from_secs(3)), ..follow::Config::default() };
    let mut end = Waits::new(handle.finish(TaskOptions { follow: limits, ..polling() }));
    assert!(end.look(&mut client).is_none());
    client.say(&answer(1, task("working", json!({}))));
    client.at(3_000);
    assert!(end.look(&mut client).is_some_and(|end| matches!(end, Err(TaskError::GaveUp { .. }))));
    // An error that a later question may cure is asked again.
    let mut end = Waits::new(handle.finish(polling()));
    assert!(end.look(&mut client).is_none());
    client.world.lines();
    client.say(&json!({"jsonrpc": "2.0", "id": 2, "error": {"code": -31001, "message": "busy"}}));
    assert!(end.look(&mut client).is_none());
    client.at(4_000);
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["3 tasks/get"]);
}

#[test]
fn an_ill_server_is_asked_again_and_refused_answers_do_not_mean_that_the_task_is_gone() {
    let mut client = Client::new(config());
    let handle = client.caller.task("t-1");
    let mut end = Waits::new(handle.finish(polling()));
    assert!(end.look(&mut client).is_none());
    client.say(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "the store restarts"}}));
    assert!(end.look(&mut client).is_none());
    client.at(4_000);
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["1 tasks/get", "2 tasks/get"]);
    drop(end);
    assert_eq!(client.heard(), ["cancelled 2"]);

    let answers = [("k", "{}")];
    let mut update = Waits::new(handle.update(&answers));
    assert!(update.look(&mut client).is_none());
    client.say(&json!({"jsonrpc": "2.0", "id": 3, "error": {"code": -32602, "message": "a part is too large"}}));
    assert!(update.look(&mut client).is_none());
    assert_eq!(client.heard(), ["3 tasks/update", "4 tasks/get"], "a look tells");
    client.say(&answer(4, task("input_required", json!({}))));
    let refused = update.look(&mut client).expect("over").expect_err("refused");
    assert!(matches!(refused, TaskError::Call(CallError::Peer(_))), "{refused}");
}

#[test]
fn an_answer_of_a_person_is_given_again_until_the_task_has_it() {
    let mut client = Client::new(ClientConfig { capabilities: r#"{"elicitation":{}}"#.to_owned(), ..config() });
    let (handle, asked) = (client.caller.task("t-1"), RefCell::new(0));
    let mut end = Waits::new(handle.finish_with_input(polling(), |_| {
        *asked.borrow_mut() += 1;
        async { Some(r#"{"action":"accept"}"#.to_owned()) }
    }));
    let question = json!({"method": "elicitation/create", "params": {"message": "?"}});
    assert!(end.look(&mut client).is_none());
    client.say(&answer(1, task("input_required", json!({"inputRequests": {"where": question}}))));
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["1 tasks/get", "2 tasks/update"]);
    client.say(&json!({"jsonrpc": "2.0", "id": 2, "error": {"code": -32603, "message": "the store restarts"}}));
    assert!(end.look(&mut client).is_none());
    client.at(60_000);
    assert!(end.look(&mut client).is_none());
    assert_eq!(client.heard(), ["3 tasks/update"]);
    client.say(&answer(3, json!({"resultType": "complete"})));
    assert!(end.look(&mut client).is_none());
    client.say(&completed(4));
    shipped(end.look(&mut client));
    drop(end);
    assert_eq!(asked.into_inner(), 1);
}
