//! Requests that are answered before their body has been read.
//!
//! A socket that is dropped with bytes unread is reset, and the reset may overtake the answer (RFC 9112, section 9.6). So a
//! short body is read before its refusal goes out, which also leaves the connection to the next request; and where more may
//! come, the connection reads on for a moment after it.

use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::time::Duration;

use http::header::EXPECT;
use http::request::Parts;
use tokio::time::timeout;

use super::limits::{Limits, bump};
use super::refuse::Refused;
use super::service::Responding;
use super::watch::Watch;
use super::wire::Wire;

/// How much of a body is read before a refusal, in bytes, and for how long.
const SKIPPED: u64 = 64 << 10;
const SKIP_TIME: Duration = Duration::from_secs(1);
/// How long a connection reads on after its last response.
const LINGER: Duration = Duration::from_secs(2);

/// Refuses a request whose body nobody wants.
pub(super) fn refuse_unread<B>(
    limits: &Limits,
    refused: Refused,
    parts: &Parts,
    body: B,
    watch: Option<Watch>,
) -> Responding
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    bump(&limits.counts.refused);
    let response = refused.into_response();
    if body.is_end_stream() {
        return Box::pin(ready(Ok(response)));
    }
    // Who asks first sends nothing after this answer.
    if parts.headers.contains_key(EXPECT) || body.size_hint().lower() > SKIPPED {
        watch.iter().for_each(Watch::leave_unread);
        return Box::pin(ready(Ok(response)));
    }
    Box::pin(async move {
        if !timeout(SKIP_TIME, skip(body)).await.unwrap_or(false) {
            watch.iter().for_each(Watch::leave_unread);
        }
        Ok::<_, Infallible>(response)
    })
}

/// Reads a body to nobody; whether that was all of it.
async fn skip<B: http_body::Body>(body: B) -> bool {
    let (mut body, mut left) = (pin!(body), SKIPPED);
    while let Some(frame) = poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let Ok(data) = frame.map(http_body::Frame::into_data) else { return false };
        let size = data.map_or(0, |data| bytes::Buf::remaining(&data) as u64);
        let Some(rest) = left.checked_sub(size) else { return false };
        left = rest;
    }
    true
}

/// Reads on to nobody, up to the end of the input.
pub(super) async fn linger(wire: &Wire) {
    let _out_of_patience = timeout(LINGER, poll_fn(|cx| wire.poll_discard(cx))).await;
}
