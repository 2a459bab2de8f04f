//! The kernel's link over many exchanges: what is written starts a POST, and what is read comes from all response streams.

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
use super::session::{Asked, Session, SessionSlot, aside};

/// Messages of all streams together that wait to be handled. A stream that has one more waits with it, unread.
const WAITING: usize = 64;

/// What is handed over.
#[derive(Debug)]
pub(super) enum Item {
    /// By the exchange of this request.
    Of(RequestId, What),
    /// By the stream of a session that belongs to no request: a message, or something that is none.
    Aside(Result<String, BadFrame>),
    /// By a session.
    Lapsed(Lapse),
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
    sender: mpsc::Sender<Item>,
    receiver: mpsc::Receiver<Item>,
    /// The message that is lent out, and whose stream it came on.
    current: String,
    stream: Option<RequestId>,
    /// The server's era is an older one from the handshake on.
    session: SessionSlot,
    /// Which session was heard of last. What is answered there belongs into no other.
    heard: u64,
    lapsed: VecDeque<Lapse>,
}

impl HttpLink {
    pub(super) fn new(endpoint: Arc<Endpoint>, session: SessionSlot) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        let (open, tasks) = (BTreeMap::new(), HashMap::new());
        let (current, stream, lapsed) = (String::new(), None, VecDeque::new());
        let exchanges = JoinSet::new();
        Self { endpoint, exchanges, open, tasks, sender, receiver, current, stream, session, heard: 1, lapsed }
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
            self.exchanges.spawn(aside::keep(Arc::clone(&session), self.sender.clone(), ready));
            let opening = session.open(self.sender.clone(), first);
            let task = self.exchanges.spawn(opening);
            self.started(id, task);
        } else {
            let task = self.exchanges.spawn(exchange.run(self.sender.clone()));
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
                let task = self.exchanges.spawn(asked.run(self.sender.clone()));
                self.started(id, task);
            }
            // The handshake has said it: it must be there before the first request.
            Some(Message::Notification { method, .. }) if method == INITIALIZED => {}
            Some(Message::Notification { .. }) => session.tell(text, None),
            Some(Message::Response { .. }) => session.tell(text, Some(self.heard)),
            None => return Err(io::Error::other("what is to be sent is no message")),
        }
        Ok(())
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
            let Poll::Ready(item) = self.receiver.poll_recv(cx) else {
                let id = ready!(self.poll_panicked(cx));
                let what = "a part of this program panicked while it carried the request".into();
                return Poll::Ready(Received::Unanswered(id, Unanswered::Lost(what)));
            };
            let (id, what) = match item {
                Some(Item::Of(id, what)) => (id, what),
                Some(Item::Aside(message)) => {
                    self.stream = None;
                    return Poll::Ready(match message {
                        Ok(text) => {
                            self.current = text;
                            Received::Message(&self.current)
                        }
                        Err(bad) => Received::Bad(bad),
                    });
                }
                Some(Item::Lapsed(lapse)) => {
                    self.heard += u64::from(lapse == Lapse::Session);
                    if !self.lapsed.contains(&lapse) {
                        self.lapsed.push_back(lapse);
                    }
                    continue;
                }
                None => return Poll::Ready(Received::Closed),
            };
            // Of a stream that was closed meanwhile nothing is heard.
            if !self.open.contains_key(&id) {
                continue;
            }
            return Poll::Ready(match what {
                What::Message(text) => {
                    self.current = text;
                    self.stream = Some(id);
                    Received::Message(&self.current)
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
