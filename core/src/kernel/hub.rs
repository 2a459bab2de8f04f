//! The subscription hub of a server: one call publishes a change to every `subscriptions/listen` stream that asked for it.
//!
//! ```text
//!   publish ──► registry: topic ──► each watching Stream: mark (listener) ──► ring, once, whoever waits
//!   link has room ──► engine ──► Subscription::take ──► one notification, encoded where it is written
//! ```
//!
//! Publishing marks and rings, and writes nothing: what a stream is told is decided when its link takes it, so a client that
//! reads nothing costs a bit for each thing that it asked for, and nobody else waits for it. The decisions are those of
//! [`listener`](mod@crate::listener). Lock order: registry, then stream; wakers run outside of both.

mod registry;
mod stream;
mod topic;

use alloc::boxed::Box;
use alloc::sync::Arc as StdArc;
use alloc::vec::Vec;

pub use stream::{Change, Subscription, Update};
pub(super) use stream::{Sink, Taken};
pub use topic::Kinds;

use super::context::Context;
use super::service::{Answer, Call};
use super::sync::{Arc, Counter, Mutex};
use super::tasks::{self, TaskAudience};
use crate::listener;
use crate::rpc::{RpcError, code, members};
use crate::subscription::{Filter, FilterError, Refetch};
use registry::Registry;

/// Settings of a [`Hub`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct HubConfig {
    /// What the server offers; what a client asks for beyond it is left out of the acknowledgement (rule L1). Default
    /// [`Kinds::CORE`]. [`Tools`](super::Tools) leaves out by itself what it does not have.
    pub offers: Kinds,
    /// Open subscriptions, of all connections; each more is refused with -31001. Default 16,384.
    pub subscriptions: usize,
    /// Bytes that all subscriptions together may take for what they watch; what would go beyond is refused with -31001. A
    /// thing that is watched is charged with 512 bytes and three times its name (URI, task id), once for all who watch it,
    /// and each stream that watches it with 64. Default 64 MiB.
    pub name_bytes: usize,
    /// Bytes of task states that may wait for one stream. A stream whose client is further behind ends, with an error that
    /// makes the client listen and read anew. Default 256 KiB.
    pub state_bytes: usize,
}

impl Default for HubConfig {
    fn default() -> Self {
        let state_bytes = listener::Config::default().bytes;
        Self { offers: Kinds::CORE, subscriptions: 16_384, name_bytes: 64 << 20, state_bytes }
    }
}

/// What a hub has counted, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HubCounters {
    /// Open subscriptions now.
    pub open: usize,
    /// Things that are watched now: lists, resources, tasks.
    pub topics: usize,
    /// Bytes that what is watched now is charged with: see [`HubConfig::name_bytes`].
    pub name_bytes: usize,
    /// Subscriptions that were opened.
    pub opened: u64,
    /// Subscriptions that were refused at a limit.
    pub refused: u64,
    /// Publications, whoever watched.
    pub published: u64,
    /// Marks that they left: one for each stream that did not have it yet.
    pub marked: u64,
    /// Publications that a stream had been marked for already.
    pub coalesced: u64,
    /// Streams that ended because the states that waited were too many bytes.
    pub behind: u64,
}

/// Publishes changes to the listens of a server. Clones share one; a service keeps one and hands others to whatever changes
/// something.
///
/// ```
/// use steady_core::kernel::{Hub, Tools};
///
/// let hub = Hub::new();
/// let tools = Tools::new("shop", "1.0.0").subscriptions(&hub); // serves subscriptions/listen, and says so
/// hub.tools_changed(); // from any thread; it never waits for a reader
/// # drop(tools);
/// ```
#[derive(Clone, Default)]
pub struct Hub(Arc<Shared>);

#[derive(Default)]
pub(super) struct Shared {
    config: HubConfig,
    registry: Mutex<Registry>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    opened: Counter,
    refused: Counter,
    published: Counter,
    marked: Counter,
    coalesced: Counter,
    behind: Counter,
}

/// Why a subscription was not opened, or does not watch a further thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The limit of open subscriptions is reached.
    #[error("this server has {0} open subscriptions, its limit; listen again later")]
    Full(usize),
    /// The limit of names is reached.
    #[error("this server's subscriptions name as many resources and tasks as it can keep; listen again later")]
    TooManyNames,
    /// This subscription watches as much as one may.
    #[error("a subscription watches at most {0} things")]
    TooMuch(usize),
}

impl From<SubscribeError> for RpcError {
    fn from(error: SubscribeError) -> Self {
        Self::new(code::OVERLOADED, alloc::string::ToString::to_string(&error))
    }
}

/// The text that was published as the state of a task is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state of a task is a JSON object, and has no _meta: its notification has its own")]
#[non_exhaustive]
pub struct BadState;

impl Hub {
    /// A hub with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A hub with these settings.
    #[must_use]
    pub fn with_config(config: HubConfig) -> Self {
        Self(Arc::new(Shared { config, ..Shared::default() }))
    }

    /// What it offers.
    #[must_use]
    pub fn offers(&self) -> Kinds {
        self.0.config.offers
    }

    /// The list of tools has changed.
    pub fn tools_changed(&self) {
        self.publish(topic::list_key(&Refetch::Tools), None);
    }

    /// The list of prompts has changed.
    pub fn prompts_changed(&self) {
        self.publish(topic::list_key(&Refetch::Prompts), None);
    }

    /// The list of resources, or of their templates, has changed.
    pub fn resources_changed(&self) {
        self.publish(topic::list_key(&Refetch::Resources), None);
    }

    /// The resource with this URI has changed.
    pub fn resource_updated(&self, uri: &str) {
        self.publish(&topic::resource_key(uri), None);
    }

    /// Every watched resource whose URI `changed` picks has changed: for changes that show in many URIs of a template.
    pub fn resources_updated(&self, changed: impl Fn(&str) -> bool) {
        let uris = self.watched_resources();
        uris.iter().filter(|uri| changed(uri)).for_each(|uri| self.resource_updated(uri));
    }

    /// A task has changed; `state` is its whole state, a JSON object without `_meta` (rule K6). `owner` is the authenticated
    /// caller that it belongs to, if there is one: nobody else hears of it, whatever they ask for (rule K5).
    ///
    /// # Errors
    /// [`BadState`].
    pub fn task_changed(&self, owner: Option<&str>, id: &str, state: &str) -> Result<(), BadState> {
        let state = state.trim_start();
        let [None] = members(state, &["_meta"]).ok_or(BadState)? else { return Err(BadState) };
        self.publish(&topic::task_key(owner, id), Some(state));
        Ok(())
    }

    /// The resources that somebody watches: what a poller needs to look at. A copy, in the order of their URIs.
    #[must_use]
    pub fn watched_resources(&self) -> Vec<Box<str>> {
        let uri = |watched: &Refetch| if let Refetch::Resource { uri } = watched { Some(uri.clone()) } else { None };
        self.0.registry.lock().watched().filter_map(uri).collect()
    }

    /// The ids of the tasks that somebody watches, each once. A copy.
    #[must_use]
    pub fn watched_tasks(&self) -> Vec<Box<str>> {
        let id = |watched: &Refetch| if let Refetch::Task { task_id } = watched { Some(task_id.clone()) } else { None };
        let mut ids: Vec<_> = self.0.registry.lock().watched().filter_map(id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Answers a `subscriptions/listen` request: return it from [`Service::call`](super::Service::call).
    pub fn listen(&self, call: &Call, cx: &Context) -> Answer {
        self.listen_within(self.offers(), call, cx)
    }

    /// Like [`listen`](Self::listen), for a server that offers only these of the hub's kinds.
    pub fn listen_within(&self, kinds: Kinds, call: &Call, cx: &Context) -> Answer {
        match self.read(kinds & self.offers(), call, cx.principal()) {
            Ok(subscription) => Answer::Listen(subscription),
            Err(error) => Answer::Ready(Err(error)),
        }
    }

    fn read(&self, kinds: Kinds, call: &Call, owner: Option<&str>) -> Result<Subscription, RpcError> {
        let malformed = || RpcError::invalid_params("params.notifications must be an object: what to hear of");
        let [notifications] = members(&call.params, &["notifications"]).ok_or_else(malformed)?;
        let filter = Filter::parse(notifications.ok_or_else(malformed)?)
            .map_err(|error: FilterError| RpcError::invalid_params(alloc::format!("params.notifications: {error}")))?;
        let of_tasks = |asked: &Refetch| Kinds::of(asked) == Kinds::TASKS;
        if kinds.contains(Kinds::TASKS) && filter.refetch().iter().any(of_tasks) && !tasks::declares_tasks(&call.params)
        {
            return Err(tasks::undeclared());
        }
        let honoured = filter.refetch().iter().filter(|asked| kinds.contains(Kinds::of(asked)));
        Ok(self.subscribe(owner, honoured.cloned())?)
    }

    /// Opens a subscription that whoever holds it polls by itself. `owner` is the authenticated caller.
    ///
    /// # Errors
    /// [`SubscribeError`] at a limit.
    pub fn subscribe(
        &self,
        owner: Option<&str>,
        watched: impl IntoIterator<Item = Refetch>,
    ) -> Result<Subscription, SubscribeError> {
        let opened = Subscription::open(&self.0, owner, watched);
        let count = if opened.is_ok() { &self.0.counts.opened } else { &self.0.counts.refused };
        count.add_one();
        opened
    }

    /// What was counted, and what it holds.
    #[must_use]
    pub fn counters(&self) -> HubCounters {
        let Counts { opened, refused, published, marked, coalesced, behind } = &self.0.counts;
        let registry = self.0.registry.lock();
        HubCounters {
            open: registry.open(),
            topics: registry.topics(),
            name_bytes: registry.name_bytes(),
            opened: opened.get(),
            refused: refused.get(),
            published: published.get(),
            marked: marked.get(),
            coalesced: coalesced.get(),
            behind: behind.get(),
        }
    }

    fn publish(&self, key: &str, state: Option<&str>) {
        let Shared { registry, counts, .. } = &*self.0;
        counts.published.add_one();
        let told = registry.lock().publish(key, state);
        counts.marked.add(told.marked);
        counts.coalesced.add(told.coalesced);
        counts.behind.add(told.behind);
        told.waiting.into_iter().for_each(Sink::ring);
    }
}

/// Publishes what a [`TaskFeed`](tasks::TaskFeed) brings.
impl TaskAudience for Hub {
    fn watched(&self) -> Vec<Box<str>> {
        self.watched_tasks()
    }

    fn publish(&self, principal: &str, id: &str, state: &str) {
        let owner = Some(principal).filter(|principal| !principal.is_empty());
        // A state is an object without `_meta`: that is what the feed writes.
        let _written_here = self.task_changed(owner, id, state);
    }
}

impl core::fmt::Debug for Hub {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Hub").field("config", &self.0.config).field("counters", &self.counters()).finish()
    }
}

/// A task's state, shared by all streams that it waits for.
type State = StdArc<str>;

impl listener::Size for State {
    fn size(&self) -> usize {
        self.len()
    }
}
