//! What a server of an older revision asks is answered once, whatever the application does and in whatever order.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use serde_json::{Value, json};
use steady_core::kernel::client::{CallError, Raw, Request};

use super::eras::{Client, now};

const CAPABILITIES: &str = r#"{"elicitation":{}}"#;

fn question(id: u64) -> Value {
    let params = json!({"message":"?","requestedSchema":{"type":"object","properties":{}}});
    json!({"jsonrpc":"2.0","id":id,"method":"elicitation/create","params":params})
}

fn tool() -> Request {
    Request::raw("tools/call", r#"{"name":"t"}"#)
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The application calls.
    Call,
    /// The server asks.
    Ask,
    /// The server answers the call that it has known longest.
    Answer,
    /// The loop runs.
    Turn,
    /// The application looks at its calls, and has no answer yet.
    Look,
    /// It answers what it is asked.
    Accept,
    /// It drops its first call.
    Drop,
}

const STEPS: [Step; 7] = [Step::Call, Step::Ask, Step::Answer, Step::Turn, Step::Look, Step::Accept, Step::Drop];

type Call = Pin<Box<dyn Future<Output = Result<Raw, CallError>>>>;

struct Play {
    client: Client,
    calls: Vec<Call>,
    accepts: Rc<Cell<bool>>,
    asked: u64,
    /// Calls that the server has not answered, and what it read of each question.
    known: Vec<Value>,
    answered: BTreeMap<u64, usize>,
    cancelled: BTreeMap<i64, usize>,
    faults: Vec<String>,
}

impl Play {
    fn new() -> Self {
        let client = Client::shaken("2025-11-25", CAPABILITIES);
        let (answered, cancelled) = (BTreeMap::new(), BTreeMap::new());
        let (calls, known, faults) = (Vec::new(), Vec::new(), Vec::new());
        Self { client, calls, accepts: Rc::default(), asked: 0, known, answered, cancelled, faults }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Call => {
                let (caller, accepts) = (self.client.caller.clone(), Rc::clone(&self.accepts));
                let call = async move {
                    let answer = |_| {
                        let accepts = Rc::clone(&accepts);
                        poll_fn(move |_| match accepts.get() {
                            true => Poll::Ready(Some(r#"{"action":"decline"}"#.to_owned())),
                            false => Poll::Pending,
                        })
                    };
                    caller.call_with_input(tool(), answer).await
                };
                self.calls.push(Box::pin(call));
                self.look();
            }
            Step::Ask => {
                self.asked += 1;
                self.client.world.send(question(self.asked).to_string());
            }
            Step::Answer if self.known.is_empty() => {}
            Step::Answer => {
                let id = self.known.remove(0);
                self.client.world.send(json!({"jsonrpc":"2.0","id":id,"result":{"content":[]}}).to_string());
            }
            Step::Turn => self.turn(),
            Step::Look => self.look(),
            Step::Accept => {
                self.accepts.set(true);
                self.look();
                self.accepts.set(false);
            }
            Step::Drop if self.calls.is_empty() => {}
            Step::Drop => drop(self.calls.remove(0)),
        }
    }

    fn look(&mut self) {
        self.calls.retain_mut(|call| now(call.as_mut()).is_none());
    }

    fn turn(&mut self) {
        for message in self.client.read() {
            if message["method"] == "tools/call" {
                self.known.push(message["id"].clone());
            } else if message["method"] == "notifications/cancelled" {
                let id = &message["params"]["requestId"];
                self.known.retain(|known| known != id);
                *self.cancelled.entry(id.as_i64().expect("ids of calls are numbers")).or_default() += 1;
            } else if let Some(id) = message["id"].as_u64() {
                *self.answered.entry(id).or_default() += 1;
            } else {
                self.faults.push(format!("{message} was said"));
            }
        }
    }

    /// The application lets go of everything; what is wrong then.
    fn over(mut self) -> Vec<String> {
        self.turn();
        self.calls.clear();
        self.turn();
        for question in 1..=self.asked {
            match self.answered.get(&question) {
                Some(1) => {}
                times => self.faults.push(format!("question {question} was answered {times:?} times")),
            }
        }
        if !self.known.is_empty() {
            self.faults.push(format!("calls {:?} are neither answered nor cancelled", self.known));
        }
        if self.cancelled.values().any(|times| *times > 1) {
            self.faults.push(format!("cancelled {:?}", self.cancelled));
        }
        self.faults
    }
}

/// Every order of five steps after a call that its server knows.
#[test]
fn each_question_is_answered_once_whatever_becomes_of_its_call() {
    let mut orders = 0;
    let mut order = [0_usize; 5];
    loop {
        let mut play = Play::new();
        let steps = [Step::Call, Step::Turn].into_iter().chain(order.map(|step| STEPS[step]));
        steps.clone().for_each(|step| play.step(step));
        let faults = play.over();
        assert!(faults.is_empty(), "{faults:?} after {:?}", steps.collect::<Vec<_>>());
        orders += 1;
        let Some(digit) = order.iter().rposition(|step| step + 1 < STEPS.len()) else { break };
        order[digit] += 1;
        order[digit + 1..].fill(0);
    }
    assert_eq!(orders, STEPS.len().pow(5));
}

#[test]
fn applications_that_leave_their_questions_do_not_keep_others_from_being_asked() {
    let mut client = Client::shaken("2025-11-25", CAPABILITIES);
    let mut ids = Vec::new();
    for asks in 1..=200_u64 {
        // A plain call: what it is answered is a demand for input, which nobody goes on with.
        let mut call = Box::pin(client.caller.call(tool()).into_future());
        assert!(now(call.as_mut()).is_none());
        let said = client.read();
        ids.push(said.last().expect("the call")["id"].clone());
        client.say(&question(asks));
        let demand = now(call.as_mut()).expect("it is asked").expect("a demand");
        assert!(demand.get().contains("input_required"));
        let said = client.read();
        let Some(oldest) = asks.checked_sub(65) else {
            assert_eq!(said, [] as [Value; 0]);
            continue;
        };
        let oldest = usize::try_from(oldest).expect("it is small");
        assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&json!(oldest + 1), &json!(-32603)));
        assert_eq!(said[1]["method"], "notifications/cancelled");
        assert_eq!(said[1]["params"]["requestId"], ids[oldest], "the call that has waited longest");
        assert_eq!(said.len(), 2);
    }
}

#[test]
fn a_call_that_asks_without_an_end_is_refused_and_costs_no_other() {
    let mut client = Client::shaken("2025-11-25", CAPABILITIES);
    let mut call = Box::pin(client.caller.call(tool()).into_future());
    assert!(now(call.as_mut()).is_none());
    client.run();
    client.read();
    for asks in 1..=64 {
        client.say(&question(asks));
    }
    assert_eq!(client.read(), [] as [Value; 0]);
    client.say(&question(65));
    let said = client.read();
    assert_eq!((said.len(), &said[0]["id"], &said[0]["error"]["code"]), (1, &json!(65), &json!(-32603)));
}

#[test]
fn a_round_that_cannot_leave_is_refused_to_its_server() {
    let mut client = Client::shaken("2025-11-25", CAPABILITIES);
    let caller = client.caller.clone();
    // What the application says makes the request too long for the client's own limit.
    let long = || Some(format!(r#"{{"action":"accept","content":{{"x":"{}"}}}}"#, "x".repeat(16 << 20)));
    let mut call = Box::pin(caller.call_with_input(tool(), |_| async { long() }));
    assert!(now(call.as_mut()).is_none());
    let sent = client.read().remove(0);
    client.say(&question(1));
    let ended = now(call.as_mut()).expect("it does not leave");
    assert!(matches!(ended, Err(CallError::RequestTooLong { .. })), "{ended:?}");
    let said = client.read();
    assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&json!(1), &json!(-32603)));
    assert_eq!((&said[1]["method"], &said[1]["params"]["requestId"]), (&json!("notifications/cancelled"), &sent["id"]));
}
