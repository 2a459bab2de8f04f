//! One request: its headers, its POST, what is tried once more, and its end.
//!
//! What the server says it did not take, by status too, is sent again here, under the same id, which is free after an answer (rule M2):
//! after a 401 with fresh headers, after -32020 with a fresh schema, after -32022 that names the revision spoken here.
//! Each once; the call's clocks run on.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use hyper::body::Incoming;
use steady_core::id::RequestId;
use steady_core::kernel::Unanswered;
use steady_core::rpc::{self, Body, Message, PROTOCOL_VERSION, code, encode, members, method, text};

use super::answer::{Answer, Read, Reader};
use super::config::Rejected;
use super::endpoint::Endpoint;
use super::link::{Item, Sink, What};
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
    /// Of a tool's call: what may have to travel in headers too.
    arguments: Bytes,
    text: Bytes,
}

pub(super) const PROTOCOL: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Lines of an ordinary request, so that their map does not grow.
pub(super) const LINES: usize = 12;

/// What was tried once more.
#[derive(Default)]
struct Tried {
    authorized: bool,
    refreshed: bool,
    renegotiated: bool,
}

/// What to do before it is sent once more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    Nothing,
    Refresh,
}

/// The end of a request, and what is left of its stream.
pub(super) struct Ended {
    pub(super) end: Result<String, Unanswered>,
    pub(super) rest: Option<(Connection, Incoming)>,
}

impl Ended {
    pub(super) fn without(end: Unanswered) -> Self {
        Self { end: Err(end), rest: None }
    }

    /// Tells it to the link.
    pub(super) async fn tell(self, id: RequestId, endpoint: &Endpoint, sink: &Sink) {
        let Self { end, rest } = self;
        // The next request may follow the answer at once.
        let rest = rest.and_then(|(connection, body)| endpoint.pool.keep_if_over(connection, body));
        // Without its link nobody waits for it.
        if sink.send(Item::Of(id, What::End(end))).await
            && let Some((connection, body)) = rest
        {
            endpoint.pool.drain(connection, body).await;
        }
    }
}

impl Exchange {
    /// Of the text of a request; `None` if it is none.
    pub(super) fn new(endpoint: Arc<Endpoint>, text: Bytes) -> Option<Self> {
        let Ok(Message::Request { id, method, params }) = rpc::parse(core::str::from_utf8(&text).ok()?) else {
            return None;
        };
        let found = headers::name_param(&method).zip(params);
        let found = found.and_then(|(member, params)| members(params.get(), &[member, "arguments"]));
        let [name, arguments] = found.unwrap_or_default();
        let name = name.and_then(rpc::text).map(Into::into);
        let arguments = arguments.map_or(Bytes::from_static(b"{}"), |found| text.slice_ref(found.as_bytes()));
        let method = method.into();
        Some(Self { endpoint, id, method, name, arguments, text })
    }

    pub(super) const fn id(&self) -> &RequestId {
        &self.id
    }

    /// Whether it opens a session of an older revision. An application that calls the method by itself has a number for it.
    pub(super) fn is_handshake(&self) -> bool {
        *self.method == *method::INITIALIZE && matches!(self.id, RequestId::String(_))
    }

    /// Carries it to its end. Dropping this closes its response stream.
    pub(super) async fn run(self, sink: Sink) {
        let ended = self.answered(Some(&sink)).await;
        ended.tell(self.id, &self.endpoint, &sink).await;
    }

    async fn answered(&self, sink: Option<&Sink>) -> Ended {
        let (mut tried, mut rejected) = (Tried::default(), None);
        loop {
            let read = self.endpoint.schemas.times_read();
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
            // What came otherwise may be from whoever ran it (rules M5 and H9).
            let is_refused = response.status() == StatusCode::BAD_REQUEST;
            let config = &self.endpoint.config;
            let silence = config.listen_silence.filter(|_| *self.method == *method::LISTEN);
            let reader = Reader {
                id: &self.id,
                method: &self.method,
                limit: config.max_answer,
                silence,
                clock: &config.clock,
                may_precede: Reader::of_this_request,
                sink,
            };
            let Read { end, rest } = reader.read(response).await;
            let rest = rest.map(|body| (connection, body));
            let answer = match end {
                Ok(answer) => answer,
                Err(end) => return Ended { end: Err(end), rest },
            };
            let Answer { text, is_error, .. } = answer;
            let Some(remedy) = (is_error && is_refused).then(|| self.remedy(&text, &mut tried)).flatten() else {
                return Ended { end: Ok(self.learned(text)), rest };
            };
            // What comes next may need the place of this connection.
            if let Some((connection, body)) = rest {
                self.endpoint.pool.drain(connection, body).await;
            }
            if remedy == Remedy::Refresh && !Box::pin(self.refresh_after(read)).await {
                return Ended { end: Ok(text), rest: None };
            }
        }
    }

    /// If the server did not take it, what may help.
    fn remedy(&self, answer: &str, tried: &mut Tried) -> Option<Remedy> {
        let Ok(Message::Response { body: Body::Error(error), .. }) = rpc::parse(answer) else { return None };
        let [Some(number), data] = members(error.get(), &["code", "data"])? else { return None };
        let untried = |tried: &mut bool| !std::mem::replace(tried, true);
        match number.parse() {
            Ok(code::UNSUPPORTED_VERSION) if data.is_some_and(names_our_revision) => {
                untried(&mut tried.renegotiated).then_some(Remedy::Nothing)
            }
            Ok(code::HEADER_MISMATCH) if *self.method == *method::TOOLS_CALL => {
                untried(&mut tried.refreshed).then_some(Remedy::Refresh)
            }
            Ok(_) | Err(_) => None,
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

    /// Has all tools read that were not since `read`: of many calls that miss their headers one reads for all.
    async fn refresh_after(&self, read: u64) -> bool {
        let _turn = self.endpoint.refreshing.lock().await;
        self.endpoint.schemas.times_read() != read || self.refresh().await
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
            let Ended { end, rest } = list.answered(None).await;
            if let Some((connection, body)) = rest {
                self.endpoint.pool.drain(connection, body).await;
            }
            let Ok(answer) = end else { return false };
            let Ok(Message::Response { body: Body::Result(result), .. }) = rpc::parse(&answer) else { return false };
            match members(result.get(), &["nextCursor"]) {
                Some([Some(next)]) if next != "null" => cursor = format!(",\"cursor\":{next}"),
                Some(_) => {
                    self.endpoint.schemas.all_read();
                    return true;
                }
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
        let mut lines = HeaderMap::with_capacity(LINES);
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
        self.endpoint.add_lines(lines);
        lines.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        lines.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let value = |header: &str, value: &str| {
            HeaderValue::from_str(value).map_err(|_| format!("{header} cannot be written as a header"))
        };
        lines.insert(PROTOCOL, HeaderValue::from_static(PROTOCOL_VERSION));
        lines.insert(
            METHOD,
            match &*self.method {
                method::TOOLS_CALL => HeaderValue::from_static(method::TOOLS_CALL),
                other => value(headers::METHOD, other)?,
            },
        );
        let Some(name) = &self.name else { return Ok(()) };
        lines.insert(NAME, value(headers::NAME, &headers::encode_value(name))?);
        if *self.method == *method::TOOLS_CALL {
            for (header, text) in self.endpoint.schemas.headers(name, &self.arguments)? {
                let value = value(&header, &text)?;
                let header = HeaderName::from_bytes(header.as_bytes()).map_err(|error| error.to_string())?;
                lines.insert(header, value);
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

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::{Arc, Endpoint, Exchange, Sink};
    use crate::client::Config;

    /// It is moved several times until it runs, for every request.
    #[test]
    fn an_exchange_is_small() {
        let endpoint = Endpoint::new("http://127.0.0.1:1/mcp", Config::default()).expect("an address");
        let text = r#"{"jsonrpc":"2.0","id":1,"method":"x/y","params":{}}"#;
        let exchange = Exchange::new(Arc::new(endpoint), text.into()).expect("a request");
        let size = size_of_val(&exchange.run(Sink::new(mpsc::channel(1).0)));
        assert!(size <= 2048, "{size} bytes");
    }
}
