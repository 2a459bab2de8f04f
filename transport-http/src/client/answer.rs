//! What a response says about its request: one JSON object, a stream that ends with the answer, or neither.

use std::time::Duration;

use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;
use serde_json::value::RawValue;
use steady_core::id::RequestId;
use steady_core::kernel::{BadFrame, Unanswered};
use steady_core::rpc::{self, Body, Message, encode, members, method};

use super::link::{Item, Sink, What};
use super::pool::{in_words, next_frame};
use crate::clock::{Clock, within};
use crate::sse;

/// How much of an answer that is none is quoted, in bytes.
const QUOTE: usize = 200;

/// Reads the response to one request.
pub(super) struct Reader<'a> {
    pub(super) id: &'a RequestId,
    pub(super) method: &'a str,
    /// Longest message, in bytes.
    pub(super) limit: usize,
    /// How long the stream may be silent; `None`: the call's own clocks are all there is.
    pub(super) silence: Option<Duration>,
    pub(super) clock: &'a Clock,
    /// Whether this message may stand on the stream before the answer.
    pub(super) may_precede: fn(&Self, &Message<'_>) -> bool,
    /// Where messages before the answer go.
    pub(super) sink: Option<&'a Sink>,
}

/// The answer, or that there is none; and the body, if more of it may come.
pub(super) struct Read {
    pub(super) end: Result<Answer, Unanswered>,
    pub(super) rest: Option<Incoming>,
}

/// The text of an answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) is_error: bool,
    /// Whether it carried the id of the request: its server has read it, and may have run it.
    pub(super) is_named: bool,
}

/// What a message of a stream is to the request that the stream belongs to.
enum Place {
    Answer {
        is_error: bool,
    },
    /// An error without an id, and the same with it.
    Unnamed(String),
    Before,
    Foreign,
}

impl Reader<'_> {
    pub(super) async fn read(&self, response: Response<Incoming>) -> Read {
        let (status, mut body) = (response.status(), None);
        let kind = kind(response.headers());
        let encoded = response.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
        let end = if encoded {
            Err(Unanswered::Lost("the answer has a content encoding that was not asked for".into()))
        } else if kind == "text/event-stream" && status.is_success() {
            let end = self.stream(body.insert(response.into_body())).await;
            // Of a stream that is lost nothing more is waited for.
            body = body.filter(|_| !matches!(end, Err(Unanswered::Lost(_))));
            end
        } else {
            self.object(status, &kind, body.insert(response.into_body())).await
        };
        Read { end, rest: body }
    }

    /// A body that is one message, or says in its own way what is wrong.
    async fn object(&self, status: StatusCode, kind: &str, body: &mut Incoming) -> Result<Answer, Unanswered> {
        let mut bytes = Vec::new();
        while let Some(frame) = next_frame(body).await {
            let frame = frame.map_err(|error| Unanswered::Lost(lost(&in_words(&error))))?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len() + data.len() > self.limit {
                return Err(if status.is_success() { Unanswered::TooLong } else { judge(status, kind, "") });
            }
            bytes.extend_from_slice(data);
        }
        let text = String::from_utf8(bytes).unwrap_or_default();
        match self.place(&text) {
            Place::Answer { is_error } => Ok(Answer { text, is_error, is_named: true }),
            Place::Unnamed(text) => Ok(Answer { text, is_error: true, is_named: false }),
            Place::Before | Place::Foreign => Err(judge(status, kind, &text)),
        }
    }

    /// A stream of events that ends with the answer (rule H2).
    async fn stream(&self, body: &mut Incoming) -> Result<Answer, Unanswered> {
        let (mut parser, mut too_long) = (sse::Parser::new(self.limit), false);
        loop {
            let frame = match self.silence {
                None => next_frame(body).await,
                Some(limit) => within(self.clock, limit, next_frame(body)).await.ok_or_else(|| {
                    Unanswered::Lost(format!("nothing came on the stream for {limit:?}, no comment either").into())
                })?,
            };
            let frame = match frame {
                Some(Ok(frame)) => frame,
                Some(Err(_)) | None if too_long => return Err(Unanswered::TooLong),
                Some(Err(error)) => return Err(Unanswered::Lost(lost(&in_words(&error)))),
                None => return Err(Unanswered::Lost(lost("its end"))),
            };
            let Some(mut chunk) = frame.data_ref().map(|data| &data[..]) else { continue };
            loop {
                let what = match parser.next(&mut chunk) {
                    None => break,
                    // It carries nothing but an id, or a time, for who would resume.
                    Some(sse::Item::Event("")) => continue,
                    Some(sse::Item::Event(event)) => match self.place(event) {
                        Place::Answer { is_error } => {
                            return Ok(Answer { text: event.to_owned(), is_error, is_named: true });
                        }
                        Place::Unnamed(text) => return Ok(Answer { text, is_error: true, is_named: false }),
                        Place::Before => What::Message(event.to_owned()),
                        Place::Foreign => What::Bad(BadFrame::Foreign),
                    },
                    Some(sse::Item::Rejected(sse::Rejected::NotUtf8)) => What::Bad(BadFrame::NotUtf8),
                    // What it said is not known: the listen is asked for again, and what it covers is read.
                    Some(sse::Item::Rejected(sse::Rejected::TooLong { .. })) if self.method == method::LISTEN => {
                        let limit = self.limit;
                        return Err(Unanswered::Lost(format!("a message has more than {limit} bytes").into()));
                    }
                    Some(sse::Item::Rejected(sse::Rejected::TooLong { .. })) => {
                        too_long = true;
                        What::Bad(BadFrame::TooLong)
                    }
                };
                self.tell(what).await;
            }
        }
    }

    async fn tell(&self, what: What) {
        if let Some(sink) = self.sink {
            // Without its link this is about to be dropped.
            let _nobody_waits = sink.send(Item::Of(self.id.clone(), what)).await;
        }
    }

    /// A stream is scoped to its request (rule H2): what names another has no business here.
    fn place(&self, message: &str) -> Place {
        match rpc::parse(message) {
            Ok(Message::Response { id: Some(id), body }) if id == *self.id => {
                Place::Answer { is_error: matches!(body, Body::Error(_)) }
            }
            // The server could not read the id; the stream says which it was (rule M6).
            Ok(Message::Response { id: None, body: Body::Error(error) }) => {
                let mut text = b"{\"jsonrpc\":\"2.0\",\"id\":".to_vec();
                encode::id(&mut text, self.id);
                text.extend_from_slice(b",\"error\":");
                text.extend_from_slice(error.get().as_bytes());
                text.push(b'}');
                String::from_utf8(text).map_or(Place::Foreign, Place::Unnamed)
            }
            Ok(message) if (self.may_precede)(self, &message) => Place::Before,
            Ok(_) | Err(_) => Place::Foreign,
        }
    }

    /// Whether it is a notification of this request.
    pub(super) fn of_this_request(&self, message: &Message<'_>) -> bool {
        match message {
            Message::Notification { method, params } => self.is_ours(method, *params),
            Message::Response { .. } | Message::Request { .. } => false,
        }
    }

    /// Whether a notification names this request, or none.
    fn is_ours(&self, name: &str, params: Option<&RawValue>) -> bool {
        let params = params.map_or("{}", RawValue::get);
        match name {
            method::PROGRESS => rpc::read_progress(params).is_some_and(|(token, _)| token.0 == *self.id),
            method::CANCELLED => rpc::read_cancellation(params).is_some_and(|cancelled| cancelled.id == *self.id),
            _ => {
                let stamp = members(params, &["_meta"]).and_then(|[meta]| members(meta?, &[STAMP])).and_then(|[id]| id);
                let mut ours = Vec::new();
                encode::id(&mut ours, self.id);
                stamp.is_none_or(|stamp| self.method == method::LISTEN && stamp.as_bytes() == ours)
            }
        }
    }
}

const STAMP: &str = "io.modelcontextprotocol/subscriptionId";

/// The media type, without its parameters.
fn kind(headers: &HeaderMap) -> String {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn lost(why: &str) -> Box<str> {
    format!("the response stream ended without an answer: {why}").into()
}

/// What a response means that holds no message for the request. Nothing in one proves that the request did not run, but
/// for the refusals that HTTP itself defines as such.
fn judge(status: StatusCode, kind: &str, text: &str) -> Unanswered {
    let quote: String = text.chars().take(QUOTE).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let kind = if kind.is_empty() { "no content type" } else { kind };
    let what = format!("HTTP {status} with {kind}: {quote:?}").into();
    match status.as_u16() {
        408 | 425 | 429 => Unanswered::Lost(what),
        300..=399 | 401 | 403 | 407 => Unanswered::Refused(what),
        400..=499 => Unanswered::NotSpoken(what),
        _ => Unanswered::Lost(what),
    }
}
