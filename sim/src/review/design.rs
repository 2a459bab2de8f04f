//! What somebody plans: an operation, its transport, and the policies around it. Every member has a default, the most
//! careful one that the protocol allows, but for the operation itself.

use std::time::Duration;

use serde::Deserialize;

/// A planned operation.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct Design {
    /// The operation.
    pub operation: Operation,
    /// How it is reached.
    #[serde(default)]
    pub transport: Transport,
    /// The clocks.
    #[serde(default)]
    pub timeouts: Timeouts,
    /// What the client sends again.
    #[serde(default)]
    pub retry: RetryPolicy,
    /// How one key runs once. Absent: it does not.
    pub idempotency: Option<Idempotency>,
    /// What waits for a slow reader.
    #[serde(default)]
    pub queue: Queue,
    /// What happens after a lost subscription. Absent: nothing is subscribed.
    pub recovery: Option<Recovery>,
    /// For work that outlives its call. Absent: it does not.
    pub task: Option<TaskPlan>,
}

/// What is called.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct Operation {
    /// Its name, as a tool's.
    pub name: String,
    /// What it does.
    pub effect: Effect,
    /// Where the effect happens. Default: in the server's own database.
    #[serde(default)]
    pub place: Where,
    /// Hints of the server (`readOnlyHint`, `idempotentHint`, ...). They are never a retry policy.
    #[serde(default)]
    pub annotations: std::collections::BTreeMap<String, bool>,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $word:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[expect(clippy::exhaustive_enums, reason = "the words that a file may use")]
        pub enum $name { $($(#[$of])* $word),+ }
    };
}

words! {
    /// What an operation does.
    Effect {
        /// It only reads.
        Read,
        /// It changes something.
        Mutation,
    }
}

words! {
    /// Where an effect happens.
    #[derive(Default)]
    Where {
        /// In the database that also holds the keys.
        #[default]
        Local,
        /// In another system, over a network.
        External,
    }
}

words! {
    /// A transport of the protocol.
    TransportKind {
        /// Lines over the pipes of a child process.
        Stdio,
        /// Streamable HTTP.
        Http,
    }
}

words! {
    /// How a client tells the server that a request is given up.
    CancelWay {
        /// A `notifications/cancelled` message.
        Notify,
        /// The end of the request's response stream.
        CloseStream,
        /// Nothing.
        None,
    }
}

/// How the operation is reached.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct Transport {
    /// Which one.
    pub kind: TransportKind,
    /// How the client cancels. Default: the transport's own way.
    pub cancel: Option<CancelWay>,
    /// Whether the client sends `Last-Event-ID`.
    pub last_event_id: bool,
    /// Between two comments on a quiet stream (HTTP). Zero: none.
    #[serde(with = "super::parse::length")]
    pub keep_alive: Duration,
    /// A proxy on the way.
    pub proxy: Option<Proxy>,
}

/// A proxy between client and server.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct Proxy {
    /// Whether it holds a response back until it is complete.
    #[serde(default)]
    pub buffers: bool,
    /// After how much silence it cuts a stream.
    #[serde(default, with = "super::parse::optional")]
    pub idle_timeout: Option<Duration>,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            kind: TransportKind::Stdio,
            cancel: None,
            last_event_id: false,
            keep_alive: Duration::from_secs(15),
            proxy: None,
        }
    }
}

words! {
    /// Which clock progress resets.
    Resets {
        /// None.
        None,
        /// The idle clock.
        Idle,
        /// Both clocks.
        Both,
    }
}

/// The clocks of a call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct Timeouts {
    /// The client's idle limit.
    #[serde(with = "super::parse::optional")]
    pub idle: Option<Duration>,
    /// The client's maximum.
    #[serde(with = "super::parse::optional")]
    pub max: Option<Duration>,
    /// The server's own maximum.
    #[serde(with = "super::parse::optional")]
    pub server: Option<Duration>,
    /// What progress resets.
    pub progress_resets: Resets,
    /// Whether the client asks for progress.
    pub progress_token: bool,
    /// Whether the client settles its caller at once, or waits for the server.
    pub settles_locally: bool,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            idle: Some(Duration::from_secs(30)),
            max: Some(Duration::from_secs(300)),
            server: None,
            progress_resets: Resets::Idle,
            progress_token: true,
            settles_locally: true,
        }
    }
}

words! {
    /// After which ends a client sends a request again by itself.
    Automatic {
        /// Never.
        Never,
        /// If it was never sent.
        NeverSent,
        /// Also if it may have been.
        MaybeSent,
    }
}

words! {
    /// How pauses between attempts are spread.
    JitterKind {
        /// Not at all: everybody at once.
        None,
        /// From zero to the ceiling.
        Full,
    }
}

/// What the client sends again by itself.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct RetryPolicy {
    /// When.
    pub automatic: Automatic,
    /// Attempts at most, the first included.
    pub attempts: u16,
    /// The first ceiling of a pause.
    #[serde(with = "super::parse::length")]
    pub base: Duration,
    /// The last ceiling.
    #[serde(with = "super::parse::length")]
    pub cap: Duration,
    /// How pauses are spread.
    pub jitter: JitterKind,
    /// Whether retries are bounded as a share of all calls.
    pub budget: bool,
    /// Whether every attempt has a fresh JSON-RPC id.
    pub fresh_id: bool,
    /// Whether an attempt under a key sends the stored bytes of the first one.
    pub same_arguments: bool,
    /// Whether the policy follows the server's hints.
    pub trusts_annotations: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            automatic: Automatic::NeverSent,
            attempts: 3,
            base: Duration::from_millis(250),
            cap: Duration::from_secs(8),
            jitter: JitterKind::Full,
            budget: true,
            fresh_id: true,
            same_arguments: true,
            trusts_annotations: false,
        }
    }
}

words! {
    /// Where the key comes from.
    KeySource {
        /// The business: an order, a payment. The same for every attempt of one logical operation.
        Business,
        /// The JSON-RPC id of the request.
        RequestId,
        /// A value drawn for each attempt.
        Attempt,
    }
}

words! {
    /// Where keys and results are kept.
    KeyStore {
        /// In the memory of one process.
        Memory,
        /// In one file on a local disk.
        Sqlite,
        /// In a database that replicas share.
        Postgres,
    }
}

words! {
    /// What one transaction holds.
    Boundary {
        /// Key, effect and result.
        OneTransaction,
        /// The key is checked first, the effect follows on its own.
        CheckThenAct,
        /// The effect comes first, the key is stored after it.
        ActThenStore,
        /// The key is durably started before the effect, and reported after it (for effects elsewhere).
        StartedThenReported,
    }
}

words! {
    /// What becomes of a started key whose owner is gone.
    LeaseEnd {
        /// It is in doubt until somebody looks.
        InDoubt,
        /// It is free again.
        Free,
    }
}

words! {
    /// What a replay hands out.
    Replay {
        /// A copy, decoded from stored bytes.
        Copy,
        /// The stored value itself.
        Reference,
    }
}

/// How one key runs once.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct Idempotency {
    /// Where the key comes from.
    pub key: KeySource,
    /// Where it is kept.
    pub store: KeyStore,
    /// What one transaction holds.
    pub boundary: Boundary,
    /// Whether other arguments under a known key are refused.
    #[serde(default = "yes")]
    pub refuses_other_arguments: bool,
    /// Whether the key's space is the authenticated caller's.
    #[serde(default = "yes")]
    pub scoped_to_principal: bool,
    /// What becomes of a started key whose owner is gone.
    #[serde(default = "in_doubt")]
    pub lease_end: LeaseEnd,
    /// What a replay hands out.
    #[serde(default = "copy")]
    pub replay: Replay,
    /// How long a key is remembered. Absent: for ever.
    #[serde(default, with = "super::parse::optional")]
    pub key_retention: Option<Duration>,
    /// Processes that serve the operation. Default 1.
    #[serde(default = "one")]
    pub replicas: u32,
}

const fn yes() -> bool {
    true
}
const fn one() -> u32 {
    1
}
const fn in_doubt() -> LeaseEnd {
    LeaseEnd::InDoubt
}
const fn copy() -> Replay {
    Replay::Copy
}

words! {
    /// What a full queue does.
    Full {
        /// Drops the oldest progress.
        DropOldestProgress,
        /// Drops whatever is newest, final responses too.
        DropNewest,
        /// Blocks the handler.
        Block,
    }
}

/// What waits for a slow reader.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct Queue {
    /// Progress messages at most. Zero: there is no bound.
    pub capacity: usize,
    /// Whether the newest progress of a request replaces the one that waits.
    pub coalesces: bool,
    /// What a full queue does.
    pub full: Full,
    /// Whether a final response has its place from the start.
    pub reserves_finals: bool,
    /// Whether a reader learns that something was dropped.
    pub marks_losses: bool,
    /// How long a write may stand still. Absent: for ever.
    #[serde(with = "super::parse::optional")]
    pub write_stall: Option<Duration>,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            capacity: 256,
            coalesces: true,
            full: Full::DropOldestProgress,
            reserves_finals: true,
            marks_losses: true,
            write_stall: Some(Duration::from_secs(300)),
        }
    }
}

/// What happens after a lost subscription.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct Recovery {
    /// The filter of the listen request, as its JSON object.
    pub filter: String,
    /// The methods that are read afresh.
    #[serde(default)]
    pub refetch: Vec<String>,
    /// Whether they are read before anything after the gap is used.
    #[serde(default = "yes")]
    pub refetch_first: bool,
    /// Whether the new listen has an id of its own.
    #[serde(default = "yes")]
    pub fresh_id: bool,
    /// Whether what is read twice is recognised by a stable identifier.
    #[serde(default = "yes")]
    pub deduplicates: bool,
}

words! {
    /// What an acknowledged cancellation of a task is taken for.
    CancelAck {
        /// The wish is recorded.
        Intent,
        /// The task has stopped.
        Stopped,
    }
}

/// Work that outlives its call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "plain data: what the file says")]
pub struct TaskPlan {
    /// Whether the task is durable before its creation is answered.
    #[serde(default = "yes")]
    pub durable_first: bool,
    /// What an acknowledged cancellation is taken for.
    pub cancel_ack: CancelAck,
    /// Whether the end of the creating call's stream ends the task.
    #[serde(default)]
    pub ends_with_stream: bool,
    /// Whether a key leads to the same task.
    #[serde(default = "yes")]
    pub keyed: bool,
}
