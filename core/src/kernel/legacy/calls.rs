//! What a client's modern messages are to a server of an older revision, and what that server says is to the client.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::listens::Listens;
use super::parked::{Done, Parked, Waiting};
use crate::id::{RequestId, WireId};
use crate::kernel::port::{Lapse, Unanswered};
use crate::legacy::{Revision, ask, method as legacy};
use crate::mrtr::{Kind, METHODS};
use crate::rpc::scan::{MAX_NESTING, Scanner};
use crate::rpc::{self, Message, RpcError, code, encode, members, method, text};

/// Names the rounds of this adapter. The rest of it is the id of the call, and of the question.
const STATE: &str = "mcp-steady-session:";

/// The calls of one client on a link to such a server.
#[derive(Debug)]
pub(super) struct Calls {
    revision: Revision,
    capabilities: String,
    /// The answer to `server/discover`.
    discovered: String,
    /// Calls in flight that a question may belong to: as the server knows them, and as the client does now. Bounded by the
    /// client's cap of calls.
    running: BTreeMap<i64, i64>,
    parked: Parked,
    listens: Listens,
    /// Calls of which nothing more is to be heard, until they are taken.
    closing: Vec<RequestId>,
}

/// What the loop is to read.
#[derive(Debug)]
pub(super) enum Ready {
    Message(String),
    Unanswered(RequestId, Unanswered),
}

impl From<String> for Ready {
    fn from(text: String) -> Self {
        Self::Message(text)
    }
}

pub(super) type In = VecDeque<Ready>;
pub(super) type Out = Vec<Vec<u8>>;

impl Calls {
    pub(super) fn new(revision: Revision, capabilities: String, discovered: String) -> Self {
        let (running, parked, listens) = (BTreeMap::new(), Parked::default(), Listens::default());
        Self { revision, capabilities, discovered, running, parked, listens, closing: Vec::new() }
    }

    /// A message of the client. What is for the server goes to `say`, what is answered here to `ready`.
    pub(super) fn say(&mut self, message: &str, ready: &mut In, say: &mut Out) {
        match rpc::parse(message) {
            Ok(Message::Request { id: RequestId::Integer(id), method, params }) => {
                self.request(id, &method, params.map_or("{}", RawValue::get), ready, say);
            }
            Ok(Message::Notification { method, params }) if method == method::CANCELLED => {
                self.cancel(params.map_or("{}", RawValue::get), say);
            }
            // The loop sends nothing else.
            Ok(_) | Err(_) => say.push(message.as_bytes().to_vec()),
        }
    }

    fn request(&mut self, id: i64, name: &str, params: &str, ready: &mut In, say: &mut Out) {
        match name {
            method::DISCOVER => ready.push_back(result(id, &self.discovered).into()),
            method::LISTEN => self.listens.open(id, params, ready, say),
            task if task.starts_with("tasks/") => {
                ready.push_back(error(id, &RpcError::method_not_found(task)).into());
            }
            _ => {
                let state = members(params, &["requestState"]).and_then(|[state]| text(state?));
                if let Some((call, question)) = state.as_deref().and_then(round) {
                    return self.next_round(id, (call, question), params, ready, say);
                }
                if METHODS.contains(&name) {
                    self.running.insert(id, id);
                }
                let mut text = Vec::new();
                encode::request(&mut text, &id.into(), name, &plain(params));
                say.push(text);
            }
        }
    }

    /// The application answered: the call goes on under its new id.
    fn next_round(&mut self, id: i64, (call, question): (i64, RequestId), params: &str, ready: &mut In, say: &mut Out) {
        let Some(waiting) = self.parked.take(call) else {
            let gone = RpcError::invalid_params("the call that this continues is not in progress any more");
            return ready.push_back(error(id, &gone).into());
        };
        let Waiting { more, done, is_lost, .. } = waiting;
        let done = match done {
            None => None,
            Some(Done::Answer(member, text)) => Some(answer(id, member, &text).into()),
            // Nobody is there who waits for what the application said.
            Some(Done::None(end)) => return ready.push_back(Ready::Unanswered(id.into(), end)),
        };
        if is_lost {
            return ready.extend(done);
        }
        let given = members(params, &["inputResponses"]).and_then(|[all]| members(all?, &[QUESTION]));
        let mut text = Vec::new();
        match given {
            Some([Some(given)]) => encode::result(&mut text, &question, given),
            Some([None]) | None => {
                encode::error(&mut text, Some(&question), &RpcError::internal("the application gave no answer"));
            }
        }
        say.push(text);
        if let Some(done) = done {
            let over = RpcError::internal("the call that is asked for has ended");
            say.extend(more.iter().map(|(question, _, _)| refusal(question, &over)));
            return ready.push_back(done);
        }
        self.running.insert(call, id);
        for (question, name, params) in more {
            self.ask(Some(call), question, &name, &params, ready, say);
        }
    }

    fn cancel(&mut self, params: &str, say: &mut Out) {
        let Some(cancellation) = rpc::read_cancellation(params) else { return };
        let RequestId::Integer(id) = cancellation.id else { return };
        self.give_up(id, cancellation.reason.as_deref(), say);
    }

    /// Nobody waits for this any more, which the server is told by a message of its own: a hang-up says nothing to it.
    pub(super) fn give_up(&mut self, id: i64, reason: Option<&str>, say: &mut Out) {
        if self.listens.close(id, say) {
            return;
        }
        // It was given up before its caller was told of the question.
        if let Some(call) = self.parked.known_as(id) {
            return self.abandon(call, reason.unwrap_or(NOBODY), say);
        }
        let call = self.running.iter().find(|(_, now)| **now == id).map_or(id, |(call, _)| *call);
        self.running.remove(&call);
        self.cancelled(call, reason, say);
    }

    /// The application does not go on with a call that waits for its answer. Nothing of one that went on.
    pub(super) fn leave(&mut self, call: i64, say: &mut Out) {
        self.abandon(call, NOBODY, say);
    }

    fn abandon(&mut self, call: i64, why: &str, say: &mut Out) {
        let Some(Waiting { question, more, done, is_lost, .. }) = self.parked.take(call) else { return };
        if is_lost || matches!(done, Some(Done::None(_))) {
            return;
        }
        let nobody = RpcError::internal(NOBODY);
        say.push(refusal(&question, &nobody));
        say.extend(more.iter().map(|(question, _, _)| refusal(question, &nobody)));
        if done.is_none() {
            self.cancelled(call, Some(why), say);
        }
    }

    fn cancelled(&mut self, call: i64, reason: Option<&str>, say: &mut Out) {
        let mut text = Vec::new();
        encode::cancelled(&mut text, &call.into(), reason);
        say.push(text);
        self.closing.push(call.into());
    }

    /// The subscriptions.
    pub(super) const fn listens(&self) -> &Listens {
        &self.listens
    }

    /// Waits no more for the answers to what was to be unsubscribed up to this request of the adapter.
    pub(super) fn late(&mut self, last: u64, say: &mut Out) {
        self.listens.give_up(last, say);
    }

    /// Takes the calls, as the server knows them, of which nothing more is to be heard.
    pub(super) fn closing(&mut self) -> Vec<RequestId> {
        core::mem::take(&mut self.closing)
    }

    /// Notifications may be missed: the listens are lost, and the loop asks for them again and reads what they cover. Of a
    /// session that is over, the questions are.
    pub(super) fn lapse(&mut self, lapse: Lapse, ready: &mut In) {
        match lapse {
            Lapse::Notices => self.listens.lose(ready),
            Lapse::Session => self.closing.extend(self.parked.lose().into_iter().map(RequestId::from)),
        }
    }

    /// A stream ended without the answer to its request.
    pub(super) fn unanswered(&mut self, id: &RequestId, end: Unanswered, ready: &mut In, say: &mut Out) {
        let id = match id {
            RequestId::Integer(id) => *id,
            RequestId::String(own) => return self.listens.unanswered(own, &end, ready, say),
        };
        match self.parked.get_mut(id) {
            Some(waiting) => waiting.end(Done::None(end)),
            None => {
                let now = self.running.remove(&id).unwrap_or(id);
                ready.push_back(Ready::Unanswered(now.into(), end));
            }
        }
    }

    /// A message of the server; `stream`: the request on whose own stream it came, if it has one.
    pub(super) fn hear(&mut self, message: &str, stream: Option<i64>, ready: &mut In, say: &mut Out) {
        match rpc::parse(message) {
            Ok(Message::Request { id, method, params }) => {
                self.ask(stream, id, &method, params.map_or("{}", RawValue::get), ready, say);
            }
            Ok(Message::Response { id: Some(RequestId::Integer(id)), body }) => {
                let (member, text) = match body {
                    rpc::Body::Result(result) => ("result", result.get()),
                    rpc::Body::Error(error) => ("error", error.get()),
                };
                if let Some(waiting) = self.parked.get_mut(id) {
                    return waiting.end(Done::Answer(member, text.into()));
                }
                match self.running.remove(&id) {
                    Some(now) if now != id => {
                        ready.push_back(answer(now, member, text).into());
                    }
                    Some(_) | None => ready.push_back(String::from(message).into()),
                }
            }
            // An answer to a request of the adapter itself.
            Ok(Message::Response { id: Some(RequestId::String(own)), body }) => {
                self.listens.answered(&own, &body, ready, say);
            }
            Ok(Message::Notification { method, params }) => {
                self.notified(&method, params.map_or("{}", RawValue::get), message, ready);
            }
            // The loop counts it.
            Ok(Message::Response { id: None, .. }) | Err(_) => ready.push_back(String::from(message).into()),
        }
    }

    fn notified(&self, name: &str, params: &str, message: &str, ready: &mut In) {
        match name {
            method::PROGRESS => self.progress(params, message, ready),
            // A question that its server takes back: its answer will be ignored there.
            method::CANCELLED => {}
            _ if self.listens.hear(name, params, ready) => {}
            _ => ready.push_back(String::from(message).into()),
        }
    }

    /// Progress of a call that goes on under another id.
    fn progress(&self, params: &str, message: &str, ready: &mut In) {
        let token = members(params, &["progressToken"]).and_then(|[token]| token?.parse::<i64>().ok());
        let now = token.and_then(|token| self.running.get(&token).filter(|now| **now != token));
        let Some(now) = now else { return ready.push_back(String::from(message).into()) };
        let mut renamed = format!("{{\"progressToken\":{now}");
        let _object = Scanner::new(params, MAX_NESTING).object(|member, scanner| {
            let value = scanner.value()?;
            if !member.is("progressToken") {
                renamed.push(',');
                renamed.push_str(member.quoted());
                renamed.push(':');
                renamed.push_str(value);
            }
            Ok(())
        });
        renamed.push('}');
        ready.push_back(notification(method::PROGRESS, &renamed).into());
    }

    /// A question of the server: a demand for input, as the modern revision has it, or a refusal.
    fn ask(&mut self, stream: Option<i64>, id: RequestId, name: &str, params: &str, ready: &mut In, say: &mut Out) {
        if name == legacy::PING {
            let mut text = Vec::new();
            encode::result(&mut text, &id, "{}");
            return say.push(text);
        }
        // Where nothing tells whose question it is, it goes to the newest call.
        let running = stream.or_else(|| self.running.last_key_value().map(|(call, _)| *call));
        let running = running.filter(|call| self.running.contains_key(call));
        let parked = stream.or_else(|| self.parked.newest()).filter(|call| self.parked.takes(*call));
        let refused = match Kind::of(name, Some(params)) {
            None => Some(RpcError::new(code::METHOD_NOT_FOUND, format!("this client has no method {name:?}"))),
            Some(kind) if !ask::can_ask(self.revision, &self.capabilities, kind) => {
                Some(RpcError::new(code::METHOD_NOT_FOUND, format!("this client did not declare {}", kind.required())))
            }
            Some(_) if running.is_none() && parked.is_none() => {
                Some(RpcError::internal("no call is in progress whose caller could be asked"))
            }
            Some(_) if !self.has_room(running.or(parked), say) => {
                Some(RpcError::internal("too many questions wait for the application"))
            }
            Some(_) => None,
        };
        if let Some(error) = refused {
            return say.push(refusal(&id, &error));
        }
        let Some((call, now)) = running.and_then(|call| self.running.remove_entry(&call)) else {
            if let Some(waiting) = parked.and_then(|call| self.parked.get_mut(call)) {
                waiting.more.push_back((id, name.into(), params.into()));
            }
            return;
        };
        let mut question = Vec::new();
        encode::id(&mut question, &id);
        self.parked.park(call, now, id);
        let mut state = Vec::new();
        encode::string(&mut state, &format!("{STATE}{call}:{}", String::from_utf8_lossy(&question)));
        let demand = format!(
            "{{\"resultType\":\"input_required\",\"inputRequests\":{{\"{QUESTION}\":{{\"method\":\"{name}\",\"params\":{params}}}}},\"requestState\":{}}}",
            String::from_utf8_lossy(&state)
        );
        ready.push_back(result(now, &demand).into());
    }

    /// Whether one question more can wait. An application that leaves its questions without a word must not keep others from
    /// being asked: who has waited longest makes room, unless all are of this one call.
    fn has_room(&mut self, call: Option<i64>, say: &mut Out) -> bool {
        if self.parked.is_full()
            && let Some(oldest) = self.parked.oldest_beside(call)
        {
            self.abandon(oldest, "more questions wait for the application than may", say);
        }
        !self.parked.is_full()
    }

    /// The id under which the client knows a call whose answer came.
    pub(super) fn answered(&mut self, id: &RequestId) -> RequestId {
        match id {
            RequestId::Integer(id) => self.running.remove(id).unwrap_or(*id).into(),
            RequestId::String(_) => id.clone(),
        }
    }
}

/// What a server is told whose question nobody answers.
const NOBODY: &str = "the application gave no answer";
/// The key of the one question of a round.
const QUESTION: &str = "asked";
/// The member that names a listen.
pub(super) const STAMP: &str = "io.modelcontextprotocol/subscriptionId";

/// Which call, and which question, a state of ours names.
fn round(state: &str) -> Option<(i64, RequestId)> {
    let (call, question) = state.strip_prefix(STATE)?.split_once(':')?;
    Some((call.parse().ok()?, rpc::request_id(question)?))
}

/// The call that waits behind this demand for input, if that is one of this adapter.
pub(in crate::kernel) fn parked_call(demand: &str) -> Option<WireId> {
    let [state] = members(demand, &["requestState"])?;
    let (call, _) = round(&text(state?)?)?;
    u64::try_from(call).ok().map(WireId::new)
}

/// Parameters without the metadata that only the modern revision has.
fn plain(params: &str) -> String {
    const MODERN: [&str; 3] = [
        "io.modelcontextprotocol/protocolVersion",
        "io.modelcontextprotocol/clientCapabilities",
        "io.modelcontextprotocol/clientInfo",
    ];
    let mut out = String::with_capacity(params.len());
    let member = |out: &mut String, name: &str, value: &str| {
        out.push(if out.is_empty() { '{' } else { ',' });
        out.push_str(name);
        out.push(':');
        out.push_str(value);
    };
    let _ours_is_an_object = Scanner::new(params, MAX_NESTING).object(|name, scanner| {
        let value = scanner.value()?;
        if !name.is("_meta") {
            member(&mut out, name.quoted(), value);
            return Ok(());
        }
        let mut meta = String::new();
        Scanner::new(value, MAX_NESTING).object(|name, scanner| {
            let value = scanner.value()?;
            if name.among(&MODERN) == MODERN.len() {
                member(&mut meta, name.quoted(), value);
            }
            Ok(())
        })?;
        if !meta.is_empty() {
            meta.push('}');
            member(&mut out, name.quoted(), &meta);
        }
        Ok(())
    });
    out.push_str(if out.is_empty() { "{}" } else { "}" });
    out
}

fn result(id: i64, json: &str) -> String {
    let mut text = Vec::new();
    encode::result(&mut text, &id.into(), json);
    String::from_utf8(text).unwrap_or_default()
}

fn error(id: i64, error: &RpcError) -> String {
    let mut text = Vec::new();
    encode::error(&mut text, Some(&id.into()), error);
    String::from_utf8(text).unwrap_or_default()
}

pub(super) fn answer(id: i64, member: &str, text: &str) -> String {
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{member}\":{text}}}")
}

/// What a server is told whose question is not answered.
fn refusal(question: &RequestId, error: &RpcError) -> Vec<u8> {
    let mut text = Vec::new();
    encode::error(&mut text, Some(question), error);
    text
}

pub(super) fn notification(name: &str, params: &str) -> String {
    let mut text = Vec::new();
    encode::notification(&mut text, name, params);
    String::from_utf8(text).unwrap_or_default()
}
