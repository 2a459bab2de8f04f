//! One request: its headers, its POST, what is tried once more, and its end.
//!
//! What the server says it did not take is sent again here, under the same id, which is free after an answer (rule M2):
//! after a 401 with fresh headers, after -32020 with a fresh schema, after -32022 that names the revision spoken here.
//! Each once; the call's clocks run on.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, PROXY_AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use hyper::body::Incoming;
use steady_core::id::RequestId;
use steady_core::kernel::Unanswered;
use steady_core::rpc::{self, Body, Message, PROTOCOL_VERSION, code, encode, members, method, text};
use tokio::sync::mpsc;

use super::answer::{Read, Reader};
use super::config::Rejected;
use super::endpoint::Endpoint;
use super::link::{Item, What};
use super::pool::{Connection, Full, SendError};
use crate::headers;

/// Pages of `tools/list` that are read to refresh a schema.
const PAGES: usize = 100;

/// One request on its way.
pub(super) struct Exchange {
    endpoint: Arc<Endpoint>,
    id: RequestId,
    method: Box<str>,
    name: Option<Box<str>>,
    text: Bytes,
}

/// What was tried once more.
#[derive(Default)]
struct Tried {
    authorized: bool,
    refreshed: bool,
    renegotiated: bool,
}

/// The end of a request, and what is left of its stream.
struct Ended {
    end: Result<String, Unanswered>,
    rest: Option<(Connection, Incoming)>,
}

impl Ended {
    fn without(end: Unanswered) -> Self {
        Self { end: Err(end), rest: None }
    }
}

impl Exchange {
    /// Of the text of a request; `None` if it is none.
    pub(super) fn new(endpoint: Arc<Endpoint>, text: Bytes) -> Option<Self> {
        let Ok(Message::Request { id, method, params }) = rpc::parse(core::str::from_utf8(&text).ok()?) else {
            return None;
        };
        let method: Box<str> = method.into();
        let name = headers::name_param(&method).and_then(|member| {
            let [name] = members(params?.get(), &[member])?;
            rpc::text(name?).map(Into::into)
        });
        Some(Self { endpoint, id, method, name, text })
    }

    pub(super) const fn id(&self) -> &RequestId {
        &self.id
    }

    /// Carries it to its end. Dropping this closes its response stream.
    pub(super) async fn run(self, sink: mpsc::Sender<Item>) {
        let Ended { end, rest } = self.answered(Some(&sink)).await;
        let item = Item { id: self.id, what: What::End(end) };
        // Without its link nobody waits for it.
        if sink.send(item).await.is_ok()
            && let Some((connection, body)) = rest
        {
            self.endpoint.pool.drain(connection, body).await;
        }
    }

    async fn answered(&self, sink: Option<&mpsc::Sender<Item>>) -> Ended {
        let (mut tried, mut rejected) = (Tried::default(), None);
        loop {
            let request = match self.request(rejected.take()).await {
                Ok(request) => request,
                Err(why) => return Ended::without(Unanswered::Refused(why)),
            };
            let (response, connection) = match self.endpoint.pool.send(request).await {
                Ok(sent) => sent,
                Err(SendError::NotSent(why)) => return Ended::without(Unanswered::NotSent(why)),
                Err(SendError::Lost(why)) => return Ended::without(Unanswered::Lost(why)),
            };
            if response.status() == StatusCode::UNAUTHORIZED
                && self.endpoint.config.authorize.is_some()
                && !std::mem::replace(&mut tried.authorized, true)
            {
                rejected = Some(Rejected { challenge: response.headers().get(WWW_AUTHENTICATE).cloned() });
                self.endpoint.pool.drain(connection, response.into_body()).await;
                continue;
            }
            let config = &self.endpoint.config;
            let silence = config.listen_silence.filter(|_| *self.method == *method::LISTEN);
            let reader = Reader {
                id: &self.id,
                method: &self.method,
                limit: config.max_answer,
                silence,
                clock: &config.clock,
                sink,
            };
            let Read { end, rest } = reader.read(response).await;
            let rest = rest.map(|body| (connection, body));
            let Ok(answer) = end else { return Ended { end, rest } };
            if self.is_to_be_sent_again(&answer, &mut tried).await {
                if let Some((connection, body)) = rest {
                    self.endpoint.pool.drain(connection, body).await;
                }
                continue;
            }
            return Ended { end: Ok(self.learned(answer)), rest };
        }
    }

    /// Whether the server did not take it, and the reason is gone now.
    async fn is_to_be_sent_again(&self, answer: &str, tried: &mut Tried) -> bool {
        let Ok(Message::Response { body: Body::Error(error), .. }) = rpc::parse(answer) else { return false };
        let Some([Some(number), data]) = members(error.get(), &["code", "data"]) else { return false };
        match number.parse() {
            Ok(code::UNSUPPORTED_VERSION) => {
                data.is_some_and(names_our_revision) && !std::mem::replace(&mut tried.renegotiated, true)
            }
            Ok(code::HEADER_MISMATCH) if *self.method == *method::TOOLS_CALL => {
                !std::mem::replace(&mut tried.refreshed, true) && self.refresh().await
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// The answer, with what a list of tools says remembered, and without the tools that cannot be used.
    fn learned(&self, answer: String) -> String {
        if *self.method != *method::TOOLS_LIST {
            return answer;
        }
        let Ok(Message::Response { body: Body::Result(result), .. }) = rpc::parse(&answer) else { return answer };
        let Some(kept) = self.endpoint.schemas.learn(result.get(), &self.endpoint.config.warn) else { return answer };
        let mut text = Vec::new();
        encode::result(&mut text, &self.id, &kept);
        String::from_utf8(text).unwrap_or(answer)
    }

    /// Reads all tools afresh; whether that worked.
    async fn refresh(&self) -> bool {
        let Some(meta) = self.meta() else { return false };
        let mut cursor = String::new();
        for _ in 0..PAGES {
            let id = RequestId::from(&*format!("schema-{}", self.endpoint.own_number()));
            let mut text = Vec::new();
            encode::request(&mut text, &id, method::TOOLS_LIST, &format!("{{\"_meta\":{meta}{cursor}}}"));
            let Some(list) = Self::new(Arc::clone(&self.endpoint), text.into()) else { return false };
            let Ended { end, rest } = Box::pin(list.answered(None)).await;
            if let Some((connection, body)) = rest {
                self.endpoint.pool.drain(connection, body).await;
            }
            let Ok(answer) = end else { return false };
            let Ok(Message::Response { body: Body::Result(result), .. }) = rpc::parse(&answer) else { return false };
            match members(result.get(), &["nextCursor"]) {
                Some([Some(next)]) if next != "null" => cursor = format!(",\"cursor\":{next}"),
                Some(_) => return true,
                None => return false,
            }
        }
        false
    }

    /// What every request of this client carries, from this one.
    fn meta(&self) -> Option<String> {
        const NAMES: [&str; 3] = [
            "io.modelcontextprotocol/protocolVersion",
            "io.modelcontextprotocol/clientCapabilities",
            "io.modelcontextprotocol/clientInfo",
        ];
        let [meta] = members(self.params()?, &["_meta"])?;
        let found = members(meta?, &NAMES)?;
        let all = NAMES.iter().zip(found).filter_map(|(name, value)| Some(format!("\"{name}\":{}", value?)));
        Some(format!("{{{}}}", all.collect::<Vec<_>>().join(",")))
    }

    fn params(&self) -> Option<&str> {
        match rpc::parse(core::str::from_utf8(&self.text).ok()?) {
            Ok(Message::Request { params, .. }) => params.map(serde_json::value::RawValue::get),
            Ok(_) | Err(_) => None,
        }
    }

    async fn request(&self, rejected: Option<Rejected>) -> Result<http::Request<Full>, Box<str>> {
        let mut lines = HeaderMap::new();
        if let Some(authorize) = &self.endpoint.config.authorize {
            lines.extend(authorize.headers(rejected).await?);
        }
        self.protocol_headers(&mut lines)?;
        let mut request = http::Request::new(Full(Some(self.text.clone())));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.endpoint.uri.clone();
        *request.headers_mut() = lines;
        Ok(request)
    }

    /// The headers of rules H2 and H3.
    fn protocol_headers(&self, lines: &mut HeaderMap) -> Result<(), Box<str>> {
        let value = |header: &str, value: &str| {
            HeaderValue::from_str(value).map_err(|_| format!("{header} cannot be written as a header"))
        };
        lines.insert(HOST, self.endpoint.host.clone());
        lines.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        lines.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if let Some(credentials) = &self.endpoint.proxy_credentials {
            lines.insert(PROXY_AUTHORIZATION, credentials.clone());
        }
        let mut set = |name: &str, text: &str| -> Result<(), Box<str>> {
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            lines.insert(header, value(name, text)?);
            Ok(())
        };
        set(headers::PROTOCOL_VERSION, PROTOCOL_VERSION)?;
        set(headers::METHOD, &self.method)?;
        let Some(name) = &self.name else { return Ok(()) };
        set(headers::NAME, &headers::encode_value(name))?;
        if *self.method == *method::TOOLS_CALL {
            let arguments = self.params().and_then(|params| members(params, &["arguments"])).and_then(|[found]| found);
            for (header, value) in self.endpoint.schemas.headers(name, arguments.unwrap_or("{}"))? {
                set(&header, &value)?;
            }
        }
        Ok(())
    }
}

/// Whether the data of -32022 names the revision that is spoken here.
fn names_our_revision(data: &str) -> bool {
    let supported = members(data, &["supported"]).and_then(|[supported]| supported);
    let supported: Vec<Box<serde_json::value::RawValue>> =
        supported.and_then(|supported| serde_json::from_str(supported).ok()).unwrap_or_default();
    supported.iter().any(|version| text(version.get()).is_some_and(|version| version == PROTOCOL_VERSION))
}
