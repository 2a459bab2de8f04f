//! One request of a session: its POST, and whether the server still knew the session.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use steady_core::id::RequestId;
use steady_core::kernel::Unanswered;
use steady_core::rpc::{self, Body, Message, code, members, text};

use super::super::answer::{Answer, Read, Reader};
use super::super::exchange::Ended;
use super::super::link::Sink;
use super::{Found, Session, TELL_TIME, of_a_server};
use crate::clock::within;

/// A request on its way in a session.
pub(in crate::client) struct Asked {
    session: Arc<Session>,
    id: RequestId,
    method: Box<str>,
    text: Bytes,
}

impl Asked {
    pub(in crate::client) const fn new(session: Arc<Session>, id: RequestId, method: Box<str>, text: Bytes) -> Self {
        Self { session, id, method, text }
    }

    /// Carries it to its end. Dropping this closes its response stream, which tells the server nothing.
    pub(in crate::client) async fn run(self, sink: Sink) {
        let ended = match self.id {
            RequestId::Integer(_) => self.answered(&sink, true).await,
            RequestId::String(_) => self.of_the_adapter(&sink).await,
        };
        ended.tell(self.id, &self.session.endpoint, &sink).await;
    }

    /// One of the adapter itself: it has neither a clock nor a limit in the client's machine, and takes no place of a call.
    async fn of_the_adapter(&self, sink: &Sink) -> Ended {
        let answered = async {
            let _turn = self.session.own.acquire().await;
            self.answered(sink, false).await
        };
        let ended = within(&self.session.endpoint.config.clock, TELL_TIME, answered).await;
        ended.unwrap_or_else(|| Ended::without(Unanswered::Lost(format!("no answer within {TELL_TIME:?}").into())))
    }

    /// `waits`: for a place among the requests on the network.
    async fn answered(&self, sink: &Sink, waits: bool) -> Ended {
        let (session, config) = (&self.session, &self.session.endpoint.config);
        let now = session.now();
        let sink = &sink.of(&now);
        let (response, connection) = match session.send(Method::POST, Some(&self.text), &now, waits).await {
            Ok(sent) => sent,
            Err(end) => return Ended::without(end),
        };
        let status = response.status();
        let reader = Reader {
            id: &self.id,
            method: &self.method,
            limit: config.max_answer,
            silence: None,
            clock: &config.clock,
            may_precede: of_a_server,
            sink: Some(sink),
        };
        let Read { end, rest } = reader.read(response).await;
        let rest = rest.map(|body| (connection, body));
        let word = Word::of(status, &end);
        let answered = |end: Result<Answer, Unanswered>, rest| Ended { end: end.map(|answer| answer.text), rest };
        if !now.has_id() || word == Word::Known {
            return answered(end, rest);
        }
        // What comes next may need the place of this connection.
        if let Some((connection, body)) = rest {
            session.endpoint.pool.drain(connection, body).await;
        }
        Ended::without(match session.renew(&now, word, sink).await {
            // It is this request that there is nothing for.
            Ok(Found::Lives) => return answered(end, None),
            Ok(Found::Anew) => {
                Unanswered::NotSent("the server had forgotten the session, which has been begun anew".into())
            }
            Ok(Found::Doubt(why)) => Unanswered::NotSent(
                format!(
                    "HTTP {status}, and a ping that was to show whether the server knows the session failed: {why}"
                )
                .into(),
            ),
            Err(why) => lost(why),
        })
    }
}

/// The session is gone and there is no new one. The request did not run; asking again helps where the server was not there.
fn lost(why: Unanswered) -> Unanswered {
    let gone = "the server has forgotten the session, and";
    match why {
        Unanswered::Refused(why) | Unanswered::NotSpoken(why) => {
            Unanswered::Refused(format!("{gone} it refused a new one: {why}").into())
        }
        Unanswered::NotSent(why) | Unanswered::Lost(why) => {
            Unanswered::NotSent(format!("{gone} a new one failed: {why}").into())
        }
        Unanswered::TooLong => Unanswered::Refused(format!("{gone} its answer to a new one is too long").into()),
    }
}

/// What an answer says of the session that its request was sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Word {
    /// It is the request's own answer, or nothing is wrong with the session.
    Known,
    /// 404 without a word of why: the session is forgotten, or something has no such path or method.
    Nothing,
    /// The server does not know the session, so that the request did not run.
    Forgotten,
}

impl Word {
    /// Of this answer: 404, but for one that says no more than that there is no such method. Several servers say 400
    /// instead, with an error of their SDK that names the session. An error with the id of the request is the request's own
    /// answer, whatever the status that it is mapped to; it counts only with a code that no request which ran ends with.
    pub(super) fn of(status: StatusCode, end: &Result<Answer, Unanswered>) -> Self {
        let (error, is_named) = match end {
            Ok(Answer { text, is_error: true, is_named }) => (error(text), *is_named),
            Ok(Answer { is_error: false, .. }) => return Self::Known,
            Err(_) => (None, false),
        };
        match (status, error) {
            (StatusCode::NOT_FOUND, None) if !is_named => Self::Nothing,
            (StatusCode::NOT_FOUND, Some((SESSION_NOT_FOUND, _))) => Self::Forgotten,
            (StatusCode::NOT_FOUND, Some((number, message))) if may_be_of_sessions(number, is_named) => {
                if names_a_session(&message) {
                    Self::Forgotten
                } else {
                    Self::Nothing
                }
            }
            (StatusCode::BAD_REQUEST, Some((SDK_REFUSAL, message))) if !is_named && names_a_session(&message) => {
                Self::Forgotten
            }
            (_, Some(_) | None) => Self::Known,
        }
    }
}

/// Whether a 404 with this error may be one of the session.
fn may_be_of_sessions(number: i64, is_named: bool) -> bool {
    if is_named { number == code::INVALID_REQUEST } else { number != code::METHOD_NOT_FOUND }
}

fn names_a_session(message: &str) -> bool {
    message.to_ascii_lowercase().contains("session")
}

/// What servers answer a session with that they do not know.
const SESSION_NOT_FOUND: i64 = -32001;
/// What the official SDKs refuse a whole POST with.
const SDK_REFUSAL: i64 = -32000;

fn error(answer: &str) -> Option<(i64, String)> {
    let Ok(Message::Response { body: Body::Error(error), .. }) = rpc::parse(answer) else { return None };
    let [number, message] = members(error.get(), &["code", "message"])?;
    Some((number?.parse().ok()?, message.and_then(text).unwrap_or_default().into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_answer_says_of_its_session() {
        let error = |is_named: bool, number: i64, message: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{number},"message":"{message}"}}}}"#);
            Ok(Answer { text, is_error: true, is_named })
        };
        let (unnamed, named) =
            (|number, message| error(false, number, message), |number, message| error(true, number, message));
        let no_message = || Err(Unanswered::NotSpoken("HTTP 404".into()));
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let result = || Ok(Answer { text: text.into(), is_error: false, is_named: true });
        for (status, end, word) in [
            (404, no_message(), Word::Nothing),
            (404, unnamed(-32001, "Session not found"), Word::Forgotten),
            (404, unnamed(-32001, "gone"), Word::Forgotten),
            (404, unnamed(-32000, "gone"), Word::Nothing),
            (404, unnamed(-32000, "no such session"), Word::Forgotten),
            (404, unnamed(-32601, "no such method in a session"), Word::Known),
            (404, named(-32001, "Session not found"), Word::Forgotten),
            (404, named(-32600, "there is no such session"), Word::Forgotten),
            (404, named(-32600, "not here"), Word::Nothing),
            (404, named(-32601, "no such method"), Word::Known),
            (404, named(-32002, "order not found"), Word::Known),
            (404, named(-32000, "no such session"), Word::Known),
            (400, unnamed(-32000, "Bad Request: No valid session ID provided"), Word::Forgotten),
            (400, unnamed(-32000, "Bad Request: Unsupported protocol version"), Word::Known),
            (400, unnamed(-32602, "the session argument is missing"), Word::Known),
            (400, named(-32000, "payment session expired"), Word::Known),
            (400, named(-32001, "Session not found"), Word::Known),
            (400, no_message(), Word::Known),
            (500, no_message(), Word::Known),
            (200, unnamed(-32000, "no session"), Word::Known),
            (404, result(), Word::Known),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(Word::of(status, &end), word, "{status} {end:?}");
        }
    }
}
