//! What a client's modern messages are to a server of an older revision, and what that server says is to the client.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::value::RawValue;

use crate::id::RequestId;
use crate::legacy::{Revision, ask, method as legacy};
use crate::mrtr::{Kind, METHODS};
use crate::rpc::scan::{MAX_NESTING, Scanner};
use crate::rpc::{self, Message, RpcError, code, encode, members, method, text};

/// Questions of the server that wait for the application at most; each more is refused.
const MAX_QUESTIONS: usize = 64;
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
    /// Calls that wait for the application, by the server's id, with what came for them meanwhile. Bounded by
    /// [`MAX_QUESTIONS`].
    parked: BTreeMap<i64, Parked>,
    /// Open listens and what they hear of. Bounded by the client's cap of subscriptions.
    listens: BTreeMap<i64, String>,
    /// Ids of the adapter's own requests.
    own: u64,
}

/// A call that was answered by a demand for input.
#[derive(Debug, Default)]
struct Parked {
    /// Questions that came after the one that is out.
    more: VecDeque<(RequestId, String, String)>,
    /// The final answer, if it came all the same: its member and its text.
    done: Option<(&'static str, String)>,
}

type Out = Vec<Vec<u8>>;

impl Calls {
    pub(super) fn new(revision: Revision, capabilities: String, discovered: String) -> Self {
        let (running, parked, listens) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { revision, capabilities, discovered, running, parked, listens, own: 0 }
    }

    /// A message of the client. What is for the server goes to `say`, what is answered here to `ready`.
    pub(super) fn say(&mut self, message: &str, ready: &mut VecDeque<String>, say: &mut Out) {
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

    fn request(&mut self, id: i64, name: &str, params: &str, ready: &mut VecDeque<String>, say: &mut Out) {
        match name {
            method::DISCOVER => ready.push_back(result(id, &self.discovered)),
            method::LISTEN => self.listen(id, params, ready, say),
            task if task.starts_with("tasks/") => {
                ready.push_back(error(id, &RpcError::method_not_found(task)));
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
    fn next_round(
        &mut self,
        id: i64,
        (call, question): (i64, RequestId),
        params: &str,
        ready: &mut VecDeque<String>,
        say: &mut Out,
    ) {
        let Some(parked) = self.parked.remove(&call) else {
            let gone = RpcError::invalid_params("the call that this continues is not in progress any more");
            return ready.push_back(error(id, &gone));
        };
        let answer = members(params, &["inputResponses"]).and_then(|[all]| members(all?, &[QUESTION]));
        let mut text = Vec::new();
        match answer {
            Some([Some(answer)]) => encode::result(&mut text, &question, answer),
            Some([None]) | None => {
                encode::error(&mut text, Some(&question), &RpcError::internal("the application gave no answer"));
            }
        }
        say.push(text);
        self.running.insert(call, id);
        let Parked { more, done } = parked;
        for (question, name, params) in more {
            self.ask(question, &name, &params, ready, say);
        }
        if let Some((member, text)) = done {
            let id = self.running.remove(&call).unwrap_or(id);
            ready.push_back(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"{member}\":{text}}}"));
        }
    }

    fn cancel(&mut self, params: &str, say: &mut Out) {
        let Some(cancellation) = rpc::read_cancellation(params) else { return };
        let RequestId::Integer(id) = cancellation.id else { return };
        if let Some(filter) = self.listens.remove(&id) {
            return self.watch(legacy::UNSUBSCRIBE, &filter, say);
        }
        let call = self.running.iter().find(|(_, now)| **now == id).map_or(id, |(call, _)| *call);
        self.running.remove(&call);
        let mut text = Vec::new();
        encode::cancelled(&mut text, &call.into(), cancellation.reason.as_deref());
        say.push(text);
    }

    /// A listen exists here only: the server says everything to everybody, but for single resources.
    fn listen(&mut self, id: i64, params: &str, ready: &mut VecDeque<String>, say: &mut Out) {
        let filter = members(params, &["notifications"]).and_then(|[filter]| filter).unwrap_or("{}");
        self.watch(legacy::SUBSCRIBE, filter, say);
        let stamped = format!("{{\"notifications\":{filter},\"_meta\":{{\"{STAMP}\":{id}}}}}");
        ready.push_back(notification(method::ACKNOWLEDGED, &stamped));
        self.listens.insert(id, filter.to_string());
    }

    fn watch(&mut self, name: &str, filter: &str, say: &mut Out) {
        for uri in uris(filter) {
            self.own += 1;
            let (mut params, mut text) = (b"{\"uri\":".to_vec(), Vec::new());
            encode::string(&mut params, &uri);
            params.push(b'}');
            let params = String::from_utf8(params).unwrap_or_default();
            encode::request(&mut text, &RequestId::from(&*format!("own-{}", self.own)), name, &params);
            say.push(text);
        }
    }

    /// A message of the server.
    pub(super) fn hear(&mut self, message: &str, ready: &mut VecDeque<String>, say: &mut Out) {
        match rpc::parse(message) {
            Ok(Message::Request { id, method, params }) => {
                self.ask(id, &method, params.map_or("{}", RawValue::get), ready, say);
            }
            Ok(Message::Response { id: Some(RequestId::Integer(id)), body }) => {
                let (member, text) = match body {
                    rpc::Body::Result(result) => ("result", result.get()),
                    rpc::Body::Error(error) => ("error", error.get()),
                };
                if let Some(parked) = self.parked.get_mut(&id) {
                    parked.done = Some((member, text.into()));
                    return;
                }
                match self.running.remove(&id) {
                    Some(now) if now != id => {
                        ready.push_back(format!("{{\"jsonrpc\":\"2.0\",\"id\":{now},\"{member}\":{text}}}"));
                    }
                    Some(_) | None => ready.push_back(message.into()),
                }
            }
            // An answer to a request of the adapter itself.
            Ok(Message::Response { id: Some(RequestId::String(_)), .. }) => {}
            Ok(Message::Notification { method, params }) => {
                self.notified(&method, params.map_or("{}", RawValue::get), message, ready);
            }
            // The loop counts it.
            Ok(Message::Response { id: None, .. }) | Err(_) => ready.push_back(message.into()),
        }
    }

    fn notified(&self, name: &str, params: &str, message: &str, ready: &mut VecDeque<String>) {
        let listed = match name {
            "notifications/tools/list_changed" => "toolsListChanged",
            "notifications/prompts/list_changed" => "promptsListChanged",
            "notifications/resources/list_changed" => "resourcesListChanged",
            "notifications/resources/updated" => {
                let uri = members(params, &["uri"]).and_then(|[uri]| text(uri?)).unwrap_or_default();
                let watches = |filter: &str| uris(filter).any(|watched| watched == uri);
                return self.stamp(name, params, watches, ready);
            }
            method::PROGRESS => return self.progress(params, message, ready),
            // A question that its server takes back: its answer will be ignored there.
            method::CANCELLED => return,
            _ => return ready.push_back(message.into()),
        };
        let wanted = |filter: &str| members(filter, &[listed]).is_some_and(|[wanted]| wanted == Some("true"));
        self.stamp(name, params, wanted, ready);
    }

    /// Hands a change to each listen that asked for it, as the modern revision has it (rule L2).
    fn stamp(&self, name: &str, params: &str, wants: impl Fn(&str) -> bool, ready: &mut VecDeque<String>) {
        for id in self.listens.iter().filter(|(_, filter)| wants(filter)).map(|(id, _)| id) {
            let mut stamped = format!("{{\"_meta\":{{\"{STAMP}\":{id}}}");
            let _object = Scanner::new(params, MAX_NESTING).object(|member, scanner| {
                let value = scanner.value()?;
                if !member.is("_meta") {
                    stamped.push(',');
                    stamped.push_str(member.quoted());
                    stamped.push(':');
                    stamped.push_str(value);
                }
                Ok(())
            });
            stamped.push('}');
            ready.push_back(notification(name, &stamped));
        }
    }

    /// Progress of a call that goes on under another id.
    fn progress(&self, params: &str, message: &str, ready: &mut VecDeque<String>) {
        let token = members(params, &["progressToken"]).and_then(|[token]| token?.parse::<i64>().ok());
        let now = token.and_then(|token| self.running.get(&token).filter(|now| **now != token));
        let Some(now) = now else { return ready.push_back(message.into()) };
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
        ready.push_back(notification(method::PROGRESS, &renamed));
    }

    /// A question of the server: a demand for input, as the modern revision has it, or a refusal.
    fn ask(&mut self, id: RequestId, name: &str, params: &str, ready: &mut VecDeque<String>, say: &mut Out) {
        let mut text = Vec::new();
        if name == legacy::PING {
            encode::result(&mut text, &id, "{}");
            return say.push(text);
        }
        let kind = Kind::of(name, Some(params));
        let refusal = match kind {
            None => Some(RpcError::new(code::METHOD_NOT_FOUND, format!("this client has no method {name:?}"))),
            Some(kind) if !ask::can_ask(self.revision, &self.capabilities, kind) => {
                Some(RpcError::new(code::METHOD_NOT_FOUND, format!("this client did not declare {}", kind.required())))
            }
            Some(_) if self.running.is_empty() && self.parked.is_empty() => {
                Some(RpcError::internal("no call is in progress whose caller could be asked"))
            }
            Some(_) if self.parked.values().map(|parked| 1 + parked.more.len()).sum::<usize>() >= MAX_QUESTIONS => {
                Some(RpcError::internal("too many questions wait for the application"))
            }
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            encode::error(&mut text, Some(&id), &refusal);
            return say.push(text);
        }
        let Some((call, now)) = self.running.pop_last() else {
            if let Some(mut parked) = self.parked.last_entry() {
                parked.get_mut().more.push_back((id, name.into(), params.into()));
            }
            return;
        };
        self.parked.insert(call, Parked::default());
        let mut question = Vec::new();
        encode::id(&mut question, &id);
        let mut state = Vec::new();
        encode::string(&mut state, &format!("{STATE}{call}:{}", String::from_utf8_lossy(&question)));
        let demand = format!(
            "{{\"resultType\":\"input_required\",\"inputRequests\":{{\"{QUESTION}\":{{\"method\":\"{name}\",\"params\":{params}}}}},\"requestState\":{}}}",
            String::from_utf8_lossy(&state)
        );
        ready.push_back(result(now, &demand));
    }

    /// The id under which the client knows a call whose answer came.
    pub(super) fn answered(&mut self, id: &RequestId) -> RequestId {
        match id {
            RequestId::Integer(id) => self.running.remove(id).unwrap_or(*id).into(),
            RequestId::String(_) => id.clone(),
        }
    }
}

/// The key of the one question of a round.
const QUESTION: &str = "asked";
const STAMP: &str = "io.modelcontextprotocol/subscriptionId";

/// Which call, and which question, a state of ours names.
fn round(state: &str) -> Option<(i64, RequestId)> {
    let (call, question) = state.strip_prefix(STATE)?.split_once(':')?;
    Some((call.parse().ok()?, rpc::request_id(question)?))
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

/// The single resources that a filter names.
fn uris(filter: &str) -> impl Iterator<Item = String> + use<> {
    let all =
        members(filter, &["resourceSubscriptions"]).and_then(|[uris]| serde_json::from_str::<Vec<String>>(uris?).ok());
    all.unwrap_or_default().into_iter()
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

fn notification(name: &str, params: &str) -> String {
    let mut text = Vec::new();
    encode::notification(&mut text, name, params);
    String::from_utf8(text).unwrap_or_default()
}
