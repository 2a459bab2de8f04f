//! The older revisions on the same endpoint: sessions, GET, DELETE, and bodies that hold answers or several messages.
//!
//! | request | answer |
//! |---|---|
//! | POST `initialize` without a session | the result, and `Mcp-Session-Id` |
//! | POST with the id of a session | a stream or one object; 202 for notifications and answers |
//! | GET with the id of a session | its stream; the one before ends |
//! | DELETE with the id of a session | 204: it has ended, and what ran is cancelled |
//! | any of them with an id that is unknown, idle for too long, or somebody else's | 404: the client begins anew |
//! | anything else | as the modern revision says |
//!
//! Whatever names the modern revision in its header never comes here.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode};
use steady_core::id::RequestId;
use steady_core::kernel::{Eras, LegacyExchange, LegacyRequest, LegacySession, LegacyStream, NotBegun, Service};
use steady_core::legacy::{Revision, batch};
use steady_core::rpc::{self, Message, MetaError, PROTOCOL_VERSION, RpcError, code, method};
use steady_core::time::Instant;

use super::body::Body;
use super::check;
use super::config::Principal;
use super::limits::{Counted, Limits, bump};
use super::refuse::Refused;
use super::respond::{Begun, events};
use super::service::Shared;
use super::sessions::{InUse, Sessions};
use super::stream::{EventStream, FRAME, Messages, Watched};
use super::watch::Watch;

static SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
static VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// Whether the header names the modern revision, which every request of it must.
pub(super) fn is_modern(headers: &HeaderMap) -> bool {
    headers.get(&VERSION).is_some_and(|version| version.as_bytes().trim_ascii() == PROTOCOL_VERSION.as_bytes())
}

/// Where a POST belongs.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Routed<S: Service> {
    Here(Result<Begun<S>, Refused>),
    /// To the modern revision, which says what is wrong with it; what was lent comes back.
    NotHere(Counted, Option<Watch>),
}

/// What a POST says, as far as that decides where it belongs.
enum Said<'a> {
    Initialize(LegacyRequest<'a>),
    InSession(&'a HeaderValue),
    Modern,
}

/// Serves a POST of the older revisions.
pub(super) fn begin<S: Service>(
    shared: &Shared<S>,
    sessions: &Sessions,
    headers: &HeaderMap,
    text: &str,
    place: Counted,
    principal: &Principal,
    watch: Option<Watch>,
) -> Routed<S> {
    let parsed = rpc::parse_with_params(text);
    let said = match (&parsed, headers.get(&SESSION)) {
        (Ok((Message::Request { id, method, params }, read)), None) if method == method::INITIALIZE => {
            // With the metadata of the modern revision it is a method like any other that does not exist.
            match rpc::checked_meta("", *params, read) {
                Err(MetaError::Invalid(_)) => {
                    let key_header = check::key_header(headers);
                    Said::Initialize(LegacyRequest { id: id.clone(), method, params: *params, key_header })
                }
                Ok(_) | Err(_) => Said::Modern,
            }
        }
        (Ok((Message::Request { params, .. }, read)), Some(id)) => match rpc::checked_meta("", *params, read) {
            Err(MetaError::Invalid(_)) => Said::InSession(id),
            Ok(_) | Err(_) => Said::Modern,
        },
        (Ok(_) | Err(_), Some(id)) => Said::InSession(id),
        (Ok(_) | Err(_), None) => Said::Modern,
    };
    let now = shared.ports.timer.now();
    match said {
        Said::Modern if shared.config.server.eras == Eras::Legacy => Routed::Here(Err(legacy_only())),
        Said::Modern => Routed::NotHere(place, watch),
        Said::Initialize(request) => {
            Routed::Here(Post { shared, headers, place, principal, watch }.initialize(sessions, now, request))
        }
        Said::InSession(id) => {
            let Some(session) = sessions.find(&shared.ports.timer, id, principal) else {
                let id = parsed.ok().and_then(|(message, _)| match message {
                    Message::Request { id, .. } => Some(id),
                    Message::Notification { .. } | Message::Response { .. } => None,
                });
                return Routed::Here(Err(Refused::no_session(id)));
            };
            let post = Post { shared, headers, place, principal, watch };
            Routed::Here(post.in_session(session, now, text, parsed.map(|(message, _)| message)))
        }
    }
}

fn legacy_only() -> Refused {
    Refused::bad_request(steady_core::legacy::ONLY)
}

/// A POST on its way.
struct Post<'a, S: Service> {
    shared: &'a Shared<S>,
    headers: &'a HeaderMap,
    place: Counted,
    principal: &'a Principal,
    watch: Option<Watch>,
}

impl<S: Service> Post<'_, S> {
    fn initialize(self, sessions: &Sessions, now: Instant, request: LegacyRequest<'_>) -> Result<Begun<S>, Refused> {
        let (shared, principal) = (self.shared, self.principal.clone());
        let kernel = Arc::new(LegacySession::new());
        let id = request.id.clone();
        let exchange = self.start(&kernel, None, vec![request])?;
        // A handshake that was refused began nothing.
        let Some(_agreed) = kernel.revision() else { return Ok(exchange(None)) };
        let session = sessions.begin(now, &kernel, principal);
        let session = session.map_err(|_| Refused::no_session_left(&shared.config, id))?;
        Ok(exchange(session.header()))
    }

    fn in_session(
        self,
        session: InUse,
        now: Instant,
        text: &str,
        message: Result<Message<'_>, rpc::BadMessage>,
    ) -> Result<Begun<S>, Refused> {
        check_version(self.headers)?;
        let kernel = &Arc::clone(session.kernel());
        let messages = if message.is_err() && text.trim_start().starts_with('[') {
            let refused = |error| Refused::new(StatusCode::BAD_REQUEST, None, error);
            kernel.unpacks().map_err(refused)?;
            let messages = batch::read(text).map_err(|bad| refused(bad.error()))?;
            messages.into_iter().map(|(_, message)| message).collect()
        } else {
            vec![message.map_err(|bad| check::unreadable(&bad, text))?]
        };
        let key_header = check::key_header(self.headers);
        let (mut requests, mut later) = (Vec::new(), Vec::new());
        for message in &messages {
            match message {
                Message::Request { id, method, params } => requests.push(LegacyRequest {
                    id: id.clone(),
                    method,
                    params: *params,
                    key_header: key_header.clone(),
                }),
                Message::Notification { .. } | Message::Response { .. } if requests.is_empty() => {
                    note(&self.shared.limits, kernel, now, message);
                }
                // It may be about a request that it stands behind.
                Message::Notification { .. } | Message::Response { .. } => later.push(message),
            }
        }
        if requests.is_empty() {
            return Ok(Begun::Accepted);
        }
        if requests.len() > 1 && key_header.is_some() {
            return Err(Refused::bad_request("an Idempotency-Key is one request's: send it without a batch"));
        }
        let counts = Arc::clone(&self.shared.limits);
        let begun = self.start(kernel, Some(session), requests)?(None);
        later.into_iter().for_each(|message| note(&counts, kernel, now, message));
        Ok(begun)
    }

    fn start(
        self,
        kernel: &Arc<LegacySession>,
        session: Option<InUse>,
        requests: Vec<LegacyRequest<'_>>,
    ) -> Result<impl FnOnce(Option<HeaderValue>) -> Begun<S> + use<S>, Refused> {
        let Self { shared, headers, place, principal, watch } = self;
        let limits = &shared.limits;
        if !place.is_of(&limits.requests) {
            return Err(Refused::overloaded(&shared.config).of(requests[0].id.clone()));
        }
        // These revisions demand it: a request may ask its client, and a batch has several answers.
        if !check::accepts(headers).events {
            return Err(Refused::not_acceptable());
        }
        if shared.config.server.shutdown.is_draining() {
            return Err(Refused::shutting_down(&shared.config, Some(requests[0].id.clone())));
        }
        let (count, first) = (requests.len(), requests[0].id.clone());
        // Each of a batch has a place of its own.
        let more: Option<Vec<Counted>> = (1..count).map(|_| limits.requests.take()).collect();
        let more = more.ok_or_else(|| Refused::overloaded(&shared.config))?;
        // The connection is watched, so that what nobody reads any more is not written: it cancels nothing.
        let busy = watch.map(Watch::start);
        let mut settings = shared.exchange.clone();
        if principal.is_some() {
            settings.principal.clone_from(principal);
        }
        let ports = (&shared.ports, &settings);
        let messages = LegacyExchange::start(kernel, &shared.service, ports, requests, (place, more, session));
        let messages = messages.map_err(|why| not_begun(why, first))?;
        for _ in 0..count {
            bump(&limits.counts.requests);
        }
        let exchange = Watched { messages, limits: Arc::clone(limits), over: false, _place: None };
        Ok(move |session| Begun::Legacy { exchange, busy, session })
    }
}

/// What needs no answer.
fn note(limits: &Limits, kernel: &LegacySession, now: Instant, message: &Message<'_>) {
    match message {
        Message::Notification { method, params } => {
            bump(&limits.counts.notifications);
            if method == method::CANCELLED {
                bump(&limits.counts.cancellations_posted);
            }
            let _cancelled = kernel.notified(now, method, *params);
        }
        // One that nobody waits for is accepted all the same: it may be late.
        Message::Response { id, body } => {
            let _waited_for = id.as_ref().is_some_and(|id| kernel.answered(id, *body));
        }
        Message::Request { .. } => {}
    }
}

/// The version header, where there is one: it came with 2025-06-18.
fn check_version(headers: &HeaderMap) -> Result<(), Refused> {
    let Some(version) = headers.get(&VERSION) else { return Ok(()) };
    match version.to_str().ok().and_then(|version| Revision::of(version.trim())) {
        Some(_) => Ok(()),
        None => Err(Refused::bad_request("MCP-Protocol-Version names no revision that has sessions here")),
    }
}

fn not_begun(why: NotBegun, first: RequestId) -> Refused {
    match why {
        // An error under that id would settle the request that has it (rule C10).
        NotBegun::Duplicate(_) => {
            Refused::new(StatusCode::BAD_REQUEST, None, RpcError::new(code::INVALID_REQUEST, why.to_string()))
        }
        // Only this status tells a client to begin anew.
        NotBegun::Ended => Refused::no_session(Some(first)),
    }
}

/// The response that began a session names it.
pub(super) fn in_session(mut response: Response<Body>, session: Option<HeaderValue>) -> Response<Body> {
    if let Some(session) = session {
        response.headers_mut().insert(SESSION.clone(), session);
    }
    response
}

/// A place for what may end a request of this session, if there is none for a request.
pub(super) fn aside<S>(shared: &Shared<S>, headers: &HeaderMap, principal: &Principal) -> Option<Counted> {
    let sessions = shared.sessions.as_ref().filter(|_| !is_modern(headers))?;
    let _known = sessions.find(&shared.ports.timer, headers.get(&SESSION)?, principal)?;
    shared.limits.asides.take()
}

/// GET and DELETE of a session; `None` if the modern revision has the word on it. No response: the connection has it.
pub(super) fn other_than_post<S: Service>(
    shared: &Arc<Shared<S>>,
    parts: &Parts,
    watch: &mut Option<Watch>,
) -> Option<Result<Option<Response<Body>>, Refused>> {
    let sessions = shared.sessions.as_ref().filter(|_| !is_modern(&parts.headers))?;
    let id = parts.headers.get(&SESSION)?;
    match parts.method {
        Method::GET => Some(open(shared, sessions, parts, id, watch)),
        Method::DELETE => Some(end(shared, sessions, parts, id).map(Some)),
        _ => None,
    }
}

fn open<S: Service>(
    shared: &Arc<Shared<S>>,
    sessions: &Sessions,
    parts: &Parts,
    id: &HeaderValue,
    watch: &mut Option<Watch>,
) -> Result<Option<Response<Body>>, Refused> {
    let config = &shared.config;
    let principal = check::caller(config, parts)?;
    if !check::accepts(&parts.headers).events {
        return Err(Refused::not_acceptable());
    }
    check_version(&parts.headers)?;
    // The stream begins at once, and what of a body came behind it would be the next request of its connection.
    let announces = |name| parts.headers.get_all(name).iter().any(|length| length != "0");
    if announces(TRANSFER_ENCODING) || announces(CONTENT_LENGTH) {
        return Err(Refused::bad_request("GET takes no body").closing());
    }
    if config.server.shutdown.is_draining() {
        // A stream that ends at once would be opened again at once.
        return Err(Refused::shutting_down(config, None));
    }
    let session = sessions.find(&shared.ports.timer, id, &principal).ok_or_else(|| Refused::no_session(None))?;
    let place = shared.limits.listens.take().ok_or_else(|| Refused::no_stream_left(config, None))?;
    let mut settings = shared.exchange.clone();
    if principal.is_some() {
        settings.principal = principal;
    }
    let stream = LegacyStream::open(session.kernel(), &shared.service, (&shared.ports, &settings));
    let stream = stream.map_err(|error| Refused::no_listener_left(config, error))?;
    let messages = Standing { stream, _in_use: session };
    let exchange = Watched { messages, limits: Arc::clone(&shared.limits), over: false, _place: Some(place) };
    let response = events(shared, Body::events(EventStream::new(exchange, None, config.keep_alive)));
    let takes_over = watch.as_ref().and_then(|watch| watch.takes_over(parts));
    Ok(match (watch.take().map(Watch::start), takes_over) {
        (Some(busy), Some(reusable)) => busy.hand_over(response, reusable),
        (busy, _) => Some(response.map(|body| body.watched(busy))),
    })
}

/// The stream of a session, which is not idle as long as it is open.
struct Standing {
    stream: LegacyStream,
    _in_use: InUse,
}

impl Messages for Standing {
    const CANCELS: bool = false;

    fn poll_message(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>) -> Poll<Option<bool>> {
        self.stream.poll_batch(cx, out, (&[], &[]))
    }

    fn poll_events(&mut self, cx: &mut Context<'_>, out: &mut Vec<u8>, _bytes: usize) -> Poll<Option<bool>> {
        self.stream.poll_batch(cx, out, FRAME)
    }
}

fn end<S: Service>(
    shared: &Shared<S>,
    sessions: &Sessions,
    parts: &Parts,
    id: &HeaderValue,
) -> Result<Response<Body>, Refused> {
    let principal = check::caller(&shared.config, parts)?;
    check_version(&parts.headers)?;
    if !sessions.end(shared.ports.timer.now(), id, &principal) {
        return Err(Refused::no_session(None));
    }
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
