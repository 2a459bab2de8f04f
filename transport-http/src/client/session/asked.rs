//! One request of a session: its POST, and whether the server still knew the session.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, StatusCode};
use steady_core::id::RequestId;
use steady_core::kernel::Unanswered;
use steady_core::rpc::{self, Body, Message, code, members, text};
use tokio::sync::mpsc;

use super::super::answer::{Answer, Read, Reader};
use super::super::exchange::Ended;
use super::super::link::Item;
use super::{Session, TELL_TIME, of_a_server};
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
    pub(in crate::client) async fn run(self, sink: mpsc::Sender<Item>) {
        let ended = match self.id {
            RequestId::Integer(_) => self.answered(&sink, true).await,
            RequestId::String(_) => self.of_the_adapter(&sink).await,
        };
        ended.tell(self.id, &self.session.endpoint, &sink).await;
    }

    /// One of the adapter itself: it has neither a clock nor a limit in the client's machine, and takes no place of a call.
    async fn of_the_adapter(&self, sink: &mpsc::Sender<Item>) -> Ended {
        let answered = async {
            let _turn = self.session.own.acquire().await;
            self.answered(sink, false).await
        };
        let ended = within(&self.session.endpoint.config.clock, TELL_TIME, answered).await;
        ended.unwrap_or_else(|| Ended::without(Unanswered::Lost(format!("no answer within {TELL_TIME:?}").into())))
    }

    /// `waits`: for a place among the requests on the network.
    async fn answered(&self, sink: &mpsc::Sender<Item>, waits: bool) -> Ended {
        let (session, config) = (&self.session, &self.session.endpoint.config);
        let now = session.now();
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
        if !now.has_id() || !is_forgotten(status, &end) {
            return Ended { end: end.map(|answer| answer.text), rest };
        }
        // What comes next may need the place of this connection.
        if let Some((connection, body)) = rest {
            session.endpoint.pool.drain(connection, body).await;
        }
        Ended::without(match session.renew(now.generation, sink).await {
            Ok(()) => Unanswered::NotSent("the server had forgotten the session, which has been begun anew".into()),
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

/// Whether this says that the server does not know the session, so that the request did not run: 404, but for one that says
/// no more than that there is no such method. Several servers say 400 instead, with an error of their SDK that names the
/// session. An error with the id of the request is the request's own answer, whatever the status that it is mapped to; it
/// counts only with a code that no request which ran ends with.
fn is_forgotten(status: StatusCode, end: &Result<Answer, Unanswered>) -> bool {
    let (error, is_named) = match end {
        Ok(Answer { text, is_error: true, is_named }) => (error(text), *is_named),
        Ok(Answer { is_error: false, .. }) => return false,
        Err(_) => (None, false),
    };
    match status {
        StatusCode::NOT_FOUND if is_named => {
            error.is_some_and(|(number, _)| matches!(number, SESSION_NOT_FOUND | code::INVALID_REQUEST))
        }
        StatusCode::NOT_FOUND => error.is_none_or(|(number, _)| number != code::METHOD_NOT_FOUND),
        StatusCode::BAD_REQUEST if !is_named => error
            .is_some_and(|(number, message)| number == SDK_REFUSAL && message.to_ascii_lowercase().contains("session")),
        _ => false,
    }
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
    fn what_says_that_a_session_is_forgotten() {
        let error = |is_named: bool, number: i64, message: &str| {
            let text = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{{"code":{number},"message":"{message}"}}}}"#);
            Ok(Answer { text, is_error: true, is_named })
        };
        let (unnamed, named) =
            (|number, message| error(false, number, message), |number, message| error(true, number, message));
        let no_message = || Err(Unanswered::NotSpoken("HTTP 404".into()));
        let text = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
        let result = || Ok(Answer { text: text.into(), is_error: false, is_named: true });
        for (status, end, forgotten) in [
            (404, no_message(), true),
            (404, unnamed(-32001, "Session not found"), true),
            (404, unnamed(-32000, "gone"), true),
            (404, unnamed(-32601, "no such method"), false),
            (404, named(-32001, "Session not found"), true),
            (404, named(-32600, "there is no such session"), true),
            (404, named(-32601, "no such method"), false),
            (404, named(-32002, "order not found"), false),
            (404, named(-32000, "no such session"), false),
            (400, unnamed(-32000, "Bad Request: No valid session ID provided"), true),
            (400, unnamed(-32000, "Bad Request: Unsupported protocol version"), false),
            (400, unnamed(-32602, "the session argument is missing"), false),
            (400, named(-32000, "payment session expired"), false),
            (400, named(-32001, "Session not found"), false),
            (400, no_message(), false),
            (500, no_message(), false),
            (200, unnamed(-32000, "no session"), false),
            (404, result(), false),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(is_forgotten(status, &end), forgotten, "{status} {end:?}");
        }
    }
}
