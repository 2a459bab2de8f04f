//! What a new listen request looks like after a loss, and what has to be read afresh (rule L5).

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;

use crate::id::WireId;

/// What a client asked to hear of: the `notifications` object of a `subscriptions/listen` request.
///
/// Keeps the caller's own text, so that a later request says the same to the byte and members unknown to us survive
/// (rules L5, M10).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    raw: Box<str>,
    refetch: Box<[Refetch]>,
}

/// The members that this crate understands: four of the core protocol, `taskIds` of the Tasks extension.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    #[serde(default)]
    tools_list_changed: Option<bool>,
    #[serde(default)]
    prompts_list_changed: Option<bool>,
    #[serde(default)]
    resources_list_changed: Option<bool>,
    #[serde(default)]
    resource_subscriptions: Option<Vec<String>>,
    #[serde(default)]
    task_ids: Option<Vec<String>>,
}

impl Filter {
    /// The most resource URIs and task ids together, repetitions not counted. Each is one refetch after a loss.
    pub const MAX_NAMED: usize = 1024;

    /// Reads a filter from its JSON text. Also reads the honoured subset in an acknowledgement.
    ///
    /// # Errors
    /// [`FilterError`] if the text is no JSON object, a known member has the wrong type or stands there twice, or the
    /// filter names more than [`Filter::MAX_NAMED`] things.
    pub fn parse(json: &str) -> Result<Self, FilterError> {
        let json = json.trim_matches([' ', '\t', '\n', '\r']);
        if !json.starts_with('{') {
            return Err(FilterError::Malformed);
        }
        let members: Members = serde_json::from_str(json).map_err(|_| FilterError::Malformed)?;
        let refetch = refetches(members)?;
        Ok(Self { raw: json.into(), refetch })
    }

    /// The JSON text as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.raw
    }

    /// What has to be read afresh for this filter, in a fixed order, each thing once.
    #[must_use]
    pub fn refetch(&self) -> &[Refetch] {
        &self.refetch
    }
}

fn refetches(members: Members) -> Result<Box<[Refetch]>, FilterError> {
    let mut list = Vec::new();
    let lists = [
        (members.tools_list_changed, Refetch::Tools),
        (members.prompts_list_changed, Refetch::Prompts),
        (members.resources_list_changed, Refetch::Resources),
    ];
    list.extend(lists.into_iter().filter_map(|(asked, refetch)| (asked == Some(true)).then_some(refetch)));
    let uris = members.resource_subscriptions.unwrap_or_default();
    let tasks = members.task_ids.unwrap_or_default();
    let named = uris
        .iter()
        .map(|uri| Refetch::Resource { uri: uri.as_str().into() })
        .chain(tasks.iter().map(|id| Refetch::Task { task_id: id.as_str().into() }));
    let mut seen = BTreeSet::new();
    for refetch in named {
        if seen.insert(refetch.clone()) {
            if seen.len() > Filter::MAX_NAMED {
                return Err(FilterError::TooManyNames);
            }
            list.push(refetch);
        }
    }
    Ok(list.into())
}

/// Why a text is no filter. Caller misuse, or a bad acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// Not a JSON object, or a known member of the wrong type or given twice.
    #[error("a subscription filter is a JSON object with members of the documented types")]
    Malformed,
    /// More than [`Filter::MAX_NAMED`] resources and tasks.
    #[error("a subscription filter names at most 1024 resources and tasks")]
    TooManyNames,
}

/// One authoritative read that makes good for notifications that may have been missed (rule L5).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refetch {
    /// `tools/list`, for `toolsListChanged`. All pages.
    Tools,
    /// `prompts/list`, for `promptsListChanged`. All pages.
    Prompts,
    /// `resources/list`, for `resourcesListChanged`. All pages.
    Resources,
    /// `resources/read`, for one of `resourceSubscriptions`.
    Resource {
        /// The resource.
        uri: Box<str>,
    },
    /// `tasks/get`, for one of `taskIds`.
    Task {
        /// The task.
        task_id: Box<str>,
    },
}

impl Refetch {
    /// The method to call.
    #[must_use]
    pub const fn method(&self) -> &'static str {
        match self {
            Self::Tools => "tools/list",
            Self::Prompts => "prompts/list",
            Self::Resources => "resources/list",
            Self::Resource { .. } => "resources/read",
            Self::Task { .. } => "tasks/get",
        }
    }

    /// The parameter that says which one, with its value.
    #[must_use]
    pub const fn argument(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::Tools | Self::Prompts | Self::Resources => None,
            Self::Resource { uri } => Some(("uri", uri)),
            Self::Task { task_id } => Some(("taskId", task_id)),
        }
    }

    /// What to read afresh for a notification: its method, and a function that looks a string member of its parameters up.
    /// None for a notification that names nothing of these.
    #[must_use]
    pub fn of_notice(method: &str, member: impl FnOnce(&str) -> Option<Box<str>>) -> Option<Self> {
        match method {
            "notifications/tools/list_changed" => Some(Self::Tools),
            "notifications/prompts/list_changed" => Some(Self::Prompts),
            "notifications/resources/list_changed" => Some(Self::Resources),
            "notifications/resources/updated" => member("uri").map(|uri| Self::Resource { uri }),
            "notifications/tasks" => member("taskId").map(|task_id| Self::Task { task_id }),
            _ => None,
        }
    }

    /// The member that identifies an item over all reads and notifications: de-duplicate by it (rule L5).
    #[must_use]
    pub const fn stable_identifier(&self) -> &'static str {
        match self {
            Self::Tools | Self::Prompts => "name",
            Self::Resources | Self::Resource { .. } => "uri",
            Self::Task { .. } => "taskId",
        }
    }
}

/// How a subscription is taken up, and taken up again after a loss (`SUB-2`, `SUB-3`): the content of one listen request.
///
/// First send the listen request; once it is acknowledged, run the refetches. In this order a change between the two is
/// seen twice rather than never. Only reads are in the plan: a lost response is no reason to repeat a mutation. The client
/// machine makes it, and nobody else can.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecoveryPlan {
    wire: WireId,
    replaces: Option<WireId>,
    filter: Box<Filter>,
}

impl RecoveryPlan {
    /// `replaces` is the request before it whose stream was open at some time; `wire` is newer than every id that was used.
    pub(crate) fn new(replaces: Option<WireId>, wire: WireId, filter: Box<Filter>) -> Self {
        debug_assert!(replaces.is_none_or(|lost| lost < wire), "SUB-2: a recovery needs a new id");
        Self { wire, replaces, filter }
    }

    /// The id of the listen request.
    #[must_use]
    pub const fn wire(&self) -> WireId {
        self.wire
    }

    /// The last request that had an open stream, which this one takes the place of; none for a first one.
    #[must_use]
    pub const fn replaces(&self) -> Option<WireId> {
        self.replaces
    }

    /// Its filter: the one of every request of this subscription, to the byte.
    #[must_use]
    pub const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Always false: streams are not resumable, no position is ever sent (rules H7, L5).
    #[must_use]
    pub const fn send_last_event_id(&self) -> bool {
        false
    }

    /// What to read once the stream is acknowledged: nothing for a first one, else all that the filter covers.
    #[must_use]
    pub fn refetch(&self) -> &[Refetch] {
        if self.replaces.is_some() { self.filter.refetch() } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn every_member_has_its_refetch() {
        let text = r#" {"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,
            "resourceSubscriptions":["file:///b","file:///a","file:///b"],"taskIds":["t1"],"com.example/x":[1]} "#;
        let filter = Filter::parse(text).unwrap();
        assert_eq!(filter.as_str(), text.trim());
        let calls: Vec<_> = filter
            .refetch()
            .iter()
            .map(|refetch| (refetch.method(), refetch.argument(), refetch.stable_identifier()))
            .collect();
        assert_eq!(
            calls,
            [
                ("tools/list", None, "name"),
                ("prompts/list", None, "name"),
                ("resources/list", None, "uri"),
                ("resources/read", Some(("uri", "file:///b")), "uri"),
                ("resources/read", Some(("uri", "file:///a")), "uri"),
                ("tasks/get", Some(("taskId", "t1")), "taskId"),
            ]
        );
    }

    #[test]
    fn what_was_not_asked_for_is_not_read() {
        for text in ["{}", r#"{"toolsListChanged":false,"taskIds":[],"promptsListChanged":null}"#] {
            assert_eq!(Filter::parse(text).unwrap().refetch(), []);
        }
    }

    #[test]
    fn malformed_filters_are_refused() {
        let bad = [
            "",
            "[]",
            "[true,true,true,[],[]]",
            "null",
            "{",
            "{} {}",
            r#"{"toolsListChanged":1}"#,
            r#"{"taskIds":["a",2]}"#,
            r#"{"taskIds":[],"taskIds":["a"]}"#,
        ];
        for text in bad {
            assert_eq!(Filter::parse(text), Err(FilterError::Malformed), "{text}");
        }
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let names = |count: usize| {
            let ids: Vec<String> = (0..count).map(|id| format!("\"{id}\"")).collect();
            format!(r#"{{"taskIds":[{}]}}"#, ids.join(","))
        };
        assert!(Filter::parse(&names(Filter::MAX_NAMED)).is_ok());
        assert_eq!(Filter::parse(&names(Filter::MAX_NAMED + 1)), Err(FilterError::TooManyNames));
    }

    #[test]
    fn only_what_follows_an_open_stream_is_a_recovery() {
        let filter = Box::new(Filter::parse(r#"{"toolsListChanged":true}"#).unwrap());
        let first = RecoveryPlan::new(None, WireId::new(1), filter.clone());
        assert_eq!((first.refetch(), first.replaces(), first.send_last_event_id()), (&[][..], None, false));
        let second = RecoveryPlan::new(Some(WireId::new(1)), WireId::new(3), filter.clone());
        assert_eq!((second.refetch(), second.filter()), (filter.refetch(), first.filter()));
        assert!(second.wire() > WireId::new(1) && !second.send_last_event_id());
    }
}
