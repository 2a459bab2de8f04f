//! The resources that a server offers: by URI or by template, read by a handler, listed as they are or by a handler.

mod template;

use alloc::borrow::{Cow, ToOwned};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::Future;

use serde::Serialize;

use super::context::Context;
use super::service::{Answer, Call, Outcome};
use crate::mrtr::base64;
use crate::rpc::{RpcError, encode, members, text};
use template::Template;

/// A resource, or a template of some, as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    #[serde(skip)]
    uri: Box<str>,
    name: Box<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<Box<str>>,
}

impl Resource {
    /// A resource with this URI and name. The URI may be a template (RFC 6570) with variables `{name}`, which hold no `/`, not
    /// even an encoded one, and `{+name}`, which may: where a value of those becomes a part of a path, check it for `..`.
    #[must_use]
    pub fn new(uri: &str, name: &str) -> Self {
        Self { uri: uri.into(), name: name.into(), title: None, description: None, mime_type: None }
    }

    /// A name for people.
    #[must_use]
    pub fn title(self, title: &str) -> Self {
        Self { title: Some(title.into()), ..self }
    }

    /// What it is, for models.
    #[must_use]
    pub fn description(self, description: &str) -> Self {
        Self { description: Some(description.into()), ..self }
    }

    /// The type of its content.
    #[must_use]
    pub fn mime_type(self, mime_type: &str) -> Self {
        Self { mime_type: Some(mime_type.into()), ..self }
    }
}

/// One reading of a resource.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ResourceRead {
    /// The whole request.
    pub call: Call,
    /// The URI that is read.
    pub uri: Box<str>,
    variables: Vec<(Box<str>, Box<str>)>,
}

impl ResourceRead {
    /// What stands in the URI for this variable of the template, decoded; empty if the template has none of this name.
    #[must_use]
    pub fn variable(&self, name: &str) -> &str {
        self.variables.iter().find(|(known, _)| &**known == name).map_or("", |(_, value)| value)
    }
}

/// What a resource holds, and how long a client may keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The members `text` or `blob`, and `mimeType`.
    body: String,
    ttl_ms: u64,
    public: bool,
}

impl Contents {
    /// A text.
    #[must_use]
    pub fn text(mime_type: &str, text: &str) -> Self {
        Self::new(mime_type, "text", text)
    }

    /// A value as JSON.
    ///
    /// # Errors
    /// -32603 if it cannot be written as JSON.
    pub fn json(value: &impl Serialize) -> Result<Self, RpcError> {
        let json = serde_json::to_string(value)
            .map_err(|error| RpcError::internal(format!("the content is no JSON: {error}")))?;
        Ok(Self::text("application/json", &json))
    }

    /// Bytes.
    #[must_use]
    pub fn blob(mime_type: &str, bytes: &[u8]) -> Self {
        Self::new(mime_type, "blob", &base64::standard(bytes))
    }

    fn new(mime_type: &str, member: &str, value: &str) -> Self {
        let mut body = Vec::with_capacity(value.len() + 64);
        body.extend_from_slice(b"\"mimeType\":");
        encode::string(&mut body, mime_type);
        body.push(b',');
        encode::string(&mut body, member);
        body.push(b':');
        encode::string(&mut body, value);
        Self { body: String::from_utf8(body).unwrap_or_default(), ttl_ms: 0, public: false }
    }

    /// How long a client may keep it, in milliseconds. Default 0: it is read each time.
    #[must_use]
    pub fn ttl_ms(self, ttl_ms: u64) -> Self {
        Self { ttl_ms, ..self }
    }

    /// It is the same for every caller, so that caches may share it. Default: it is for this caller alone.
    #[must_use]
    pub fn public(self) -> Self {
        Self { public: true, ..self }
    }
}

/// One page of a list of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a handler makes one")]
pub struct ResourcePage {
    /// The resources.
    pub resources: Vec<Resource>,
    /// What the client sends for the next page, if there is one.
    pub next_cursor: Option<Box<str>>,
}

/// What a handler answers: `None`, there is no such resource (-32602 with its URI).
type Read = Result<Option<Contents>, RpcError>;
/// Reads; the text is the `_meta` of the result.
type Reader = Box<dyn Fn(ResourceRead, Context, Arc<str>) -> Answer + Send + Sync>;
/// Lists from a cursor on.
type Lister = Arc<dyn Fn(Option<String>, Context) -> Result<ResourcePage, RpcError> + Send + Sync>;

/// The resources of a server, for [`Tools::resources`](super::Tools::resources).
///
/// ```
/// use steady_core::kernel::{Contents, Resource, Resources, Tools};
///
/// let resources = Resources::new()
///     .resource(Resource::new("greeting://{name}", "greeting").mime_type("text/plain"), |read, _cx| async move {
///         Ok(Some(Contents::text("text/plain", &format!("Hello, {}!", read.variable("name")))))
///     });
/// let server = Tools::new("greeter", "1.0.0").resources(resources);
/// # drop(server);
/// ```
#[derive(Default)]
pub struct Resources {
    entries: Vec<Entry>,
    lister: Option<Lister>,
}

struct Entry {
    resource: Resource,
    template: Template,
    reader: Reader,
}

impl Resources {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource, or a template, whose handler is asynchronous. Where a URI fits several, the first is read.
    ///
    /// # Panics
    /// At start-up, if the template is not understood.
    #[must_use]
    pub fn resource<F, R>(self, resource: Resource, handler: F) -> Self
    where
        F: Fn(ResourceRead, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Read> + Send + 'static,
    {
        self.add(resource, move |read, cx, meta| {
            let uri = read.uri.clone();
            let contents = handler(read, cx);
            Answer::later(async move { write(&uri, contents.await, &meta) })
        })
    }

    /// Adds a resource, or a template, whose handler blocks its thread (a database, a file).
    ///
    /// # Panics
    /// Like [`resource`](Self::resource).
    #[must_use]
    pub fn blocking_resource<F>(self, resource: Resource, handler: F) -> Self
    where
        F: Fn(ResourceRead, Context) -> Read + Send + Sync + 'static,
    {
        let handler = Arc::new(handler);
        self.add(resource, move |read, cx, meta| {
            let handler = Arc::clone(&handler);
            Answer::blocking(move || {
                let uri = read.uri.clone();
                write(&uri, handler(read, cx), &meta)
            })
        })
    }

    /// Lists resources that come and go, in place of those that were added without variables. The handler may block its
    /// thread; it gets the cursor of the page that is asked for.
    #[must_use]
    pub fn listed_by<F>(self, handler: F) -> Self
    where
        F: Fn(Option<String>, Context) -> Result<ResourcePage, RpcError> + Send + Sync + 'static,
    {
        Self { lister: Some(Arc::new(handler)), ..self }
    }

    fn add(
        mut self,
        resource: Resource,
        reader: impl Fn(ResourceRead, Context, Arc<str>) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let template = match Template::parse(&resource.uri) {
            Ok(template) => template,
            Err(why) => panic!("the URI template {:?} of resource {:?}: {why}", resource.uri, resource.name),
        };
        self.entries.push(Entry { resource, template, reader: Box::new(reader) });
        self
    }

    /// Answers `resources/list`.
    pub(super) fn list(&self, call: &Call, cx: Context, meta: &Arc<str>, ttl_ms: u64) -> Answer {
        let Some(lister) = self.lister.clone() else {
            let plain = self.entries.iter().filter(|entry| entry.template.is_plain()).map(|entry| &entry.resource);
            return Answer::Ready(listed("resources", "uri", plain, None, (ttl_ms, "public"), meta));
        };
        let cursor = members(&call.params, &["cursor"]).and_then(|[cursor]| cursor).filter(|cursor| *cursor != "null");
        let cursor = match cursor.map(text) {
            None => None,
            Some(Some(cursor)) => Some(cursor.into_owned()),
            Some(None) => return Answer::Ready(Err(RpcError::invalid_params("params.cursor must be a string"))),
        };
        let meta = Arc::clone(meta);
        Answer::blocking(move || {
            let page = lister(cursor, cx)?;
            // It may differ from caller to caller, and from one moment to the next.
            listed("resources", "uri", page.resources.iter(), page.next_cursor.as_deref(), (0, "private"), &meta)
        })
    }

    /// Answers `resources/templates/list`.
    pub(super) fn templates(&self, meta: &str, ttl_ms: u64) -> Outcome {
        let templates = self.entries.iter().filter(|entry| !entry.template.is_plain()).map(|entry| &entry.resource);
        listed("resourceTemplates", "uriTemplate", templates, None, (ttl_ms, "public"), meta)
    }

    /// Answers `resources/read`.
    pub(super) fn read(&self, call: Call, cx: Context, meta: &Arc<str>) -> Answer {
        let uri = members(&call.params, &["uri"]).and_then(|[uri]| uri).and_then(text).map(Cow::into_owned);
        let Some(uri) = uri else {
            return Answer::Ready(Err(RpcError::invalid_params("params.uri must be a string, the URI of a resource")));
        };
        for Entry { template, reader, .. } in &self.entries {
            let Some(values) = template.values(&uri) else { continue };
            let variables = template.names().map(Box::from).zip(values.into_iter().map(Box::from)).collect();
            return reader(ResourceRead { call, uri: uri.into(), variables }, cx, Arc::clone(meta));
        }
        Answer::Ready(Err(unknown(&uri)))
    }
}

fn unknown(uri: &str) -> RpcError {
    let mut data = b"{\"uri\":".to_vec();
    encode::string(&mut data, uri);
    data.push(b'}');
    let data = String::from_utf8(data).unwrap_or_default();
    RpcError::invalid_params("there is no such resource; see resources/list and resources/templates/list")
        .with_data(&data)
}

fn write(uri: &str, read: Read, meta: &str) -> Outcome {
    let Contents { body, ttl_ms, public } = read?.ok_or_else(|| unknown(uri))?;
    let mut out = Vec::with_capacity(body.len() + uri.len() + meta.len() + 160);
    out.extend_from_slice(b"{\"resultType\":\"complete\",\"contents\":[{\"uri\":");
    encode::string(&mut out, uri);
    out.push(b',');
    out.extend_from_slice(body.as_bytes());
    out.extend_from_slice(b"}]");
    finish(out, ttl_ms, if public { "public" } else { "private" }, meta)
}

fn listed<'a>(
    member: &str,
    uri_member: &str,
    resources: impl Iterator<Item = &'a Resource>,
    next_cursor: Option<&str>,
    (ttl_ms, scope): (u64, &str),
    meta: &str,
) -> Outcome {
    let mut out = format!("{{\"resultType\":\"complete\",\"{member}\":[").into_bytes();
    for (nth, resource) in resources.enumerate() {
        if nth > 0 {
            out.push(b',');
        }
        let rest = serde_json::to_string(resource).map_err(|error| RpcError::internal(format!("{error}")))?;
        out.extend_from_slice(format!("{{\"{uri_member}\":").as_bytes());
        encode::string(&mut out, &resource.uri);
        out.push(b',');
        // The name stands in each, so something follows the brace.
        out.extend_from_slice(&rest.as_bytes()[1..]);
    }
    out.push(b']');
    if let Some(cursor) = next_cursor {
        out.extend_from_slice(b",\"nextCursor\":");
        encode::string(&mut out, cursor);
    }
    finish(out, ttl_ms, scope, meta)
}

/// How long it may be kept, by whom, and who says so (rules M4 and M8).
fn finish(mut out: Vec<u8>, ttl_ms: u64, scope: &str, meta: &str) -> Outcome {
    let end = format!(",\"ttlMs\":{ttl_ms},\"cacheScope\":\"{scope}\",\"_meta\":{meta}}}");
    out.extend_from_slice(end.as_bytes());
    String::from_utf8(out).map_err(|error| RpcError::internal(format!("{error}")))
}

impl core::fmt::Debug for Resources {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| (*entry.resource.uri).to_owned())).finish()
    }
}
