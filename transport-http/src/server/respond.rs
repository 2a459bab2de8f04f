//! One HTTP request, from its head to its response.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use steady_core::kernel::{Eras, Exchange, LegacyExchange, Service};
use steady_core::rpc::{RpcError, code, encode, method};
use tokio::time::Sleep;

use super::body::{Body, LONG};
use super::check::{self, Accepts, Checked};
use super::config::Principal;
use super::legacy::{self, Routed, in_session};
use super::limits::{Counted, Share, bump};
use super::refuse::Refused;
use super::service::{Responding, Shared};
use super::stream::{EventStream, Messages, Watched};
use super::unread::refuse_unread;
use super::watch::{Busy, Watch};
use crate::sse;

/// Answers a request. `watch` is the connection's, if it is ours.
///
/// What needs no waiting is done at once, and what is done is not kept: the future is one allocation for each request, and
/// a small one is a cheap one.
pub(super) fn respond<S, B>(shared: Arc<Shared<S>>, request: Request<B>, mut watch: Option<Watch>) -> Responding
where
    S: Service,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST
        && let Some(response) = legacy::other_than_post(&shared, &parts, &mut watch)
    {
        return match response {
            Ok(Some(response)) => Box::pin(std::future::ready(Ok(response))),
            // The connection has taken it over, and this with it.
            Ok(None) => Box::pin(std::future::pending()),
            Err(refused) => refuse_unread(&shared.limits, refused, &parts, body, watch),
        };
    }
    let Admitted { place, principal, accepts } = match admit(&shared, &parts) {
        Ok(admitted) => admitted,
        Err(refused) => return refuse_unread(&shared.limits, refused, &parts, body, watch),
    };
    let takes_over = watch.as_ref().and_then(|watch| watch.takes_over(&parts));
    let headers = parts.headers;
    Box::pin(async move {
        let begun = match read_body(&shared, body).await {
            Ok((body, _share)) => begin(&shared, &headers, &body, place, principal, watch),
            Err(refused) => {
                watch.iter().for_each(Watch::leave_unread);
                Err(refused)
            }
        };
        drop(headers);
        Ok(match begun {
            Err(refused) => refuse(&shared, refused),
            Ok(Begun::Accepted) => accepted(),
            Ok(Begun::Exchange { exchange, busy }) => {
                let answers = Answers { accepts, takes_over, status, session: None };
                FirstMessage::new(shared, exchange, busy, answers).await
            }
            Ok(Begun::Legacy { exchange, busy, session }) => {
                let answers = Answers { accepts, takes_over, status: |_| StatusCode::OK, session };
                FirstMessage::new(shared, exchange, busy, answers).await
            }
        })
    })
}

fn refuse<S>(shared: &Shared<S>, refused: Refused) -> Response<Body> {
    bump(&shared.limits.counts.refused);
    refused.into_response()
}

/// A request that may send its body.
struct Admitted {
    place: Counted,
    principal: Principal,
    accepts: Accepts,
}

fn admit<S: Service>(shared: &Shared<S>, parts: &Parts) -> Result<Admitted, Refused> {
    let Shared { config, limits, .. } = shared;
    let accepts = check::head(config, parts)?;
    let principal = check::principal(config, parts)?;
    // Before the body: what waits for its body counts too.
    let place = limits.requests.take().filter(|_| !limits.handlers.is_full());
    let place = place.or_else(|| legacy::aside(shared, &parts.headers, &principal));
    let place = place.ok_or_else(|| Refused::overloaded(config))?;
    Ok(Admitted { place, principal, accepts })
}

/// What a message began.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(super) enum Begun<S: Service> {
    /// Nothing: it was a notification.
    Accepted,
    Exchange {
        exchange: Watched<Exchange<S>>,
        busy: Option<Busy>,
    },
    /// Requests of a session of the older revisions.
    Legacy {
        exchange: Watched<LegacyExchange<S>>,
        busy: Option<Busy>,
        /// The session that they began.
        session: Option<HeaderValue>,
    },
}

fn begin<S: Service>(
    shared: &Shared<S>,
    headers: &HeaderMap,
    body: &[u8],
    mut place: Counted,
    principal: Principal,
    mut watch: Option<Watch>,
) -> Result<Begun<S>, Refused> {
    let Shared { config, limits, .. } = shared;
    let Ok(text) = std::str::from_utf8(body) else {
        let error = RpcError::new(code::PARSE_ERROR, "the body is not UTF-8");
        return Err(Refused::new(StatusCode::BAD_REQUEST, None, error));
    };
    if let Some(sessions) = &shared.sessions
        && (!legacy::is_modern(headers) || config.server.eras == Eras::Legacy)
    {
        match legacy::begin(shared, sessions, headers, text, place, &principal, watch) {
            Routed::Here(begun) => return begun,
            Routed::NotHere(given, back) => (place, watch) = (given, back),
        }
    }
    let request = match check::message(&*shared.service, headers, text)? {
        Checked::Request(request) => request,
        Checked::Notification { cancels } => {
            bump(&limits.counts.notifications);
            if cancels {
                bump(&limits.counts.cancellations_posted);
            }
            return Ok(Begun::Accepted);
        }
    };
    if config.server.shutdown.is_draining() {
        return Err(Refused::shutting_down(config, Some(request.id)));
    }
    if !place.is_of(&limits.requests) {
        return Err(Refused::overloaded(config).of(request.id));
    }
    if request.method == method::LISTEN {
        if !check::accepts(headers).events {
            return Err(Refused::not_acceptable().of(request.id));
        }
        place = match limits.listens.take() {
            Some(place) => place,
            None => return Err(Refused::no_stream_left(config, Some(request.id))),
        };
    }
    bump(&limits.counts.requests);
    // From here on a hang-up cancels, and nothing that the client sends is part of this request.
    let busy = watch.map(Watch::start);
    let mut settings = shared.exchange.clone();
    if principal.is_some() {
        settings.principal = principal;
    }
    let exchange = Exchange::serve(Arc::clone(&shared.service), shared.ports.clone(), settings, request);
    let exchange = Watched { messages: exchange, limits: Arc::clone(limits), over: false, _place: Some(place) };
    Ok(Begun::Exchange { exchange, busy })
}

fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Waits for the first message and lets it decide the kind of the answer.
struct FirstMessage<S, M: Messages> {
    shared: Arc<Shared<S>>,
    /// Taken once it is ready.
    exchange: Option<Watched<M>>,
    busy: Option<Busy>,
    answers: Answers,
    text: Vec<u8>,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// What is known of the answer before its first byte.
struct Answers {
    accepts: Accepts,
    /// Whether the connection writes a stream itself, and whether it goes on then.
    takes_over: Option<bool>,
    /// Which status an answer has that is the whole body.
    status: fn(&[u8]) -> StatusCode,
    /// The session that it begins.
    session: Option<HeaderValue>,
}

/// What an exchange did first.
enum First {
    /// It answered.
    Answer,
    /// It said something, and its answer is still to come.
    Said,
    /// It has been silent for long enough.
    Silent,
}

impl<S: Service, M: Messages> FirstMessage<S, M> {
    const fn new(shared: Arc<Shared<S>>, exchange: Watched<M>, busy: Option<Busy>, answers: Answers) -> Self {
        Self { shared, exchange: Some(exchange), busy, answers, text: Vec::new(), sleep: None }
    }

    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<First> {
        let Some(exchange) = &mut self.exchange else { return Poll::Pending };
        while let Poll::Ready(message) = exchange.poll_message(cx, &mut self.text) {
            match message {
                Some(false) if self.answers.accepts.events => return Poll::Ready(First::Said),
                // Progress for a client that takes no events.
                Some(false) => self.text.clear(),
                Some(true) | None => return Poll::Ready(First::Answer),
            }
        }
        if !self.answers.accepts.events {
            return Poll::Pending;
        }
        let after = self.shared.config.stream_after;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        sleep.as_mut().poll(cx).map(|()| First::Silent)
    }
}

// Nothing in it is pinned: what must not move is boxed.
impl<S, M: Messages> Unpin for FirstMessage<S, M> {}

impl<S: Service, M: Messages + 'static> Future for FirstMessage<S, M> {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let first = ready!(self.poll_first(cx));
        let this = &mut *self;
        let (text, Some(exchange)) = (std::mem::take(&mut this.text), this.exchange.take()) else {
            return Poll::Pending;
        };
        let (shared, answers) = (&*this.shared, &mut this.answers);
        let (config, accepts, session) = (&shared.config, answers.accepts, answers.session.take());
        let streams = accepts.events && (config.always_stream || !accepts.json);
        let message = || String::from_utf8_lossy(&text);
        let status = (answers.status)(&text);
        let stream = match first {
            // Cancelled, where a client is told so by the end of its stream.
            First::Answer if text.is_empty() && !M::CANCELS => EventStream::new(exchange, None, config.keep_alive),
            First::Answer => {
                let place = (text.len() > LONG).then(|| shared.limits.requests.count());
                let whole = if streams && status == StatusCode::OK {
                    let mut event = Vec::new();
                    sse::write_event(&mut event, &message());
                    events(shared, Body::event(event))
                } else {
                    json(text, status)
                };
                let busy = this.busy.take();
                return Poll::Ready(in_session(whole, session).map(|body| body.placed(place).watched(busy)));
            }
            First::Said => EventStream::new(exchange, Some(&message()), config.keep_alive),
            First::Silent => EventStream::new(exchange, None, config.keep_alive),
        };
        let response = in_session(events(shared, Body::events(stream)), session);
        match (this.busy.take(), this.answers.takes_over) {
            (Some(busy), Some(reusable)) => busy.hand_over(response, reusable).map_or(Poll::Pending, Poll::Ready),
            (busy, _) => Poll::Ready(response.map(|body| body.watched(busy))),
        }
    }
}

/// The status of an answer in one JSON object (rules M3, M5 and H9).
fn status(text: &[u8]) -> StatusCode {
    match encode::error_code(text) {
        Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) => StatusCode::BAD_REQUEST,
        Some(_) | None => StatusCode::OK,
    }
}

fn json(text: Vec<u8>, status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Rule H6.
pub(super) fn events<S>(shared: &Shared<S>, body: Body) -> Response<Body> {
    bump(&shared.limits.counts.streams);
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Reads a body within the limits of the service, and its share of what may arrive at once. One that came in one piece is not
/// copied.
async fn read_body<S, B: http_body::Body>(shared: &Shared<S>, body: B) -> Result<(Bytes, Option<Share>), Refused> {
    let Shared { config, limits, .. } = shared;
    let (limit, size) = (config.max_body, body.size_hint());
    if size.lower() > limit as u64 {
        return Err(Refused::too_large(limit));
    }
    let most = size.exact().and_then(|size| usize::try_from(size).ok()).unwrap_or(limit);
    let mut body = pin!(body);
    let mut sleep: Option<Pin<Box<Sleep>>> = None;
    let mut next = async || {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
                return Poll::Ready(Ok(frame));
            }
            let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(config.body_timeout)));
            sleep.as_mut().poll(cx).map(|()| Err(Refused::too_slow()))
        })
        .await
    };
    // What is kept free for the rest: as much as has come, so that it is moved seldom.
    let room = |size: usize| size.max(most.min(size.saturating_mul(2)));
    let mut share = None;
    let mut first = Bytes::new();
    let mut rest: Vec<u8> = Vec::new();
    while let Some(frame) = next().await? {
        let frame = frame.map_err(|_| Refused::cut_off())?;
        let Ok(mut data) = frame.into_data() else { continue };
        let read = first.len().max(rest.len());
        if data.remaining() > limit - read {
            return Err(Refused::too_large(limit));
        }
        let size = read + data.remaining();
        if size > LONG.max(rest.capacity())
            && !share.get_or_insert_with(|| Share::none(&limits.bodies)).grow_to(room(size))
        {
            return Err(Refused::too_much_arrives(config));
        }
        if read == 0 {
            first = data.copy_to_bytes(data.remaining());
            continue;
        }
        if size > rest.capacity() {
            rest.reserve_exact(room(size) - rest.len());
        }
        if rest.is_empty() {
            rest.extend_from_slice(&first);
        }
        while data.has_remaining() {
            rest.extend_from_slice(data.chunk());
            data.advance(data.chunk().len());
        }
    }
    Ok((if rest.is_empty() { first } else { rest.into() }, share))
}
