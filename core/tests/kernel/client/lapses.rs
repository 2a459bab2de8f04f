//! What is said before a session is known to be over goes into that session, and nothing of it into the next one.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
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
}

#[test]
fn an_answer_goes_into_the_session_that_asked() {
    let sessions = Sessions::default();
    let state = Arc::clone(&sessions.state);
    let mut link = EraLink::over_streams(sessions, Eras::Legacy);
    let message = |message: Value| Came::Message(message.to_string());
    let ping = |id: u32| message(json!({"jsonrpc":"2.0","id":id,"method":"ping"}));
    let pong = |session: u64, id: u32| (session, json!({"jsonrpc":"2.0","id":id,"result":{}}));
    let meta = json!({"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{}});
    let probe = json!({"jsonrpc":"2.0","id":"p","method":"server/discover","params":{"_meta":meta}});
    let text = format!("{probe}\n");
    let cx = &mut Context::from_waker(Waker::noop());
    assert!(matches!(link.poll_send(cx, text.as_bytes()), Poll::Ready(Ok(count)) if count == text.len()));
    let mut turn = |coming: Vec<Came>| {
        let cx = &mut Context::from_waker(Waker::noop());
        state.lock().expect("no panic").coming.extend(coming);
        while link.poll_recv(cx).is_ready() {}
        assert!(matches!(link.poll_flush(cx), Poll::Ready(Ok(()))));
        std::mem::take(&mut state.lock().expect("no panic").said)
    };
    assert_eq!(turn(vec![])[0].1["method"], "initialize");
    let result = json!({"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"old","version":"1"}});
    let agreed = message(json!({"jsonrpc":"2.0","id":"initialize","result":result}));
    assert_eq!(turn(vec![agreed])[0].1["method"], "notifications/initialized");
    // All of this comes in one turn, before anything is written.
    let said = turn(vec![ping(1), Came::Session, ping(1), ping(2), Came::Session, ping(1)]);
    assert_eq!(said, [pong(0, 1), pong(1, 1), pong(1, 2), pong(2, 1)]);
}
