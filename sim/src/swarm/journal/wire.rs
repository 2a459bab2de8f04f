//! What crosses the links: messages of clients and servers, each at both ends.

use steady_core::id::RequestId;
use steady_core::rpc::{self, Message, method};
use steady_core::time::Instant;

use super::super::script::{Server, Shape};
use super::trace::{mix, mix_bytes};
use super::{Attempt, Check, Conn, Handler, Journal, Seen, Served, name};

impl Journal {
    /// A new link of a client, or a new exchange.
    pub(in super::super) fn connect(&mut self, shape: Shape, client: usize, server: Server) -> usize {
        let (sent, signalled, served) = Default::default();
        self.conns.push(Conn { shape, client, server, sent, signalled, served });
        self.conns.len() - 1
    }

    /// A message left a client.
    pub(in super::super) fn client_wrote(&mut self, link: usize, incarnation: u32, line: &str) {
        self.trace.note(self.now, Seen::ClientWrote, link as u64, 0, line.as_bytes());
        match rpc::parse(line) {
            Ok(Message::Request { id: RequestId::Integer(id), method, .. }) => {
                self.request_left(link, incarnation, id, &method, line);
            }
            // The question to a new server has an id of the other type.
            Ok(Message::Request { .. }) => self.count("client: server/discover"),
            Ok(Message::Notification { method, params }) if method == method::CANCELLED => {
                let id = params.and_then(|params| integer(&rpc::read_cancellation(params.get())?.id));
                self.signal_left(link, id);
            }
            Ok(Message::Notification { method, .. }) => {
                self.broken(Check::CancelSignal, format!("a client sent the notification {method}"));
            }
            Ok(Message::Response { .. }) | Err(_) => {
                self.broken(Check::CancelSignal, format!("a client sent what is no request: {line}"));
            }
        }
    }

    fn request_left(&mut self, link: usize, incarnation: u32, id: i64, method: &str, line: &str) {
        let client = self.conns[link].client;
        let newest = self.newest_id.entry((client, incarnation)).or_insert(0);
        let fresh = id > *newest;
        *newest = id.max(*newest);
        self.demand(fresh, Check::FreshId, || format!("client {client} sent id {id} again, or out of order"));
        self.conns[link].sent.insert(id);
        if method == method::LISTEN {
            return self.count("client: subscriptions/listen");
        }
        if matches!(method, method::TASKS_GET | method::TASKS_CANCEL) {
            return self.count("client: asked about a task");
        }
        let order = number_after(line, "\"order\":").and_then(|order| usize::try_from(order).ok());
        let Some(order) = order.filter(|order| *order < self.orders.len() && method == method::TOOLS_CALL) else {
            return self.broken(Check::ServerSpeaksWhenAsked, format!("a request that nobody made: {line}"));
        };
        let bytes = hash_without_ids(line);
        let now = self.now;
        let Some(state) = self.orders.get_mut(order) else { return };
        let before = state.attempts.clone();
        state.attempts.push(Attempt { link, id, bytes, refused: false });
        let (state, attempts) = (state.clone(), before.len() + 1);
        let same = before.iter().all(|attempt| attempt.bytes == bytes);
        let may_have_run = before.iter().any(|attempt| !attempt.refused);
        let call = name(&state);
        self.demand(same, Check::SameBytes, || format!("attempt {attempts} of call {call} has other bytes: {line}"));
        let unsafe_again = state.safety == steady_core::retry::Safety::Unsafe && may_have_run;
        self.demand(!unsafe_again, Check::UnsafeOnce, || format!("unsafe call {call} was sent again as id {id}"));
        let most = usize::from(self.world.attempts);
        self.demand(attempts <= most, Check::Attempts, || format!("call {call} has {attempts} attempts of {most}"));
        if attempts > 1 {
            self.count(if may_have_run {
                "client: sent again after a loss"
            } else {
                "client: sent again, never sent before"
            });
        }
        // What a link has taken half may end later; nothing is taken from a call that is over.
        let late = now > state.max_at && state.ended.is_none();
        self.demand(!late, Check::Deadline, || format!("call {call} was sent at {now}, its end was {}", state.max_at));
    }

    fn signal_left(&mut self, link: usize, id: Option<i64>) {
        let conn = &mut self.conns[link];
        let (shape, client) = (conn.shape, conn.client);
        let known = id.is_some_and(|id| conn.sent.contains(&id) && conn.signalled.insert(id));
        self.demand(shape == Shape::Stdio, Check::CancelSignal, || {
            format!("client {client} posted notifications/cancelled over HTTP")
        });
        self.demand(known, Check::CancelSignal, || format!("client {client} cancelled {id:?}: unknown, or again"));
        self.count("signal: notifications/cancelled");
    }

    /// No byte of a request left: its connection was refused.
    pub(in super::super) fn refused(&mut self, link: usize, id: i64) {
        let attempts = self.orders.iter_mut().rev().flat_map(|order| &mut order.attempts);
        if let Some(attempt) = attempts.into_iter().find(|attempt| attempt.link == link && attempt.id == id) {
            attempt.refused = true;
        }
        self.count("link: connection refused");
    }

    /// A message came to a server.
    pub(in super::super) fn server_read(&mut self, link: usize, line: &str) {
        self.trace.note(self.now, Seen::ServerRead, link as u64, 0, line.as_bytes());
        match rpc::parse(line) {
            Ok(Message::Request { id, method, .. }) => {
                self.requests += 1;
                let order = number_after(line, "\"order\":").and_then(|order| usize::try_from(order).ok());
                if let Some(order) = order.and_then(|order| self.orders.get_mut(order)) {
                    order.deliveries += 1;
                }
                let now = self.now;
                if let RequestId::Integer(id) = id {
                    let listen = (method == method::LISTEN).then_some(false);
                    self.conns[link].served.insert(id, Served { listen, ..Served::new(now) });
                }
            }
            Ok(Message::Notification { params: Some(params), .. }) => {
                let id = rpc::read_cancellation(params.get()).and_then(|cancellation| integer(&cancellation.id));
                if let Some(id) = id {
                    self.cancellation_came(link, id);
                }
            }
            Ok(Message::Notification { .. } | Message::Response { .. }) | Err(_) => {}
        }
    }

    /// Whether a cancellation is accepted is a matter of what was seen: the request is here, its handler has not answered,
    /// and no clock of the server can have ended it.
    fn cancellation_came(&mut self, link: usize, id: i64) {
        if self.listen_cancelled(link, id) {
            return;
        }
        let (now, moment) = (self.now, self.moment());
        let max = std::time::Duration::from_millis(self.world.server_max_ms);
        let idle = Some(self.world.server_idle_ms).filter(|ms| *ms > 0).map(std::time::Duration::from_millis);
        let Some(served) = self.conns[link].served.get_mut(&id) else { return self.count("cancellation: unknown id") };
        let in_time = now < served.got_at + max && idle.is_none_or(|idle| now < served.reported_at + idle);
        if served.handler == Handler::Runs && served.cancelled.is_none() && in_time {
            served.cancelled = Some(moment);
            served.over_at = Some(now);
            self.count("cancellation: accepted");
        } else {
            self.count("cancellation: too late");
        }
    }

    /// The client of an exchange is gone, and its server knows: the cancellation of HTTP.
    pub(in super::super) fn disconnected(&mut self, link: usize) {
        let (now, moment) = (self.now, self.moment());
        let mut accepted = 0;
        for served in self.conns[link].served.values_mut() {
            if served.handler == Handler::Runs && served.cancelled.is_none() {
                served.cancelled = Some(moment);
                served.over_at = Some(now);
                accepted += 1;
            }
        }
        self.count_more("disconnect: accepted", accepted);
        self.trace.note(now, Seen::Process, link as u64, 1, b"the client of an exchange is gone");
    }

    /// A message left a server that had started to at `mark`.
    pub(in super::super) fn server_wrote(&mut self, link: usize, mark: u64, line: &str) {
        self.trace.note(self.now, Seen::ServerWrote, link as u64, 0, line.as_bytes());
        match rpc::parse(line) {
            Ok(Message::Response { id: Some(RequestId::Integer(id)), .. }) => self.final_left(link, mark, id),
            // The answer to server/discover, and errors without an id.
            Ok(Message::Response { .. }) => {}
            Ok(Message::Notification { method, params: Some(params) }) if method == method::PROGRESS => {
                let read = rpc::read_progress(params.get());
                let token = read.as_ref().and_then(|(token, value)| Some((integer(&token.0)?, value.value())));
                let Some((id, value)) = token else {
                    return self.broken(Check::ServerSpeaksWhenAsked, format!("progress without a token: {line}"));
                };
                self.progress_left(link, mark, id, value);
            }
            Ok(Message::Notification { method, params: Some(params) }) => {
                self.listen_wrote(link, mark, &method, params.get());
            }
            Ok(Message::Request { .. } | Message::Notification { .. }) | Err(_) => {
                self.broken(Check::ServerSpeaksWhenAsked, format!("a server sent: {line}"));
            }
        }
    }

    fn final_left(&mut self, link: usize, mark: u64, id: i64) {
        let Some(served) = self.conns[link].served.get_mut(&id) else {
            return self
                .broken(Check::ServerSpeaksWhenAsked, format!("link {link}: an answer to {id}, which nobody asked"));
        };
        served.finals += 1;
        let (finals, cancelled) = (served.finals, served.cancelled);
        self.demand(finals == 1, Check::OneFinal, || format!("link {link}: request {id} has {finals} answers"));
        self.check_silence(link, mark, id, cancelled);
    }

    fn progress_left(&mut self, link: usize, mark: u64, id: i64, value: f64) {
        let Some(served) = self.conns[link].served.get_mut(&id) else {
            return self
                .broken(Check::ServerSpeaksWhenAsked, format!("link {link}: progress of {id}, which nobody asked"));
        };
        let before = served.progress.replace(value);
        let (finals, cancelled) = (served.finals, served.cancelled);
        self.count("progress: sent");
        let increases = before.is_none_or(|before| before < value);
        self.demand(increases, Check::ProgressIncreases, || {
            format!("link {link}: progress of {id} is {value} after {before:?}")
        });
        self.demand(finals == 0, Check::OneFinal, || format!("link {link}: progress of {id} after its answer"));
        self.check_silence(link, mark, id, cancelled);
    }

    pub(super) fn check_silence(&mut self, link: usize, mark: u64, id: i64, cancelled: Option<u64>) {
        let silent = cancelled.is_none_or(|cancelled| mark < cancelled);
        self.demand(silent, Check::SilenceAfterCancel, || {
            format!("link {link}: a message of request {id} started after its cancellation was accepted")
        });
    }

    /// A message came to a client.
    pub(in super::super) fn client_read(&mut self, link: usize, line: &str) {
        self.trace.note(self.now, Seen::ClientRead, link as u64, 0, line.as_bytes());
    }

    /// Whether progress of this request has left its server.
    pub(in super::super) fn has_progress(&self, link: usize, id: i64) -> bool {
        self.conns[link].served.get(&id).is_some_and(|served| served.progress.is_some())
    }

    /// A handler starts.
    pub(in super::super) fn handler_starts(&mut self, link: usize, id: i64) {
        self.handlers += 1;
        if let Some(served) = self.conns[link].served.get_mut(&id) {
            served.handler = Handler::Runs;
        }
    }

    /// A handler reported progress that was accepted.
    pub(in super::super) fn handler_reports(&mut self, link: usize, id: i64) {
        let now = self.now;
        if let Some(served) = self.conns[link].served.get_mut(&id) {
            served.reported_at = now;
        }
    }

    /// A handler is not to be cancelled until then.
    pub(in super::super) fn handler_shields(&mut self, link: usize, id: i64, until: Instant) {
        if let Some(served) = self.conns[link].served.get_mut(&id) {
            served.shielded_until = until;
        }
    }

    /// A handler has ended, with an answer or without.
    pub(in super::super) fn handler_ended(&mut self, link: usize, id: i64, answered: bool, killed: bool) {
        self.handlers = self.handlers.saturating_sub(1);
        let (now, server) = (self.now, self.conns[link].server);
        let Some(served) = self.conns[link].served.get_mut(&id) else { return };
        served.handler = if answered { Handler::Answered } else { Handler::Gone };
        let (over_at, shielded_until) = (served.over_at, served.shielded_until);
        self.count(if answered { "handler: answered" } else { "handler: dropped" });
        let Some(over_at) = over_at.filter(|_| !killed) else { return };
        // A process that was stopped could not drop anything.
        let thawed_at = match self.thawed_at.get(&server) {
            Some(None) => return,
            Some(Some(at)) => *at,
            None => Instant::ZERO,
        };
        let grace = std::time::Duration::from_millis(self.world.grace_ms);
        let until = over_at.max(shielded_until).max(thawed_at) + grace;
        self.demand(now <= until, Check::Grace, || {
            format!("link {link}: the handler of {id} ended at {now}; nobody waited since {over_at}, its grace ended at {until}")
        });
    }
}

impl Served {
    const fn new(now: Instant) -> Self {
        Self {
            got_at: now,
            reported_at: now,
            handler: Handler::NotStarted,
            cancelled: None,
            over_at: None,
            shielded_until: Instant::ZERO,
            finals: 0,
            progress: None,
            listen: None,
        }
    }
}

pub(super) fn integer(id: &RequestId) -> Option<i64> {
    match id {
        RequestId::Integer(id) => Some(*id),
        RequestId::String(_) => None,
    }
}

/// The number that stands behind a name.
pub(super) fn number_after(line: &str, name: &str) -> Option<u64> {
    let rest = line.get(line.find(name)? + name.len()..)?;
    let end = rest.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

/// The hash of a request but for its id and its progress token.
fn hash_without_ids(line: &str) -> u64 {
    let mut hash = 0;
    let mut rest = line;
    for name in ["\"id\":", "\"progressToken\":"] {
        let Some(at) = rest.find(name) else { continue };
        let (before, after) = rest.split_at(at + name.len());
        hash = mix_bytes(hash, before.as_bytes());
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    mix(mix_bytes(hash, rest.as_bytes()), 1)
}
