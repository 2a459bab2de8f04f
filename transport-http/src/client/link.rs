//! The kernel's link over many exchanges: what is written starts a POST, and what is read comes from all response streams.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use steady_core::id::RequestId;
use steady_core::kernel::{BadFrame, Lapse, Link, Received, Unanswered};
use steady_core::legacy::method::INITIALIZED;
use steady_core::rpc::{self, Message};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, Id, JoinSet};

use super::endpoint::Endpoint;
use super::exchange::Exchange;
use super::session::{Asked, Now, Session, SessionSlot, aside};

/// Messages of all streams together that wait to be handled. A stream that has one more waits with it, unread.
const WAITING: usize = 64;

/// What is handed over.
#[derive(Debug)]
pub(super) enum Item {
    /// By the exchange of this request.
    Of(RequestId, What),
    /// By the stream of a session that belongs to no request: a message, or something that is none.
    Aside(Result<String, BadFrame>),
    /// By the same: notifications may be missed.
    Missed,
    /// By a session that took the place of another one. Whatever else is of it says so too.
    Begun,
}

/// An item, and the session it is of; none of a modern server's.
pub(super) type Tagged = (Option<Arc<Now>>, Item);

/// Where items go, and the session they are of.
#[derive(Clone, Debug)]
pub(super) struct Sink {
    items: mpsc::Sender<Tagged>,
    session: Option<Arc<Now>>,
}

impl Sink {
    pub(super) const fn new(items: mpsc::Sender<Tagged>) -> Self {
        Self { items, session: None }
    }

    /// For what is of this session.
    pub(super) fn of(&self, session: &Arc<Now>) -> Self {
        Self { items: self.items.clone(), session: Some(Arc::clone(session)) }
    }

    /// Hands it over; whether there is still a link.
    pub(super) async fn send(&self, item: Item) -> bool {
        self.items.send((self.session.clone(), item)).await.is_ok()
    }
}

/// What there is of a stream.
#[derive(Debug)]
pub(super) enum What {
    /// A message before the answer.
    Message(String),
    /// Something that is no message of this stream.
    Bad(BadFrame),
    /// The answer, or that there is none. Nothing follows.
    End(Result<String, Unanswered>),
}

/// All streams of one client. Dropping it closes them.
pub(super) struct HttpLink {
    endpoint: Arc<Endpoint>,
    exchanges: JoinSet<()>,
    /// The exchanges that have not ended, bounded by the machine's calls and listens.
    open: BTreeMap<RequestId, AbortHandle>,
    tasks: HashMap<Id, RequestId>,
    sink: Sink,
    receiver: mpsc::Receiver<Tagged>,
    /// What came first of a session that is not told of yet.
    held: Option<Tagged>,
    /// The message that is lent out, and whose stream it came on.
    current: String,
    stream: Option<RequestId>,
    /// The server's era is an older one from the handshake on.
    session: SessionSlot,
    /// Which session was heard of last.
    heard: Option<Arc<Now>>,
    /// The one that is answered: what was asked in one belongs into no other.
    answered: Option<Arc<Now>>,
    lapsed: VecDeque<Lapse>,
}

impl HttpLink {
    pub(super) fn new(endpoint: Arc<Endpoint>, session: SessionSlot) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        Self {
            endpoint,
            exchanges: JoinSet::new(),
            open: BTreeMap::new(),
            tasks: HashMap::new(),
            sink: Sink::new(sender),
            receiver,
            held: None,
            current: String::new(),
            stream: None,
            session,
            heard: None,
            answered: None,
            lapsed: VecDeque::new(),
        }
    }

    fn start(&mut self, message: &[u8]) -> io::Result<()> {
        let text = Bytes::copy_from_slice(message);
        if let Some(session) = self.session.get() {
            let session = Arc::clone(session);
            return self.start_in(session, text);
        }
        let exchange = Exchange::new(Arc::clone(&self.endpoint), text.clone());
        let exchange = exchange.ok_or_else(|| io::Error::other("what is to be sent is no request"))?;
        let id = exchange.id().clone();
        if exchange.is_handshake() {
            let session = Session::new(Arc::clone(&self.endpoint), id.clone(), text);
            let session = Arc::clone(self.session.get_or_init(|| Arc::new(session)));
            let (ready, first) = tokio::sync::oneshot::channel();
            self.exchanges.spawn(aside::keep(Arc::clone(&session), self.sink.clone(), ready));
            let opening = session.open(self.sink.clone(), first);
            let task = self.exchanges.spawn(opening);
            self.started(id, task);
        } else {
            let task = self.exchanges.spawn(exchange.run(self.sink.clone()));
            self.started(id, task);
        }
        Ok(())
    }

    fn started(&mut self, id: RequestId, task: AbortHandle) {
        self.tasks.insert(task.id(), id.clone());
        self.open.insert(id, task);
    }

    /// In the older revisions a client sends notifications and answers too.
    fn start_in(&mut self, session: Arc<Session>, text: Bytes) -> io::Result<()> {
        let message = core::str::from_utf8(&text).ok().and_then(|text| rpc::parse(text).ok());
        match message {
            Some(Message::Request { id, method, .. }) => {
                let asked = Asked::new(session, id.clone(), method.into(), text.clone());
                let task = self.exchanges.spawn(asked.run(self.sink.clone()));
                self.started(id, task);
            }
            // The handshake has said it: it must be there before the first request.
            Some(Message::Notification { method, .. }) if method == INITIALIZED => {}
            Some(Message::Notification { .. }) => session.tell(text, None),
            Some(Message::Response { .. }) => session.tell(text, self.answered.clone()),
            None => return Err(io::Error::other("what is to be sent is no message")),
        }
        Ok(())
    }

    /// The next item, and whether it is of a session that is over. Nothing of a new one before its beginning was told.
    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Item, bool)>> {
        if !self.lapsed.is_empty() {
            // Who is told of them asks for more then.
            return Poll::Pending;
        }
        if generation(&self.answered) != generation(&self.heard) {
            self.answered.clone_from(&self.heard);
        }
        let next = match self.held.take() {
            Some(held) => Some(held),
            None => ready!(self.receiver.poll_recv(cx)),
        };
        let Some((session, item)) = next else { return Poll::Ready(None) };
        if session.is_none() {
            return Poll::Ready(Some((item, false)));
        }
        let order = generation(&session).cmp(&generation(&self.heard));
        if order == Ordering::Greater {
            let is_first = self.heard.is_none();
            self.heard.clone_from(&session);
            if !is_first {
                self.lapsed.push_back(Lapse::Session);
                self.held = Some((session, item));
                return Poll::Pending;
            }
            self.answered = session;
        }
        Poll::Ready(Some((item, order == Ordering::Less)))
    }

    /// A message, unless it is a question that nobody can answer any more.
    fn lend(&mut self, text: String, is_over: bool) -> Received<'_> {
        if is_over && matches!(rpc::parse(&text), Ok(Message::Request { .. })) {
            return Received::Bad(BadFrame::Foreign);
        }
        self.current = text;
        Received::Message(&self.current)
    }

    /// The request of an exchange that ended by a panic, if it had not told its end.
    fn poll_panicked(&mut self, cx: &mut Context<'_>) -> Poll<RequestId> {
        loop {
            // Nothing to wait for is not the end: the next exchange wakes the loop.
            let Some(joined) = ready!(self.exchanges.poll_join_next_with_id(cx)) else { return Poll::Pending };
            let (task, failed) = match joined {
                Ok((task, ())) => (task, false),
                Err(error) => (error.id(), error.is_panic()),
            };
            let id = self.tasks.remove(&task);
            let told = |id: &RequestId| failed && self.open.get(id).is_some_and(|open| open.id() == task);
            if let Some(id) = id.filter(told) {
                self.open.remove(&id);
                return Poll::Ready(id);
            }
        }
    }
}

impl Link for HttpLink {
    const BEFORE: &'static [u8] = b"";
    // No message holds a line end.
    const AFTER: &'static [u8] = b"\n";

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Received<'_>> {
        loop {
            let Poll::Ready(item) = self.poll_item(cx) else {
                if !self.lapsed.is_empty() {
                    return Poll::Pending;
                }
                let id = ready!(self.poll_panicked(cx));
                let what = "a part of this program panicked while it carried the request".into();
                return Poll::Ready(Received::Unanswered(id, Unanswered::Lost(what)));
            };
            let Some((item, is_over)) = item else { return Poll::Ready(Received::Closed) };
            let (id, what) = match item {
                Item::Of(id, what) => (id, what),
                Item::Aside(message) => {
                    self.stream = None;
                    return Poll::Ready(match message {
                        Ok(text) => self.lend(text, is_over),
                        Err(bad) => Received::Bad(bad),
                    });
                }
                Item::Missed => {
                    self.lapsed.push_back(Lapse::Notices);
                    continue;
                }
                Item::Begun => continue,
            };
            // Of a stream that was closed meanwhile nothing is heard.
            if !self.open.contains_key(&id) {
                continue;
            }
            return Poll::Ready(match what {
                What::Message(text) => {
                    self.stream = Some(id);
                    self.lend(text, is_over)
                }
                What::Bad(bad) => Received::Bad(bad),
                What::End(end) => {
                    self.open.remove(&id);
                    match end {
                        Ok(text) => {
                            self.current = text;
                            Received::Message(&self.current)
                        }
                        Err(end) => Received::Unanswered(id, end),
                    }
                }
            });
        }
    }

    fn close_stream(&mut self, request: &RequestId) {
        if let Some(exchange) = self.open.remove(request) {
            exchange.abort();
        }
    }

    fn stream(&self) -> Option<&RequestId> {
        self.stream.as_ref()
    }

    fn lapsed(&mut self) -> Option<Lapse> {
        self.lapsed.pop_front()
    }

    fn poll_ahead(&mut self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        };
        if self.exchanges.is_empty() {
            // An empty set knows nobody to wake.
            cx.waker().wake_by_ref();
        }
        Poll::Ready(self.start(bytes.get(..end).unwrap_or_default()).map(|()| end + 1))
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn generation(session: &Option<Arc<Now>>) -> u64 {
    session.as_ref().map_or(0, |session| session.generation)
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::super::Config;
    use super::*;

    const QUESTION: &str = r#"{"jsonrpc":"2.0","id":1,"method":"roots/list"}"#;

    struct Streams {
        link: HttpLink,
        /// The first session and the second one.
        sessions: [Sink; 2],
    }

    impl Streams {
        fn new() -> Self {
            let endpoint = Endpoint::new("http://127.0.0.1:1/mcp", Config::default()).expect("an address");
            let link = HttpLink::new(Arc::new(endpoint), SessionSlot::default());
            let session = |generation| Arc::new(Now { generation, ..Now::default() });
            let sessions = [1, 2].map(|generation| link.sink.of(&session(generation)));
            Self { link, sessions }
        }

        /// Something of the first or second session came.
        fn came(&self, session: usize, item: Item) {
            let sink = &self.sessions[session - 1];
            sink.items.try_send((sink.session.clone(), item)).expect("room");
        }

        fn asked(&self, session: usize) {
            self.came(session, Item::Aside(Ok(QUESTION.to_owned())));
        }

        /// What the adapter reads next, in short, and the session in which it would answer then.
        fn next(&mut self) -> (String, u64) {
            let told = match self.link.poll_recv(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Received::Message(text)) => text.to_owned(),
                Poll::Ready(other) => format!("{other:?}"),
                Poll::Pending => format!("{:?}", self.link.lapsed()),
            };
            (told, generation(&self.link.answered))
        }
    }

    #[test]
    fn a_question_is_handed_out_in_its_own_session_only() {
        let (question, foreign) = (QUESTION.to_owned(), "Bad(Foreign)".to_owned());
        let (session, notices, nothing) = ("Some(Session)".to_owned(), "Some(Notices)".to_owned(), "None".to_owned());
        let mut streams = Streams::new();
        streams.asked(1);
        assert_eq!(streams.next(), (question.clone(), 1));
        // One of the next session is there before its beginning is told.
        streams.asked(2);
        streams.came(2, Item::Begun);
        streams.asked(1);
        streams.came(2, Item::Missed);
        streams.asked(2);
        assert_eq!(streams.next(), (session, 1), "what is said now is an answer to the first");
        assert_eq!(streams.next(), (question.clone(), 2));
        assert_eq!(streams.next(), (foreign, 2), "nobody could answer it");
        assert_eq!(streams.next(), (notices, 2));
        assert_eq!(streams.next(), (question, 2));
        assert_eq!(streams.next(), (nothing, 2));
    }

    #[test]
    fn a_session_that_was_never_heard_of_is_skipped() {
        let mut streams = Streams::new();
        streams.came(1, Item::Begun);
        assert_eq!(streams.next(), ("None".to_owned(), 1), "the first takes nobody's place");
        streams.came(2, Item::Aside(Err(BadFrame::NotUtf8)));
        assert_eq!(streams.next(), ("Some(Session)".to_owned(), 1));
        assert_eq!(streams.next(), ("Bad(NotUtf8)".to_owned(), 2));
    }
}
