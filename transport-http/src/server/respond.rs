//! One HTTP request, from its head to its response.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use steady_core::kernel::{BoxFuture, Exchange, Service};
use steady_core::rpc::{RpcError, code, encode, method};
use tokio::time::Sleep;

use super::body::Body;
use super::check::{self, Accepts, Checked};
use super::limits::bump;
use super::refuse::Refused;
use super::service::Shared;
use super::stream::{EventStream, Watched};
use super::wire::Watch;

/// Answers a request. `watch` is the connection's, if it is ours.
pub(super) async fn respond<S, B>(shared: &Shared<S>, request: Request<B>, watch: Option<Watch>) -> Response<Body>
where
    S: Service,
    B: http_body::Body,
{
    match answer(shared, request, watch).await {
        Ok(response) => response,
        Err(refused) => {
            bump(&shared.limits.counts.refused);
            refused.into_response()
        }
    }
}

async fn answer<S, B>(shared: &Shared<S>, request: Request<B>, watch: Option<Watch>) -> Result<Response<Body>, Refused>
where
    S: Service,
    B: http_body::Body,
{
    let Shared { config, limits, .. } = shared;
    let (parts, body) = request.into_parts();
    let accepts = check::head(config, &parts)?;
    let principal = match &config.authenticate {
        Some(authenticate) => authenticate.authenticate(&parts).map_err(Refused::unauthorized)?,
        None => None,
    };
    // Before the body: what waits for its body counts too.
    let place = limits.requests.take().filter(|_| !limits.handlers.is_full());
    let mut place = place.ok_or_else(|| Refused::overloaded(config))?;
    let body = read_body(body, config.max_body, config.body_timeout).await?;
    let Ok(text) = std::str::from_utf8(&body) else {
        let error = RpcError::new(code::PARSE_ERROR, "the body is not UTF-8");
        return Err(Refused::new(StatusCode::BAD_REQUEST, None, error));
    };
    let request = match check::message(&*shared.service, &parts.headers, text)? {
        Checked::Request(request) => request,
        Checked::Notification { cancels } => {
            bump(&limits.counts.notifications);
            if cancels {
                bump(&limits.counts.cancellations_posted);
            }
            let mut response = Response::new(Body::full(Bytes::new()));
            *response.status_mut() = StatusCode::ACCEPTED;
            return Ok(response);
        }
    };
    let mut closing = None;
    if request.method == method::LISTEN {
        if *shared.closing.borrow() {
            return Err(Refused::shutting_down(config, request.id));
        }
        place = match limits.listens.take() {
            Some(place) => place,
            None => return Err(Refused::no_stream_left(config, request.id)),
        };
        closing = Some(closed(shared));
    }
    bump(&limits.counts.requests);
    // From here on a hang-up cancels, and nothing that the client sends is part of this request.
    let busy = watch.and_then(Watch::start);
    let mut settings = shared.exchange.clone();
    if principal.is_some() {
        settings.principal = principal;
    }
    let exchange = Exchange::serve(shared.service.clone(), shared.ports.clone(), settings, request);
    let exchange = Watched { exchange, limits: limits.clone(), over: false, _place: place };
    drop(parts);
    Ok(first_message(shared, exchange, accepts, closing).await.map(|body| body.watched(busy)))
}

/// Resolves once the service is told to end its listens.
fn closed<S>(shared: &Shared<S>) -> BoxFuture<()> {
    let mut closing = shared.closing.subscribe();
    Box::pin(async move {
        // An error: the service is gone, and nobody can close it any more.
        if closing.wait_for(|closing| *closing).await.is_err() {
            std::future::pending::<()>().await;
        }
    })
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

/// Waits for the first message and lets it decide the kind of the answer.
async fn first_message<S: Service>(
    shared: &Shared<S>,
    mut exchange: Watched<S>,
    accepts: Accepts,
    closing: Option<BoxFuture<()>>,
) -> Response<Body> {
    let config = &shared.config;
    let mut text = Vec::new();
    let streams = accepts.events && (config.always_stream || !accepts.json);
    let first = {
        let mut sleep: Option<Pin<Box<Sleep>>> = None;
        poll_fn(|cx| {
            while let Poll::Ready(message) = exchange.poll_message(cx, &mut text) {
                match message {
                    Some(false) if accepts.events => return Poll::Ready(First::Said),
                    // Progress for a client that takes no events.
                    Some(false) => text.clear(),
                    Some(true) | None => return Poll::Ready(First::Answer),
                }
            }
            if !accepts.events {
                return Poll::Pending;
            }
            let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(config.stream_after)));
            sleep.as_mut().poll(cx).map(|()| First::Silent)
        })
        .await
    };
    match first {
        First::Answer if !streams || status(&text) != StatusCode::OK => json(text),
        First::Answer | First::Said => {
            let message = String::from_utf8_lossy(&text);
            events(shared, EventStream::new(exchange, Some(&message), config.keep_alive, closing))
        }
        First::Silent => events(shared, EventStream::new(exchange, None, config.keep_alive, closing)),
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
fn events<S: Service>(shared: &Shared<S>, stream: EventStream<S>) -> Response<Body> {
    bump(&shared.limits.counts.streams);
    let mut response = Response::new(Body::events(stream));
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
