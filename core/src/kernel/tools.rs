//! A small tool table: name, description, JSON schema, handler. It answers `server/discover`, `tools/list`, `tools/call`.

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::context::Context;
use super::hub::{Hub, Kinds};
use super::resources::Resources;
use super::service::{Answer, Call, Outcome, Service, key_text, read_json};
use super::tasks::{self, TaskServer, TaskTool};
use crate::idempotency::Key;
use crate::rpc::{PROTOCOL_VERSION, RpcError, encode, method, scan};

/// What a tool answers: content for a model, and data for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    content: String,
    structured: Option<String>,
    is_error: bool,
}

impl Reply {
    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { content: text_content(text), structured: None, is_error: false }
    }

    /// A failure that the model should see and can act on. It is a result, not a protocol error.
    #[must_use]
    pub fn error(text: &str) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// Data, as `structuredContent` and as text.
    ///
    /// # Errors
    /// -32603 if the value cannot be written as JSON.
    pub fn data(value: &impl Serialize) -> Result<Self, RpcError> {
        let json = serde_json::to_string(value)
            .map_err(|error| RpcError::internal(format!("the result is no JSON: {error}")))?;
        Ok(Self { content: text_content(&json), structured: Some(json), is_error: false })
    }

    /// The result of the tool as JSON text, without anything about a server: what a task is completed with.
    #[must_use]
    pub fn result(&self) -> String {
        write(self, None)
    }
}

fn text_content(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 32);
    out.extend_from_slice(b"[{\"type\":\"text\",\"text\":");
    encode::string(&mut out, text);
    out.extend_from_slice(b"}]");
    String::from_utf8(out).unwrap_or_default()
}

/// One call of a tool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ToolCall {
    /// The whole request.
    pub call: Call,
    arguments: Box<str>,
}

impl ToolCall {
    /// Reads a `tools/call`: the name of the tool, and its call. For services of one's own; [`Tools`] does it by itself.
    ///
    /// # Errors
    /// -32602 with what is wrong.
    pub fn read(call: Call) -> Result<(Box<str>, Self), RpcError> {
        let (name, arguments) = name_and_arguments(&call)?;
        let (name, arguments) = (name.into(), arguments.into());
        Ok((name, Self { call, arguments }))
    }

    /// The arguments, a JSON object as it came; `{}` if there were none.
    #[must_use]
    pub fn raw_arguments(&self) -> &str {
        &self.arguments
    }

    /// Reads the arguments as a value of the caller's type.
    ///
    /// # Errors
    /// -32602 with the place that does not fit.
    pub fn arguments<T: DeserializeOwned>(&self) -> Result<T, RpcError> {
        read_json(&self.arguments, "arguments")
    }

    /// The idempotency key of this call: as [`Call::idempotency_key`], and from the argument of this name too, if the tool
    /// has one for it.
    ///
    /// # Errors
    /// -32602 if a key is malformed, or two places carry different ones.
    pub fn idempotency_key(&self, argument: Option<&str>) -> Result<Option<Key>, RpcError> {
        let Some(name) = argument else { return self.call.idempotency_key(None) };
        let twice = || RpcError::invalid_params(format!("arguments must not name {name} twice"));
        let [found] = scan::members(&self.arguments, &[name]).ok_or_else(twice)?;
        self.call.idempotency_key(key_text(found)?.as_deref())
    }
}

/// The name and the arguments of a `tools/call`.
fn name_and_arguments(call: &Call) -> Result<(Cow<'_, str>, &str), RpcError> {
    let invalid = |what: &str| Err(RpcError::invalid_params(what));
    let Some([name, arguments]) = call.members() else {
        return invalid("params must not name a member twice");
    };
    let Some(name) = name.and_then(scan::text) else {
        return invalid("params.name must be a string, the name of a tool");
    };
    let arguments = arguments.filter(|json| *json != "null").unwrap_or("{}");
    if !arguments.starts_with('{') {
        return invalid("arguments must be an object");
    }
    Ok((name, arguments))
}

/// Answers a call; the text is the `_meta` of its result.
type Handler = Box<dyn Fn(ToolCall, Context, Arc<str>) -> Answer + Send + Sync>;

/// A server that offers tools.
///
/// ```
/// use steady_core::kernel::{Reply, Tools};
///
/// let schema = r#"{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}"#;
/// let tools = Tools::new("parrot", "1.0.0").tool("echo", "Says it again.", schema, |call, _cx| async move {
///     #[derive(serde::Deserialize)]
///     struct Echo {
///         text: String,
///     }
///     Ok(Reply::text(&call.arguments::<Echo>()?.text))
/// });
/// assert_eq!(tools.names().collect::<Vec<_>>(), ["echo"]);
/// ```
pub struct Tools {
    /// `_meta` of every result, with the server's name (rule M8).
    meta: Arc<str>,
    instructions: Option<String>,
    listed: Vec<Listed>,
    handlers: BTreeMap<Box<str>, Handler>,
    resources: Option<Resources>,
    hub: Option<Hub>,
    tasks: Option<TaskServer>,
}

/// How long a client may keep the answers to `server/discover` and `tools/list`, in milliseconds: the table never changes
/// while the process lives.
const TTL_MS: u64 = 300_000;

#[derive(Serialize)]
struct Listed {
    name: Box<str>,
    description: Box<str>,
    #[serde(rename = "inputSchema")]
    schema: Box<RawValue>,
}

impl Tools {
    /// A server with this name and version, without tools.
    #[must_use]
    pub fn new(name: &str, version: &str) -> Self {
        Self {
            meta: server_meta(name, version),
            instructions: None,
            listed: Vec::new(),
            handlers: BTreeMap::new(),
            resources: None,
            hub: None,
            tasks: None,
        }
    }

    /// A text for models: what the server is for and how its tools belong together.
    #[must_use]
    pub fn instructions(mut self, text: &str) -> Self {
        self.instructions = Some(text.to_owned());
        self
    }

    /// Offers these resources: `resources/list`, `resources/templates/list`, `resources/read`.
    #[must_use]
    pub fn resources(self, resources: Resources) -> Self {
        Self { resources: Some(resources), ..self }
    }

    /// Serves `subscriptions/listen` from this hub, and says so in its capabilities. Without a hub there is no such method.
    /// What the hub offers and this server does not have is left out of acknowledgements.
    #[must_use]
    pub fn subscriptions(self, hub: &Hub) -> Self {
        Self { hub: Some(hub.clone()), ..self }
    }

    /// The changes that a client can hear of.
    fn kinds(&self) -> Kinds {
        let own = if self.resources.is_some() { Kinds::RESOURCES | Kinds::UPDATES } else { Kinds::NONE };
        let own = if self.tasks.is_some() { own | Kinds::TASKS } else { own };
        let offered = self.hub.as_ref().map_or(Kinds::NONE, Hub::offers);
        offered & (own | Kinds::TOOLS)
    }

    /// Adds a tool whose handler is asynchronous. `schema` is the JSON schema of its arguments, an object.
    ///
    /// # Panics
    /// At start-up, if the schema is no JSON object of `"type": "object"` or the name is taken.
    #[must_use]
    pub fn tool<F, R>(self, name: &str, description: &str, schema: &str, handler: F) -> Self
    where
        F: Fn(ToolCall, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, RpcError>> + Send + 'static,
    {
        let handler: Handler = Box::new(move |call, cx, meta| {
            let reply = handler(call, cx);
            Answer::later(async move { reply.await.map(|reply| write(&reply, Some(&meta))) })
        });
        self.add(name, description, schema, handler)
    }

    /// Adds a tool whose handler blocks its thread (a database, a file): it runs away from the connection.
    ///
    /// # Panics
    /// Like [`tool`](Self::tool).
    #[must_use]
    pub fn blocking_tool<F>(self, name: &str, description: &str, schema: &str, handler: F) -> Self
    where
        F: Fn(ToolCall, Context) -> Result<Reply, RpcError> + Send + Sync + 'static,
    {
        let handler = Arc::new(handler);
        let handler: Handler = Box::new(move |call, cx, meta| {
            let handler = Arc::clone(&handler);
            Answer::blocking(move || handler(call, cx).map(|reply| write(&reply, Some(&meta))))
        });
        self.add(name, description, schema, handler)
    }

    /// Serves tasks of this store: `tasks/get`, `tasks/update`, `tasks/cancel`, and the extension in `server/discover`.
    #[must_use]
    pub fn tasks(mut self, tasks: &TaskServer) -> Self {
        self.tasks = Some(tasks.with_meta(Arc::clone(&self.meta)));
        self
    }

    /// Adds a tool whose calls become tasks, and which a client without the extension cannot call (rule K5). A
    /// [`Worker`](tasks::Worker) does the work, in this process or another one.
    ///
    /// # Panics
    /// Like [`tool`](Self::tool), and if [`tasks`](Self::tasks) was not called before.
    #[must_use]
    pub fn task_tool(self, name: &str, description: &str, schema: &str, task: TaskTool) -> Self {
        let refuse = |_: ToolCall, _: Context| core::future::ready(Err(tasks::undeclared()));
        self.task_or_inline_tool(name, description, schema, task, refuse)
    }

    /// Adds a tool whose calls become tasks where the client declared the extension on the call, and are answered by
    /// `inline` where it did not (rule K1).
    ///
    /// # Panics
    /// Like [`task_tool`](Self::task_tool).
    #[must_use]
    pub fn task_or_inline_tool<F, R>(
        self,
        name: &str,
        description: &str,
        schema: &str,
        task: TaskTool,
        inline: F,
    ) -> Self
    where
        F: Fn(ToolCall, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, RpcError>> + Send + 'static,
    {
        let Some(server) = self.tasks.clone() else { panic!("the tool {name:?} makes tasks: call `tasks` before") };
        let operation: Box<str> = name.into();
        let handler: Handler = Box::new(move |call, cx, meta| {
            if tasks::declares_tasks(&call.call.params) {
                return server.create(&operation, &task, &call, &cx);
            }
            let reply = inline(call, cx);
            Answer::later(async move { reply.await.map(|reply| write(&reply, Some(&meta))) })
        });
        self.add(name, description, schema, handler)
    }

    /// The names of the tools, in the order they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.listed.iter().map(|tool| &*tool.name)
    }

    fn add(mut self, name: &str, description: &str, schema: &str, handler: Handler) -> Self {
        #[derive(Deserialize)]
        struct Schema<'a> {
            r#type: &'a str,
        }
        let object = serde_json::from_str::<Schema<'_>>(schema).is_ok_and(|schema| schema.r#type == "object");
        assert!(object, "the schema of tool {name:?} must be a JSON object with \"type\": \"object\"");
        let schema = RawValue::from_string(schema.to_owned());
        let Ok(schema) = schema else { unreachable!("read as JSON above") };
        let taken = self.handlers.insert(name.into(), handler).is_some();
        assert!(!taken, "there are two tools with the name {name:?}");
        self.listed.push(Listed { name: name.into(), description: description.into(), schema });
        self
    }

    fn discover(&self) -> Outcome {
        let kinds = self.kinds();
        let tools = if kinds.contains(Kinds::TOOLS) { "\"listChanged\":true" } else { "" };
        let resources = match (kinds.contains(Kinds::RESOURCES), kinds.contains(Kinds::UPDATES)) {
            _ if self.resources.is_none() => "",
            (true, true) => ",\"resources\":{\"subscribe\":true,\"listChanged\":true}",
            (true, false) => ",\"resources\":{\"listChanged\":true}",
            (false, true) => ",\"resources\":{\"subscribe\":true}",
            (false, false) => ",\"resources\":{}",
        };
        let extensions = self
            .tasks
            .as_ref()
            .map_or_else(String::new, |_| format!(",\"extensions\":{{\"{}\":{{}}}}", crate::task::EXTENSION));
        let mut out = format!(
            "{{\"resultType\":\"complete\",\"supportedVersions\":[\"{PROTOCOL_VERSION}\"],\"capabilities\":{{\"tools\":{{{tools}}}{resources}{extensions}}},"
        )
        .into_bytes();
        if let Some(text) = &self.instructions {
            out.extend_from_slice(b"\"instructions\":");
            encode::string(&mut out, text);
            out.push(b',');
        }
        self.cacheable(out)
    }

    fn list(&self) -> Outcome {
        let tools = serde_json::to_string(&self.listed).map_err(|error| RpcError::internal(format!("{error}")))?;
        self.cacheable(format!("{{\"resultType\":\"complete\",\"tools\":{tools},").into_bytes())
    }

    fn cacheable(&self, mut out: Vec<u8>) -> Outcome {
        let end = format!("\"ttlMs\":{TTL_MS},\"cacheScope\":\"public\",\"_meta\":{}}}", self.meta);
        out.extend_from_slice(end.as_bytes());
        String::from_utf8(out).map_err(|error| RpcError::internal(format!("{error}")))
    }

    /// The methods of what was attached.
    fn other(&self, call: Call, cx: Context) -> Answer {
        match (&*call.method, &self.resources, &self.hub) {
            (method::LISTEN, _, Some(hub)) => hub.listen_within(self.kinds(), &call, &cx),
            (method::RESOURCES_READ, Some(resources), _) => resources.read(call, cx, &self.meta),
            (method::RESOURCES_LIST, Some(resources), _) => resources.list(&call, cx, &self.meta, TTL_MS),
            (method::RESOURCE_TEMPLATES_LIST, Some(resources), _) => {
                Answer::Ready(resources.templates(&self.meta, TTL_MS))
            }
            (other, ..) => {
                let not_found = || Answer::Ready(Err(RpcError::method_not_found(other)));
                self.tasks.as_ref().and_then(|tasks| tasks.answer(&call, &cx)).unwrap_or_else(not_found)
            }
        }
    }

    fn call_tool(&self, call: Call, cx: Context) -> Result<Answer, RpcError> {
        let (name, arguments) = name_and_arguments(&call)?;
        let Some(handler) = self.handlers.get(name.as_ref()) else {
            return Err(RpcError::invalid_params(format!("there is no tool {name:?}; see tools/list")));
        };
        let arguments = arguments.into();
        Ok(handler(ToolCall { call, arguments }, cx, Arc::clone(&self.meta)))
    }
}

/// `_meta` of every result of a server with this name and version (rule M8).
pub(super) fn server_meta(name: &str, version: &str) -> Arc<str> {
    let mut meta = b"{\"io.modelcontextprotocol/serverInfo\":{\"name\":".to_vec();
    encode::string(&mut meta, name);
    meta.extend_from_slice(b",\"version\":");
    encode::string(&mut meta, version);
    meta.extend_from_slice(b"}}");
    String::from_utf8(meta).unwrap_or_default().into()
}

fn write(reply: &Reply, meta: Option<&str>) -> String {
    /// More than the names and braces take.
    const AROUND: usize = 96;
    let Reply { content, structured, is_error } = reply;
    let structured = structured.as_deref();
    let length = [Some(&**content), structured, meta].into_iter().flatten().map(str::len).sum::<usize>();
    let mut out = String::with_capacity(AROUND + length);
    out.push_str("{\"resultType\":\"complete\",\"content\":");
    out.push_str(content);
    if let Some(json) = structured {
        out.push_str(",\"structuredContent\":");
        out.push_str(json);
    }
    if *is_error {
        out.push_str(",\"isError\":true");
    }
    if let Some(json) = meta {
        out.push_str(",\"_meta\":");
        out.push_str(json);
    }
    out.push('}');
    out
}

impl Service for Tools {
    fn call(&self, call: Call, cx: Context) -> Answer {
        match &*call.method {
            method::DISCOVER => Answer::Ready(self.discover()),
            method::TOOLS_LIST => Answer::Ready(self.list()),
            method::TOOLS_CALL => self.call_tool(call, cx).unwrap_or_else(|error| Answer::Ready(Err(error))),
            _ => self.other(call, cx),
        }
    }

    fn input_schema(&self, tool: &str) -> Option<&str> {
        self.listed.iter().find(|listed| &*listed.name == tool).map(|listed| listed.schema.get())
    }
}

impl core::fmt::Debug for Tools {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}
