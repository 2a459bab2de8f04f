//! One HTTP request, from its head to its response.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use steady_core::kernel::{Exchange, Service};
use steady_core::rpc::{RpcError, code, encode, method};
use tokio::time::Sleep;

use super::body::Body;
use super::check::{self, Accepts, Checked};
use super::config::Principal;
use super::limits::{Counted, bump};
use super::refuse::Refused;
use super::service::{Responding, Shared};
use super::stream::{EventStream, Watched};
use super::watch::{Busy, Watch};
use crate::sse;

/// Answers a request. `watch` is the connection's, if it is ours.
///
/// What needs no waiting is done at once, and what is done is not kept: the future is one allocation for each request, and
/// a small one is a cheap one.
pub(super) fn respond<S, B>(shared: Arc<Shared<S>>, request: Request<B>, watch: Option<Watch>) -> Responding
where
    S: Service,
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    let (parts, body) = request.into_parts();
    let Admitted { place, principal, accepts } = match admit(&shared, &parts) {
        Ok(admitted) => admitted,
        Err(refused) => return Box::pin(std::future::ready(Ok(refuse(&shared, refused)))),
    };
    let takes_over = watch.as_ref().and_then(|watch| watch.takes_over(&parts));
    let headers = parts.headers;
    Box::pin(async move {
        let read = read_body(body, shared.config.max_body, shared.config.body_timeout).await;
        let begun = read.and_then(|body| begin(&shared, &headers, &body, place, principal, watch));
        drop(headers);
        Ok(match begun {
            Err(refused) => refuse(&shared, refused),
            Ok(Begun::Accepted) => accepted(),
            Ok(Begun::Exchange { exchange, busy }) => {
                let (exchange, text, sleep) = (Some(exchange), Vec::new(), None);
                FirstMessage { shared, exchange, accepts, busy, takes_over, text, sleep }.await
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
    let principal = match &config.authenticate {
        Some(authenticate) => authenticate.authenticate(parts).map_err(Refused::unauthorized)?,
        None => None,
    };
    // Before the body: what waits for its body counts too.
    let place = limits.requests.take().filter(|_| !limits.handlers.is_full());
    let place = place.ok_or_else(|| Refused::overloaded(config))?;
    Ok(Admitted { place, principal, accepts })
}

/// What a message began.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Begun<S: Service> {
    /// Nothing: it was a notification.
    Accepted,
    Exchange {
        exchange: Watched<S>,
        busy: Option<Busy>,
    },
}

fn begin<S: Service>(
    shared: &Shared<S>,
    headers: &HeaderMap,
    body: &[u8],
    mut place: Counted,
    principal: Principal,
    watch: Option<Watch>,
) -> Result<Begun<S>, Refused> {
    let Shared { config, limits, .. } = shared;
    let Ok(text) = std::str::from_utf8(body) else {
        let error = RpcError::new(code::PARSE_ERROR, "the body is not UTF-8");
        return Err(Refused::new(StatusCode::BAD_REQUEST, None, error));
    };
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
        return Err(Refused::shutting_down(config, request.id));
    }
    if request.method == method::LISTEN {
        place = match limits.listens.take() {
            Some(place) => place,
            None => return Err(Refused::no_stream_left(config, request.id)),
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
    let exchange = Watched { exchange, limits: Arc::clone(limits), over: false, _place: place };
    Ok(Begun::Exchange { exchange, busy })
}

fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::full(Bytes::new()));
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// Waits for the first message and lets it decide the kind of the answer.
struct FirstMessage<S: Service> {
    shared: Arc<Shared<S>>,
    /// Taken once it is ready.
    exchange: Option<Watched<S>>,
    accepts: Accepts,
    busy: Option<Busy>,
    /// Whether the connection writes a stream itself, and whether it goes on then.
    takes_over: Option<bool>,
    text: Vec<u8>,
    sleep: Option<Pin<Box<Sleep>>>,
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

impl<S: Service> FirstMessage<S> {
    fn poll_first(&mut self, cx: &mut Context<'_>) -> Poll<First> {
        let Some(exchange) = &mut self.exchange else { return Poll::Pending };
        while let Poll::Ready(message) = exchange.poll_message(cx, &mut self.text) {
            match message {
                Some(false) if self.accepts.events => return Poll::Ready(First::Said),
                // Progress for a client that takes no events.
                Some(false) => self.text.clear(),
                Some(true) | None => return Poll::Ready(First::Answer),
            }
        }
        if !self.accepts.events {
            return Poll::Pending;
        }
        let after = self.shared.config.stream_after;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(after)));
        sleep.as_mut().poll(cx).map(|()| First::Silent)
    }
}

// Nothing in it is pinned: what must not move is boxed.
impl<S: Service> Unpin for FirstMessage<S> {}

impl<S: Service> Future for FirstMessage<S> {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let first = ready!(self.poll_first(cx));
        let this = &mut *self;
        let (text, Some(exchange)) = (std::mem::take(&mut this.text), this.exchange.take()) else {
            return Poll::Pending;
        };
        let (shared, accepts) = (&*this.shared, this.accepts);
        let config = &shared.config;
        let streams = accepts.events && (config.always_stream || !accepts.json);
        let message = || String::from_utf8_lossy(&text);
        let stream = match first {
            First::Answer => {
                let whole = if streams && status(&text) == StatusCode::OK {
                    let mut event = Vec::new();
                    sse::write_event(&mut event, &message());
                    events(shared, Body::event(event))
                } else {
                    json(text)
                };
                let busy = this.busy.take();
                return Poll::Ready(whole.map(|body| body.watched(busy)));
            }
            First::Said => EventStream::new(exchange, Some(&message()), config.keep_alive),
            First::Silent => EventStream::new(exchange, None, config.keep_alive),
        };
        let response = events(shared, Body::events(stream));
        match (this.busy.take(), this.takes_over) {
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

fn json(text: Vec<u8>) -> Response<Body> {
    let status = status(&text);
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Rule H6.
fn events<S>(shared: &Shared<S>, body: Body) -> Response<Body> {
    bump(&shared.limits.counts.streams);
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

/// Reads a body of at most `limit` bytes within `timeout`. One that came in one piece is not copied.
async fn read_body<B: http_body::Body>(body: B, limit: usize, timeout: Duration) -> Result<Bytes, Refused> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Refused::too_large(limit));
    }
    let mut body = pin!(body);
    let mut sleep: Option<Pin<Box<Sleep>>> = None;
    let mut next = async || {
        poll_fn(|cx| {
            if let Poll::Ready(frame) = body.as_mut().poll_frame(cx) {
                return Poll::Ready(Ok(frame));
            }
            let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
            sleep.as_mut().poll(cx).map(|()| Err(Refused::too_slow()))
        })
        .await
    };
    let mut first = Bytes::new();
    let mut rest: Vec<u8> = Vec::new();
    while let Some(frame) = next().await? {
        let frame = frame.map_err(|_| Refused::cut_off())?;
        let Ok(mut data) = frame.into_data() else { continue };
        let read = first.len().max(rest.len());
        if data.remaining() > limit - read {
            return Err(Refused::too_large(limit));
        }
        if read == 0 {
            first = data.copy_to_bytes(data.remaining());
            continue;
        }
        if rest.is_empty() {
            rest.extend_from_slice(&first);
        }
        while data.has_remaining() {
            rest.extend_from_slice(data.chunk());
            data.advance(data.chunk().len());
        }
    }
    Ok(if rest.is_empty() { first } else { rest.into() })
}
