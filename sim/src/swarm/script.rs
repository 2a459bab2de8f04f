//! The one alphabet of the simulated world, and its text form: a world and a list of events, one JSON value a line.
//!
//! A script says everything: no seed is in it, and the same script is the same run. An event that names what is not there
//! (a call that was never made, a process that is down) does nothing, so any part of a script is a script. That is what
//! makes a failing one shrink.

mod check;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::mutant::Mutant;

/// Most clients and most replicas of a world.
pub const MOST: usize = 16;
/// Longest time that an event can name, in milliseconds: an hour of virtual time.
pub const LONGEST_MS: u64 = 3_600_000;
/// Most events of a script.
pub const MOST_EVENTS: usize = 100_000;
/// Furthest that a wall clock can jump, in milliseconds: ten years.
const FURTHEST_MS: i64 = 10 * 365 * 24 * 3_600_000;

/// How a client reaches its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "the two transports of the protocol")]
pub enum Shape {
    /// A child process of its own behind one multiplexed link; `notifications/cancelled` cancels.
    Stdio,
    /// A POST for each request, to any of the replicas; the end of the response stream cancels.
    Http,
}

/// Which ledger the servers share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "the real one and the fake that is checked against it")]
pub enum Form {
    /// The fake, in memory.
    Memory,
    /// A real SQLite file.
    Sqlite,
}

/// The world before the first event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "a file says all of it")]
pub struct World {
    /// One entry for each client.
    pub clients: Vec<Shape>,
    /// Servers behind HTTP.
    pub replicas: usize,
    /// What they and the children of the clients share.
    pub ledger: Form,
    /// How long a message takes, each way, in milliseconds.
    pub delay_ms: u64,
    /// Bytes that fit into one direction of a link unread.
    pub pipe_bytes: usize,
    /// Requests in flight at one connection of a server.
    pub server_in_flight: usize,
    /// Progress messages that wait in a server's outbound buffer.
    pub server_buffer: usize,
    /// The server's own maximum for a request, in milliseconds.
    pub server_max_ms: u64,
    /// The server's own limit without progress, in milliseconds; 0 is none.
    pub server_idle_ms: u64,
    /// How long a handler may go on once nobody waits for it, in milliseconds.
    pub grace_ms: u64,
    /// Calls in flight at one client.
    pub client_in_flight: usize,
    /// A client's limit without progress, in milliseconds.
    pub idle_ms: u64,
    /// A client's maximum for a call, in milliseconds.
    pub max_ms: u64,
    /// Attempts of a call at most.
    pub attempts: u16,
    /// How long a link may take no byte before it counts as lost, in milliseconds.
    pub write_stall_ms: u64,
    /// Whether a new link is asked `server/discover` first.
    pub probe: bool,
    /// How long a result is replayed, in milliseconds.
    pub retention_ms: u64,
    /// How old a key may be, in milliseconds: keys carry the time when the world began, and their tombstones go with them.
    /// 0: keys carry no time, and their tombstones stay. It needs the real ledger.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub horizon_ms: u64,
    /// Processes that do the work of tasks. They need the real ledger; with the fake there are no tasks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub workers: usize,
    /// How long a worker has a task before another may take it, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lease_ms: u64,
    /// What is broken on purpose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutant: Option<Mutant>,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What a call asks a server to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(clippy::exhaustive_enums, reason = "the alphabet")]
pub enum Tool {
    /// Reads; `bytes` long is the answer.
    Read {
        /// Length of the answer.
        bytes: u32,
    },
    /// Adds to the account, without a key: unsafe to repeat.
    Add {
        /// How much. More than 100 is refused by the business.
        amount: u32,
    },
    /// Adds to the account, once for the key.
    AddOnce {
        /// The number of the key.
        key: u32,
        /// How much; another amount under the same key is another call.
        amount: u32,
    },
    /// Works in steps with progress in between, and can be stopped there.
    Work {
        /// Steps.
        steps: u32,
        /// How long each takes, in milliseconds.
        step_ms: u32,
    },
    /// Reports each step as a message that is not dropped: it waits for a reader that is slow.
    Flood {
        /// Steps.
        steps: u32,
        /// Length of the text of each.
        bytes: u32,
    },
    /// Becomes a durable task, which the client then follows to its end.
    Job {
        /// The number of its key, if it has one.
        key: Option<u32>,
        /// Steps that its worker stores.
        steps: u32,
        /// How long each takes, in milliseconds.
        step_ms: u32,
    },
    /// Never answers, and reports nothing.
    Hang,
    /// Works on for this long in a section that is not cancelled, whatever happens, then tries to answer.
    Deaf {
        /// How long, in milliseconds.
        ms: u32,
    },
    /// Works on for this long and does not look whether anybody waits: it is dropped at the end of its grace.
    Stubborn {
        /// How long, in milliseconds.
        ms: u32,
    },
    /// Answers with an error.
    Fail,
    /// Panics.
    Panic,
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(clippy::exhaustive_enums, reason = "two directions")]
pub enum Way {
    /// To the server.
    Up,
    /// To the client.
    Down,
}

/// A server process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(clippy::exhaustive_enums, reason = "the kinds of server processes of a world")]
pub enum Server {
    /// The child process of this client (stdio).
    Child(usize),
    /// A replica behind HTTP.
    Replica(usize),
    /// A process that does the work of tasks, and serves nobody.
    Worker(usize),
}

/// What happens.
///
/// Faults of a link are those that a byte stream can have: see [`Pipe`](crate::world::Pipe). Messages of different HTTP
/// exchanges overtake each other, since each has its own stream; what is doubled is a whole POST, by a proxy that sends it
/// again to another server when the first does not answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[expect(clippy::exhaustive_enums, reason = "the alphabet")]
pub enum Event {
    /// A client starts a call. `call` is its name from then on.
    Call {
        /// The client.
        client: usize,
        /// The name of the call, unique for the client.
        call: u32,
        /// What it asks for.
        tool: Tool,
    },
    /// The application gives a call up.
    Cancel {
        /// The client.
        client: usize,
        /// The call.
        call: u32,
    },
    /// The application asks for the end of the task that a call became.
    CancelTask {
        /// The client.
        client: usize,
        /// The call.
        call: u32,
    },
    /// The application drops a call.
    Drop {
        /// The client.
        client: usize,
        /// The call.
        call: u32,
    },
    /// A client subscribes to changes of a list.
    Listen {
        /// The client.
        client: usize,
        /// The name of the subscription, unique for the client.
        listen: u32,
    },
    /// The application drops a subscription.
    Unlisten {
        /// The client.
        client: usize,
        /// The subscription.
        listen: u32,
    },
    /// The list changes, and each server process publishes that.
    Change,
    /// Time passes.
    Wait {
        /// How much, in milliseconds.
        ms: u64,
    },
    /// This many tasks are polled, and no time passes.
    Step {
        /// How many.
        polls: u32,
    },
    /// From now on a message of this client's links takes so long.
    Delay {
        /// The client.
        client: usize,
        /// How long, in milliseconds.
        ms: u64,
    },
    /// A proxy keeps what goes this way; also the news that a stream was closed.
    Hold {
        /// The client.
        client: usize,
        /// Which way.
        way: Way,
    },
    /// The proxy lets it go.
    Release {
        /// The client.
        client: usize,
        /// Which way.
        way: Way,
    },
    /// All connections of this client break, and what was on its way is lost.
    Cut {
        /// The client.
        client: usize,
    },
    /// The client stops reading.
    StopReading {
        /// The client.
        client: usize,
    },
    /// The client reads again.
    Read {
        /// The client.
        client: usize,
    },
    /// A server process stops: a debugger, a long garbage collection, a machine that is out of memory.
    Freeze(Server),
    /// It goes on.
    Thaw(Server),
    /// A server process dies.
    Crash(Server),
    /// A server process dies in its next transaction.
    DieInCommit {
        /// Which.
        server: Server,
        /// Whether the transaction is durable by then.
        committed: bool,
    },
    /// A server process is asked to end: it finishes what runs, and admits nothing more.
    Drain(Server),
    /// A replica or worker that is down starts again.
    Restart(Server),
    /// A server process collects what the ledger may forget.
    Collect(Server),
    /// A client process dies.
    CrashClient {
        /// The client.
        client: usize,
    },
    /// A client that is gone starts again. Its application remembers its keys, and nothing else.
    RestartClient {
        /// The client.
        client: usize,
    },
    /// The application closes the client.
    Close {
        /// The client.
        client: usize,
    },
    /// The wall clock of all servers jumps.
    Clock {
        /// How far, in milliseconds.
        ms: i64,
    },
    /// A proxy sends the next POST of this client twice: the first answer is lost.
    Double {
        /// The client.
        client: usize,
    },
    /// From now on a transaction waits so long before it begins.
    Disk {
        /// How long, in milliseconds.
        ms: u64,
    },
}

/// A world and what happens in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a file says all of it")]
pub struct Script {
    /// The world before the first event.
    pub world: World,
    /// What happens, in order. After the last event everything is healed, and has to come to rest.
    pub events: Vec<Event>,
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
#[non_exhaustive]
pub struct ScriptError {
    /// Where.
    pub line: usize,
    /// What.
    pub what: String,
}

impl Script {
    /// Its text: the world, then one event a line.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        let json = |value: Result<String, serde_json::Error>| value.unwrap_or_default();
        // A string takes all that is written.
        let _ = writeln!(text, "{}", json(serde_json::to_string(&self.world)));
        for event in &self.events {
            let _ = writeln!(text, "{}", json(serde_json::to_string(event)));
        }
        text
    }

    /// Reads a text. Empty lines and lines that start with `#` are skipped.
    ///
    /// # Errors
    /// The first line that is wrong, and what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, ScriptError> {
        let mut lines = text.lines().zip(1..).filter(|(text, _)| {
            let text = text.trim_start();
            !text.is_empty() && !text.starts_with('#')
        });
        let Some((first, line)) = lines.next() else {
            return Err(ScriptError { line: 1, what: "the file is empty: its first line is the world".to_owned() });
        };
        let world: World = read(first, line)?;
        world.check().map_err(|what| ScriptError { line, what })?;
        let mut events = Vec::new();
        for (text, line) in lines {
            let event: Event = read(text, line)?;
            event.check(&world).map_err(|what| ScriptError { line, what })?;
            if events.len() == MOST_EVENTS {
                return Err(ScriptError { line, what: format!("there are more than {MOST_EVENTS} events") });
            }
            events.push(event);
        }
        Ok(Self { world, events })
    }
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, line: usize) -> Result<T, ScriptError> {
    serde_json::from_str(text).map_err(|error| {
        let what = error.to_string();
        // Each value stands on a line of its own, so the parser's line is always 1.
        let what = match what.rsplit_once(" at line 1 column ") {
            Some((what, column)) => format!("{what} (column {column})"),
            None => what,
        };
        ScriptError { line, what }
    })
}
