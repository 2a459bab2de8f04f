//! What is said before a session is known to be over goes into that session, and nothing of it into the next one.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use steady_core::id::RequestId;
use steady_core::kernel::{EraLink, Eras, Lapse, Link, Received};

enum Came {
    Message(String),
    /// Another session took the place of this one.
    Session,
}

#[derive(Default)]
struct State {
    coming: VecDeque<Came>,
    /// What was said, and in which session.
    said: Vec<(u64, Value)>,
    /// The requests whose streams were closed.
    closed: Vec<RequestId>,
    session: u64,
}

/// A link whose server forgets sessions, as the contract of [`Link::lapsed`] has it.
#[derive(Clone, Default)]
struct Sessions {
    state: Arc<Mutex<State>>,
    current: String,
    told: u64,
}

impl Link for Sessions {
    const BEFORE: &'static [u8] = b"";
    const AFTER: &'static [u8] = b"\n";

    fn poll_recv(&mut self, _: &mut Context<'_>) -> Poll<Received<'_>> {
        let mut state = self.state.lock().expect("no panic");
        state.session = self.told;
        match state.coming.pop_front() {
            Some(Came::Message(text)) => {
                self.current = text;
                Poll::Ready(Received::Message(&self.current))
            }
            Some(Came::Session) => {
                state.coming.push_front(Came::Session);
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }

    fn lapsed(&mut self) -> Option<Lapse> {
        let mut state = self.state.lock().expect("no panic");
        matches!(state.coming.front(), Some(Came::Session)).then(|| {
            state.coming.pop_front();
            self.told += 1;
            Lapse::Session
        })
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn poll_send(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state.lock().expect("no panic");
        let end = bytes.iter().position(|byte| *byte == b'\n').expect("whole messages");
        let message = serde_json::from_slice(&bytes[..end]).expect("JSON");
        let session = state.session;
        state.said.push((session, message));
        Poll::Ready(Ok(end + 1))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn close_stream(&mut self, request: &RequestId) {
        self.state.lock().expect("no panic").closed.push(request.clone());
    }
}

/// A client after its handshake with such a server.
struct Era {
    state: Arc<Mutex<State>>,
    link: EraLink<Sessions>,
}

impl Era {
    fn agreed() -> Self {
        let sessions = Sessions::default();
        let state = Arc::clone(&sessions.state);
        let mut era = Self { state, link: EraLink::over_streams(sessions, Eras::Legacy) };
        let capabilities = json!({"roots": {}});
        let meta =
            json!({"io.modelcontextprotocol/clientCapabilities":capabilities,"io.modelcontextprotocol/clientInfo":{}});
        era.send(&json!({"jsonrpc":"2.0","id":"p","method":"server/discover","params":{"_meta":meta}}));
        assert_eq!(era.turn([]).0[0].1["method"], "initialize");
        let result =
            json!({"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"old","version":"1"}});
        let agreed = message(json!({"jsonrpc":"2.0","id":"initialize","result":result}));
        assert_eq!(era.turn([agreed]).0[0].1["method"], "notifications/initialized");
        era
    }

    fn send(&mut self, message: &Value) {
        let text = format!("{message}\n");
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(matches!(self.link.poll_send(cx, text.as_bytes()), Poll::Ready(Ok(count)) if count == text.len()));
    }

    /// What is said to the server, and what the client hears, once all of this has come.
    fn turn(&mut self, coming: impl IntoIterator<Item = Came>) -> (Vec<(u64, Value)>, Vec<String>) {
        let cx = &mut Context::from_waker(Waker::noop());
        self.state.lock().expect("no panic").coming.extend(coming);
        let mut heard = Vec::new();
        while let Poll::Ready(received) = self.link.poll_recv(cx) {
            heard.push(match received {
                Received::Message(text) => text.to_owned(),
                end @ (Received::Unanswered(..) | Received::Bad(_) | Received::Closed | Received::Failed(_)) => {
                    format!("{end:?}")
                }
            });
        }
        assert!(matches!(self.link.poll_flush(cx), Poll::Ready(Ok(()))));
        (std::mem::take(&mut self.state.lock().expect("no panic").said), heard)
    }

    /// A call that its server asks for roots, with this request; the state of the next round.
    fn asked(&mut self, call: i64, question: i64) -> String {
        self.send(&json!({"jsonrpc":"2.0","id":call,"method":"tools/call","params":{"name":"asks","arguments":{}}}));
        let ask = message(json!({"jsonrpc":"2.0","id":question,"method":"roots/list","params":{}}));
        let (said, heard) = self.turn([ask]);
        assert_eq!((said.len(), &said[0].1["id"]), (1, &json!(call)));
        let demand: Value = serde_json::from_str(&heard[0]).expect("JSON");
        demand["result"]["requestState"].as_str().expect("a state").to_owned()
    }

    /// The application answers; what is said, and heard.
    fn answer(&mut self, id: i64, state: &str) -> (Vec<(u64, Value)>, Vec<String>) {
        let given = json!({"asked": {"roots": []}});
        let params = json!({"name":"asks","arguments":{},"requestState":state,"inputResponses":given});
        self.send(&json!({"jsonrpc":"2.0","id":id,"method":"tools/call","params":params}));
        self.turn([])
    }
}

fn message(message: Value) -> Came {
    Came::Message(message.to_string())
}

#[test]
fn an_answer_goes_into_the_session_that_asked() {
    let mut era = Era::agreed();
    let ping = |id: u32| message(json!({"jsonrpc":"2.0","id":id,"method":"ping"}));
    let pong = |session: u64, id: u32| (session, json!({"jsonrpc":"2.0","id":id,"result":{}}));
    // All of this comes in one turn, before anything is written.
    let (said, _) = era.turn([ping(1), Came::Session, ping(1), ping(2), Came::Session, ping(1)]);
    assert_eq!(said, [pong(0, 1), pong(1, 1), pong(1, 2), pong(2, 1)]);
}

#[test]
fn what_the_application_says_to_a_question_of_a_lost_session_reaches_nobody() {
    let over = |call: i64| message(json!({"jsonrpc":"2.0","id":call,"result":{"content":[]}}));
    // The call had its answer before its session was lost.
    let mut era = Era::agreed();
    let state = era.asked(1, 0);
    let (said, heard) = era.turn([over(1), Came::Session]);
    assert_eq!((said.len(), heard.len()), (0, 0));
    // In the next session another question has the same id.
    let other = era.asked(2, 0);
    let (said, heard) = era.answer(3, &state);
    assert_eq!(said, [], "it would answer the other question");
    assert!(heard[0].contains("\"id\":3") && heard[0].contains("\"content\":[]"), "{heard:?}");
    let (said, _) = era.answer(4, &other);
    assert_eq!((said.len(), said[0].0, &said[0].1["id"]), (1, 1, &json!(0)));

    // It had none: its stream is closed, and an answer that was on its way is too late.
    let mut era = Era::agreed();
    let state = era.asked(1, 0);
    era.turn([Came::Session, over(1)]);
    assert_eq!(era.state.lock().expect("no panic").closed, [RequestId::Integer(1)]);
    let question = message(json!({"jsonrpc":"2.0","id":0,"method":"roots/list","params":{}}));
    let (said, _) = era.turn([question]);
    assert_eq!(said[0].1["error"]["code"], -32603, "no call of this session is in progress");
    let (said, heard) = era.answer(2, &state);
    assert_eq!(said, []);
    assert!(heard[0].contains("Unanswered"), "{heard:?}");
}
