//! A request as a caller states it, and as it is sent: the same bytes for every attempt but for id and progress token.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;

use super::ClientConfig;
use super::error::CallError;
use crate::client::CallOptions;
use crate::deadline::Limits;
use crate::id::{RequestId, WireId};
use crate::idempotency::{Key, META_NAME};
use crate::kernel::propagation::{PARENT, STATE, TraceContext};
use crate::retry::Contract;
use crate::rpc::scan::{MAX_NESTING, Scanner, members};
use crate::rpc::{PROTOCOL_VERSION, encode, method};
use crate::subscription::{Filter, Refetch};
use crate::task;

/// A request before it is sent: method, parameters, and what the caller states about it.
///
/// ```
/// use core::time::Duration;
/// use steady_core::kernel::client::Request;
///
/// let request = Request::tool("reserve", &[("sku", "widget")].into_iter().collect::<std::collections::BTreeMap<_, _>>())
///     .idle(Some(Duration::from_secs(5)));
/// assert_eq!(request.method(), "tools/call");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Request {
    method: Box<str>,
    params: Result<String, Box<str>>,
    idle: Option<Option<Duration>>,
    maximum: Option<Option<Duration>>,
    contract: Contract,
    attempts: Option<u16>,
    progress: bool,
    tasks: bool,
    repeats: bool,
    pub(super) progress_buffer: Option<usize>,
}

impl Request {
    /// A request for `method`. `params` is written as JSON and must be an object; its `_meta` may carry members of the
    /// caller's own. What cannot be written is told when the request is called.
    pub fn new(method: &str, params: &(impl Serialize + ?Sized)) -> Self {
        Self::with(method, serde_json::to_string(params).map_err(|error| error.to_string().into()))
    }

    /// The same with parameters that are JSON text already.
    pub fn raw(method: &str, params: impl Into<String>) -> Self {
        Self::with(method, Ok(params.into()))
    }

    /// A call of the tool `name` with `arguments`, which must be a JSON object.
    pub fn tool(name: &str, arguments: &(impl Serialize + ?Sized)) -> Self {
        let params = serde_json::to_string(arguments).map_err(|error| error.to_string().into()).map(|arguments| {
            let mut params = b"{\"name\":".to_vec();
            encode::string(&mut params, name);
            params.extend_from_slice(b",\"arguments\":");
            params.extend_from_slice(arguments.as_bytes());
            params.push(b'}');
            String::from_utf8(params).unwrap_or_default()
        });
        Self::with(method::TOOLS_CALL, params)
    }

    fn with(method: &str, params: Result<String, Box<str>>) -> Self {
        Self {
            method: method.into(),
            params,
            idle: None,
            maximum: None,
            contract: Contract::Unsafe,
            attempts: None,
            progress: true,
            tasks: false,
            repeats: false,
            progress_buffer: None,
        }
    }

    /// Its method.
    #[must_use]
    pub fn method(&self) -> &str {
        &self.method
    }

    /// How long it may go without progress; `None` switches the clock off. Default: the client's. The maximum stands beside
    /// it: a limit above that of [`max`](Self::max) is cut by it, 5 minutes unless stated otherwise.
    pub fn idle(mut self, limit: Option<Duration>) -> Self {
        self.idle = Some(limit);
        self
    }

    /// How long it may take in all. Default: the client's. `None` switches the clock off, against rule T2, which wants a
    /// maximum always: for a call that its owner ends by other means, since progress without end would then keep it.
    pub fn max(mut self, limit: Option<Duration>) -> Self {
        self.maximum = Some(limit);
        self
    }

    /// States that the operation only reads: it may be sent again after a loss.
    pub fn safe(mut self) -> Self {
        self.contract = Contract::Safe;
        self
    }

    /// Gives it an idempotency key, which travels in `_meta`: it may be sent again under the same key after a loss. Only
    /// for a server that honours it.
    pub fn key(mut self, key: Key) -> Self {
        self.contract = Contract::Conditional(key);
        self
    }

    /// Attempts at most, the first included. Default 3; more than one only as the contract allows.
    pub fn attempts(mut self, attempts: u16) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Asks for no progress. The idle clock is then not reset by any (rule T4).
    pub fn without_progress(mut self) -> Self {
        self.progress = false;
        self
    }

    /// Declares the extension for durable tasks with this request: the server may answer by a task (rule K1), which
    /// [`Caller::call_or_task`](super::Caller::call_or_task) reads.
    pub fn with_tasks(mut self) -> Self {
        self.tasks = true;
        self
    }

    /// Whether it declares that extension.
    pub(super) const fn declares_tasks(&self) -> bool {
        self.tasks
    }

    /// Progress values kept while nobody reads them; the newest stay. Default: the client's.
    pub fn progress_buffer(mut self, values: usize) -> Self {
        self.progress_buffer = Some(values);
        self
    }

    /// Whether it repeats a call that failed, and so counts as a retry.
    pub(super) fn repeats(mut self, repeats: bool) -> Self {
        self.repeats = repeats;
        self
    }

    /// The same request with other parameters.
    pub(super) fn with_params(&self, params: String) -> Self {
        Self { params: Ok(params), ..self.clone() }
    }

    /// Its parameters, if they could be written.
    pub(super) fn params(&self) -> Option<&str> {
        self.params.as_deref().ok()
    }

    /// What the machine needs to know.
    pub(super) fn options(&self, config: &ClientConfig) -> CallOptions {
        let limits = Limits {
            idle: self.idle.unwrap_or(config.limits.idle),
            maximum: self.maximum.unwrap_or(config.limits.maximum),
        };
        let attempts = self.attempts.unwrap_or_else(|| CallOptions::default().attempts);
        CallOptions { limits, contract: self.contract.clone(), attempts, repeats: self.repeats }
    }

    /// What is sent.
    pub(super) fn payload(&self, meta: &str, limit: usize) -> Result<Payload, CallError> {
        self.payload_in(meta, None, limit)
    }

    /// What is sent with this trace context, unless the caller's own `_meta` names one.
    pub(super) fn payload_in(
        &self,
        meta: &str,
        trace: Option<&TraceContext>,
        limit: usize,
    ) -> Result<Payload, CallError> {
        let params = self.params.as_ref().map_err(|why| CallError::Params(why.clone()))?;
        let payload = Payload::build(&self.method, params, meta, self.contract.key(), trace, self.progress)
            .map_err(CallError::Params)?;
        let size = payload.size();
        if size > limit { Err(CallError::RequestTooLong { size, limit }) } else { Ok(payload) }
    }
}

/// The members of `_meta` that every request of a client carries (rule M3).
pub(super) struct Meta {
    plain: String,
    /// With the extension for tasks among the capabilities.
    tasks: String,
}

impl Meta {
    /// Fails with what is wrong with the settings.
    pub(super) fn new(config: &ClientConfig) -> Result<Self, Box<str>> {
        let plain = meta(config, &config.capabilities)?;
        let with_tasks = with_extension(&config.capabilities, task::EXTENSION);
        let with_tasks = with_tasks.ok_or("ClientConfig::capabilities.extensions is no JSON object")?;
        Ok(Self { plain, tasks: meta(config, &with_tasks)? })
    }

    /// Those of this request.
    pub(super) fn of(&self, request: &Request) -> &str {
        if request.declares_tasks() { &self.tasks } else { &self.plain }
    }
}

/// Capabilities with one more extension; the same if they have it.
fn with_extension(capabilities: &str, name: &str) -> Option<String> {
    let object = |json: &str| serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(json).ok();
    let mut all = object(capabilities)?;
    let mut extensions = all.get("extensions").map_or_else(|| Some(BTreeMap::new()), |json| object(json.get()))?;
    let nothing = RawValue::from_string("{}".to_string()).ok()?;
    extensions.entry(name.to_string()).or_insert(nothing);
    all.insert("extensions".to_string(), serde_json::value::to_raw_value(&extensions).ok()?);
    serde_json::to_string(&all).ok()
}

fn meta(config: &ClientConfig, capabilities: &str) -> Result<String, Box<str>> {
    if !capabilities.starts_with('{') || members(capabilities, &[]).is_none() {
        return Err("ClientConfig::capabilities is no JSON object".into());
    }
    let mut out =
        format!("\"{VERSION}\":\"{PROTOCOL_VERSION}\",\"{CAPABILITIES}\":{capabilities},\"{INFO}\":{{\"name\":")
            .into_bytes();
    encode::string(&mut out, &config.info.0);
    out.extend_from_slice(b",\"version\":");
    encode::string(&mut out, &config.info.1);
    out.push(b'}');
    Ok(String::from_utf8(out).unwrap_or_default())
}

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const INFO: &str = "io.modelcontextprotocol/clientInfo";
const TOKEN: &str = "progressToken";

/// The text of a request around its id and its progress token.
#[derive(Debug)]
pub(super) struct Payload {
    method: Box<str>,
    /// Up to the end of the members of `_meta`.
    head: String,
    /// From the end of `_meta` on.
    tail: String,
    progress: bool,
}

impl Payload {
    fn build(
        method: &str,
        params: &str,
        meta: &str,
        key: Option<&Key>,
        trace: Option<&TraceContext>,
        progress: bool,
    ) -> Result<Self, Box<str>> {
        let mut head = format!("{{\"_meta\":{{{meta}").into_bytes();
        if let Some(key) = key {
            head.push(b',');
            encode::string(&mut head, META_NAME);
            head.push(b':');
            encode::string(&mut head, key.as_str());
        }
        let mut tail = String::from("}");
        let (mut metas, mut reserved, mut trace) = (0, None, trace);
        let taken = |name: &str| [VERSION, CAPABILITIES, INFO, TOKEN].into_iter().find(|taken| *taken == name);
        let mut scanner = Scanner::new(params, MAX_NESTING - 1);
        let read = scanner.object(|name, scanner| {
            if name.is("_meta") && scanner.peek() == Some(b'{') {
                metas += 1;
                return scanner.object(|name, scanner| {
                    let value = scanner.value()?;
                    let text = name.text();
                    let ours = text.as_deref().and_then(taken);
                    trace = trace.filter(|_| !text.as_deref().is_some_and(|name| [PARENT, STATE].contains(&name)));
                    reserved = reserved
                        .or(ours)
                        .or_else(|| (key.is_some() && text.as_deref() == Some(META_NAME)).then_some(META_NAME));
                    head.extend_from_slice(format!(",{}:{value}", name.quoted()).as_bytes());
                    Ok(())
                });
            }
            metas += usize::from(name.is("_meta"));
            let value = scanner.value()?;
            if !name.is("_meta") {
                tail.push(',');
                tail.push_str(name.quoted());
                tail.push(':');
                tail.push_str(value);
            }
            Ok(())
        });
        if read.and_then(|()| scanner.end()).is_err() {
            return Err("they must be a JSON object, nested at most 127 levels deep".into());
        }
        if metas > 1 {
            return Err("_meta stands twice".into());
        }
        if let Some(name) = reserved {
            return Err(format!("_meta.{name} is written by the client itself").into());
        }
        for (name, value) in trace.into_iter().flat_map(TraceContext::members) {
            head.extend_from_slice(format!(",\"{name}\":").as_bytes());
            encode::string(&mut head, value);
        }
        tail.push('}');
        let head = String::from_utf8(head).map_err(|error| error.to_string())?;
        Ok(Self { method: method.into(), head, tail, progress })
    }

    /// Its text at most, in bytes: ids and tokens are counted with as many digits as they can have.
    pub(super) fn size(&self) -> usize {
        const AROUND: usize = r#"{"jsonrpc":"2.0","id":,"method":"","params":,"progressToken":}"#.len() + 2 * 20;
        AROUND + self.method.len() + self.head.len() + self.tail.len()
    }

    /// Appends the request under an id that is no attempt's, and without a progress token.
    pub(super) fn encode_as(&self, out: &mut Vec<u8>, id: &RequestId) {
        encode::request(out, id, &self.method, &format!("{}{}", self.head, self.tail));
    }

    /// Appends the request under this id, which is its progress token too.
    pub(super) fn encode(&self, out: &mut Vec<u8>, scratch: &mut String, wire: WireId) {
        use core::fmt::Write as _;
        scratch.clear();
        scratch.push_str(&self.head);
        if self.progress {
            let _a_string_takes_all = write!(scratch, ",\"{TOKEN}\":{}", wire.number());
        }
        scratch.push_str(&self.tail);
        encode::request(out, &id(wire), &self.method, scratch);
    }
}

/// The request for a subscription. One that names tasks declares the extension (rule K5).
pub(super) fn listen(filter: &Filter) -> Request {
    let request = Request::raw(method::LISTEN, format!("{{\"notifications\":{}}}", filter.as_str())).without_progress();
    let names_tasks = filter.refetch().iter().any(|refetch| matches!(refetch, Refetch::Task { .. }));
    if names_tasks { request.with_tasks() } else { request }
}

/// The id as it goes over the wire. 2^63 attempts are beyond any process.
pub(super) fn id(wire: WireId) -> RequestId {
    RequestId::Integer(i64::try_from(wire.number()).unwrap_or(i64::MAX))
}
