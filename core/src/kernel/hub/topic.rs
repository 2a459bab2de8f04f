//! What can be published: kinds, and the topics of a hub, each with its text made once for all streams.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::{BitAnd, BitOr};

use crate::id::RequestId;
use crate::rpc::{encode, method};
use crate::subscription::Refetch;

/// Kinds of change notifications: what a server offers, and what of it an acknowledgement may honour (rule L1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

impl Kinds {
    /// None.
    pub const NONE: Self = Self(0);
    /// `notifications/tools/list_changed`.
    pub const TOOLS: Self = Self(1);
    /// `notifications/prompts/list_changed`.
    pub const PROMPTS: Self = Self(1 << 1);
    /// `notifications/resources/list_changed`.
    pub const RESOURCES: Self = Self(1 << 2);
    /// `notifications/resources/updated`, of the resources that a client names.
    pub const UPDATES: Self = Self(1 << 3);
    /// `notifications/tasks`, of the tasks that a client names (rule K6).
    pub const TASKS: Self = Self(1 << 4);
    /// Those of the core protocol: all but [`TASKS`](Self::TASKS).
    pub const CORE: Self = Self(0b1111);

    /// Whether all of `kinds` are among these.
    #[must_use]
    pub const fn contains(self, kinds: Self) -> bool {
        self.0 & kinds.0 == kinds.0
    }

    /// The kind of a thing that a client asked for.
    pub(super) const fn of(asked: &Refetch) -> Self {
        match asked {
            Refetch::Tools => Self::TOOLS,
            Refetch::Prompts => Self::PROMPTS,
            Refetch::Resources => Self::RESOURCES,
            Refetch::Resource { .. } => Self::UPDATES,
            Refetch::Task { .. } => Self::TASKS,
        }
    }
}

impl BitOr for Kinds {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Kinds {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// What a topic costs beside its name, in bytes: itself, its place among the others and the list of who watches it. An
/// estimate that is rather too high.
const TOPIC_COST: usize = 512;

/// What a stream that watches a topic costs, in bytes: its entry there, and the topic's entry in the stream.
pub(super) const WATCH_COST: usize = 64;

/// One thing that streams can watch, with the text of its notification after the subscription's id.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) watched: Refetch,
    /// Where the hub finds it.
    pub(super) key: Box<str>,
    /// What closes `params` and the message; a task's state stands before.
    tail: Box<[u8]>,
}

/// The key of a list, which has no name.
pub(super) const fn list_key(kind: &Refetch) -> &'static str {
    match kind {
        Refetch::Tools => "t",
        Refetch::Prompts => "p",
        Refetch::Resources => "r",
        Refetch::Resource { .. } | Refetch::Task { .. } => "",
    }
}

pub(super) fn resource_key(uri: &str) -> String {
    format!("u{uri}")
}

/// A task belongs to its owner: whoever asks for the same id as somebody else watches another topic (rule K5).
pub(super) fn task_key(owner: Option<&str>, id: &str) -> String {
    match owner {
        None => format!("k-{id}"),
        Some(owner) => format!("k{}:{owner}{id}", owner.len()),
    }
}

impl Topic {
    /// The topic of a thing that `owner` asked for.
    pub(super) fn new(watched: Refetch, owner: Option<&str>) -> Self {
        let key = match &watched {
            Refetch::Tools | Refetch::Prompts | Refetch::Resources => list_key(&watched).into(),
            Refetch::Resource { uri } => resource_key(uri),
            Refetch::Task { task_id } => task_key(owner, task_id),
        };
        let mut tail = Vec::new();
        if let Refetch::Resource { uri } = &watched {
            tail.extend_from_slice(b",\"uri\":");
            encode::string(&mut tail, uri);
        }
        tail.extend_from_slice(b"}}");
        Self { watched, key: key.into(), tail: tail.into() }
    }

    /// What it is charged with as long as anybody watches it, in bytes: its name stands in it three times, as what is watched,
    /// as its key and as text.
    pub(super) fn cost(&self) -> usize {
        TOPIC_COST + 3 * self.key.len()
    }

    /// The notification's method.
    pub(super) const fn method(&self) -> &'static str {
        match self.watched {
            Refetch::Tools => method::TOOLS_LIST_CHANGED,
            Refetch::Prompts => method::PROMPTS_LIST_CHANGED,
            Refetch::Resources => method::RESOURCES_LIST_CHANGED,
            Refetch::Resource { .. } => method::RESOURCES_UPDATED,
            Refetch::Task { .. } => method::TASKS_NOTICE,
        }
    }

    /// Appends its notification for the subscription `id` (rule L2). `state` is a task's, a JSON object.
    pub(super) fn encode(&self, out: &mut Vec<u8>, id: &RequestId, state: Option<&str>) {
        begin(out, self.method(), id);
        if let Some(members) = state.and_then(|state| state.strip_prefix('{')) {
            // With the brace that closes the state: it closes `params`.
            if members.trim_start().starts_with('}') {
                out.extend_from_slice(b"}}");
            } else {
                out.push(b',');
                encode::raw(out, members);
                out.push(b'}');
            }
        } else {
            out.extend_from_slice(&self.tail);
        }
    }
}

/// Appends a notification of a subscription up to and with its `_meta`.
fn begin(out: &mut Vec<u8>, method: &str, id: &RequestId) {
    out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"method\":\"");
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(b"\",\"params\":{\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":");
    encode::id(out, id);
    out.push(b'}');
}

/// Appends the acknowledgement of a subscription that honours these, which stand in the order of their kinds (rule L1).
pub(super) fn acknowledge<'a>(out: &mut Vec<u8>, id: &RequestId, honoured: impl Iterator<Item = &'a Refetch>) {
    begin(out, method::ACKNOWLEDGED, id);
    out.extend_from_slice(b",\"notifications\":{");
    let mut open: Option<Kinds> = None;
    for watched in honoured {
        let kind = Kinds::of(watched);
        let (member, name) = match watched {
            Refetch::Tools => ("toolsListChanged", None),
            Refetch::Prompts => ("promptsListChanged", None),
            Refetch::Resources => ("resourcesListChanged", None),
            Refetch::Resource { uri } => ("resourceSubscriptions", Some(uri)),
            Refetch::Task { task_id } => ("taskIds", Some(task_id)),
        };
        if open != Some(kind) {
            close_list(out, open);
            if open.is_some() {
                out.push(b',');
            }
            encode::string(out, member);
            out.push(b':');
            out.push(if name.is_some() { b'[' } else { b't' });
            if name.is_none() {
                out.extend_from_slice(b"rue");
            }
        } else {
            out.push(b',');
        }
        if let Some(name) = name {
            encode::string(out, name);
        }
        open = Some(kind);
    }
    close_list(out, open);
    out.extend_from_slice(b"}}}");
}

fn close_list(out: &mut Vec<u8>, open: Option<Kinds>) {
    if open == Some(Kinds::UPDATES) || open == Some(Kinds::TASKS) {
        out.push(b']');
    }
}
