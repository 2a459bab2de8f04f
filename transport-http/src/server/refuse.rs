//! Answers that no handler gives: a status, a JSON-RPC error, and the headers that say what to do next.

use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Response, StatusCode};
use steady_core::id::RequestId;
use steady_core::rpc::{RpcError, code, encode};

use super::body::Body;
use super::config::{HttpConfig, Unauthorized};
use crate::headers::HeaderError;

/// A request that is refused before its handler sees it.
#[derive(Clone, Debug)]
pub(super) struct Refused(Box<Said>);

#[derive(Clone, Debug)]
struct Said {
    status: StatusCode,
    id: Option<RequestId>,
    error: Option<RpcError>,
    header: Option<(HeaderName, HeaderValue)>,
    /// Nothing more can be read from the connection.
    close: bool,
}

impl Refused {
    fn bare(status: StatusCode) -> Self {
        Self(Box::new(Said { status, id: None, error: None, header: None, close: false }))
    }

    pub(super) fn new(status: StatusCode, id: Option<RequestId>, error: RpcError) -> Self {
        Self(Box::new(Said { status, id, error: Some(error), header: None, close: false }))
    }

    fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.header = Some((name, value));
        self
    }

    fn retry_after(self, config: &HttpConfig) -> Self {
        self.with(RETRY_AFTER, HeaderValue::from(config.retry_after.as_secs().max(1)))
    }

    fn invalid(status: StatusCode, message: &str) -> Self {
        Self::new(status, None, RpcError::new(code::INVALID_REQUEST, message))
    }

    /// It answers this request.
    pub(super) fn of(mut self, id: RequestId) -> Self {
        self.0.id = Some(id);
        self
    }

    pub(super) fn closing(mut self) -> Self {
        self.0.close = true;
        self
    }

    pub(super) fn bad_request(message: &str) -> Self {
        Self::invalid(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn headers(id: Option<RequestId>, error: &HeaderError) -> Self {
        let status = StatusCode::from_u16(error.status()).unwrap_or(StatusCode::BAD_REQUEST);
        let code = error.code().map_or(code::INVALID_REQUEST, i64::from);
        Self::new(status, id, RpcError::new(code, error.to_string()))
    }

    /// Rule H1: of the current revision the endpoint takes POST and nothing else. GET and DELETE that name a session of an
    /// older one do not come here.
    pub(super) fn method() -> Self {
        Self::bare(StatusCode::METHOD_NOT_ALLOWED).with(ALLOW, HeaderValue::from_static("POST"))
    }

    /// The session is not there, or somebody else's: its client must begin a new one.
    pub(super) fn no_session(id: Option<RequestId>) -> Self {
        let what = "there is no such session: it has ended, or never was; begin a new one with initialize";
        Self::new(StatusCode::NOT_FOUND, id, RpcError::new(code::INVALID_REQUEST, what))
    }

    pub(super) fn no_session_left(config: &HttpConfig, id: RequestId) -> Self {
        let what = "this server is at its limit of sessions, and all are in use; retry later";
        let error = RpcError::new(code::OVERLOADED, what);
        Self::new(StatusCode::SERVICE_UNAVAILABLE, Some(id), error).retry_after(config)
    }

    pub(super) fn path() -> Self {
        Self::bare(StatusCode::NOT_FOUND)
    }

    pub(super) fn media_type() -> Self {
        Self::invalid(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send the message as application/json")
    }

    pub(super) fn not_acceptable() -> Self {
        let what = "Accept must list application/json and text/event-stream";
        Self::invalid(StatusCode::NOT_ACCEPTABLE, what)
    }

    pub(super) fn too_large(limit: usize) -> Self {
        let what = format!("the body is longer than {limit} bytes, which is what this server accepts");
        Self::invalid(StatusCode::PAYLOAD_TOO_LARGE, &what).closing()
    }

    pub(super) fn too_slow() -> Self {
        Self::invalid(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time").closing()
    }

    pub(super) fn cut_off() -> Self {
        Self::bad_request("the body could not be read to its end").closing()
    }

    pub(super) fn overloaded(config: &HttpConfig) -> Self {
        let what = "this server is at its limit of requests in progress; retry later";
        let error = RpcError::new(code::OVERLOADED, what);
        Self::new(StatusCode::TOO_MANY_REQUESTS, None, error).retry_after(config)
    }

    pub(super) fn too_much_arrives(config: &HttpConfig) -> Self {
        let what = "this server is at its limit of bytes that arrive at once; retry later";
        let error = RpcError::new(code::OVERLOADED, what);
        Self::new(StatusCode::TOO_MANY_REQUESTS, None, error).retry_after(config).closing()
    }

    pub(super) fn no_stream_left(config: &HttpConfig, id: Option<RequestId>) -> Self {
        let what = "this server is at its limit of open streams; retry later";
        let error = RpcError::new(code::OVERLOADED, what);
        Self::new(StatusCode::SERVICE_UNAVAILABLE, id, error).retry_after(config)
    }

    /// There is no place for a stream of changes: why.
    pub(super) fn no_listener_left(config: &HttpConfig, error: RpcError) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, None, error).retry_after(config)
    }

    pub(super) fn shutting_down(config: &HttpConfig, id: Option<RequestId>) -> Self {
        let error = RpcError::new(code::OVERLOADED, "this server is shutting down; retry later");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, id, error).retry_after(config)
    }

    pub(super) fn unauthorized(unauthorized: Unauthorized) -> Self {
        match unauthorized {
            Unauthorized::Unknown(challenge) => Self::bare(StatusCode::UNAUTHORIZED).with(WWW_AUTHENTICATE, challenge),
            Unauthorized::Forbidden => Self::bare(StatusCode::FORBIDDEN),
        }
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let Said { status, id, error, header, close } = *self.0;
        let mut text = Vec::new();
        if let Some(error) = &error {
            encode::error(&mut text, id.as_ref(), error);
        }
        let mut response = Response::new(Body::full(text));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        if error.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some((name, value)) = header {
            headers.insert(name, value);
        }
        if close {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
