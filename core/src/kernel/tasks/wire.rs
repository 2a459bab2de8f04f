//! How a task looks on the wire: results and notifications as JSON text, and what is read from requests.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::time::Duration;

use super::{TaskState, TaskStoreError};
use crate::rpc::scan::{MAX_NESTING, Scanner};
use crate::rpc::{RpcError, code, encode, members, text};
use crate::task::{EXTENSION, Status};
use crate::time::WallTime;

/// The client's capabilities in these parameters of a request, a JSON object; `{}` if there are none.
pub(super) fn capabilities(params: &str) -> &str {
    let member = |json, name: &str| members(json, &[name]).and_then(|[member]| member);
    let meta = member(params, "_meta").unwrap_or("{}");
    member(meta, "io.modelcontextprotocol/clientCapabilities").unwrap_or("{}")
}

/// Whether the request with these parameters declares the extension: nothing is inferred from an earlier one (rule M9).
#[must_use]
pub fn declares_tasks(params: &str) -> bool {
    let extensions = members(capabilities(params), &["extensions"]).and_then(|[member]| member);
    let tasks = extensions.and_then(|json| members(json, &[EXTENSION])).and_then(|[member]| member);
    tasks.is_some_and(|json| json.starts_with('{'))
}

/// The answer to a client that did not declare the extension (rule K5).
#[must_use]
pub fn undeclared() -> RpcError {
    RpcError::missing_capability(&format!(r#"{{"extensions":{{"{EXTENSION}":{{}}}}}}"#))
}

/// `params.taskId`.
pub(super) fn task_id(params: &str) -> Result<String, RpcError> {
    let id = members(params, &["taskId"]).and_then(|[id]| id).and_then(text);
    id.map(Into::into).ok_or_else(|| RpcError::invalid_params("params.taskId must be a string, the id of a task"))
}

/// Answers as JSON text, by key.
type Responses = Vec<(Box<str>, Box<str>)>;

/// `params.inputResponses`, by key (rule K4).
pub(super) fn input_responses(params: &str) -> Result<Responses, RpcError> {
    let malformed = || RpcError::invalid_params("params.inputResponses must be an object that names each key once");
    let json = members(params, &["inputResponses"]).and_then(|[json]| json).filter(|json| json.starts_with('{'));
    let mut scanner = Scanner::new(json.ok_or_else(malformed)?, MAX_NESTING);
    let mut responses = Vec::new();
    let mut keys = BTreeSet::new();
    let mut all_once = true;
    let read = scanner.object(|name, scanner| {
        let key: Box<str> = name.text().map_or_else(String::new, Into::into).into();
        all_once &= keys.insert(key.clone());
        responses.push((key, scanner.value()?.into()));
        Ok(())
    });
    if read.is_ok() && all_once { Ok(responses) } else { Err(malformed()) }
}

/// Whether a request can be repeated after a failure of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It reads, or doing it twice is doing it once.
    Safe,
    /// It may have been done, and again would be one more.
    Unknown,
}

/// What a client learns of a failure of the store: what is wrong with its request is -32602; a store that does not answer is
/// an overload, so that the request is repeated, where that is safe; the rest is the server's.
pub(super) fn rpc_error(error: &TaskStoreError, repeat: Repeat) -> RpcError {
    match error {
        TaskStoreError::Unknown | TaskStoreError::TooLarge { .. } => RpcError::invalid_params(error.to_string()),
        TaskStoreError::Key { kind, .. } => {
            RpcError::invalid_params(error.to_string()).with_data(&format!(r#"{{"type":"{kind}"}}"#))
        }
        // Nothing was done.
        TaskStoreError::Busy { retry_after, .. } => overloaded(error.to_string(), *retry_after),
        TaskStoreError::TooMany { .. } => RpcError::new(code::OVERLOADED, error.to_string()),
        TaskStoreError::Unavailable(_) if repeat == Repeat::Safe => RpcError::new(code::OVERLOADED, error.to_string()),
        TaskStoreError::LeaseLost
        | TaskStoreError::Over(_)
        | TaskStoreError::Refused(_)
        | TaskStoreError::Unavailable(_) => RpcError::internal(error.to_string()),
    }
}

/// The refusal of a request that came too soon.
pub(super) fn too_soon(pause: Duration) -> RpcError {
    let ms = pause.as_millis().max(1);
    overloaded(format!("too many requests about tasks: wait {ms} ms, and keep to pollIntervalMs"), pause)
}

fn overloaded(what: String, pause: Duration) -> RpcError {
    RpcError::new(code::OVERLOADED, what).with_data(&format!(r#"{{"retryAfterMs":{}}}"#, pause.as_millis().max(1)))
}

/// A `CreateTaskResult`, flat (rule K1). `meta` is the result's `_meta`.
pub(super) fn created(task: &TaskState, meta: &str) -> String {
    let mut out = b"{\"resultType\":\"task\",".to_vec();
    base(&mut out, task);
    finished(out, meta)
}

/// A `GetTaskResult`: the task with what belongs to its status (rule K4).
pub(super) fn detailed(task: &TaskState, meta: &str) -> String {
    let mut out = b"{\"resultType\":\"complete\",".to_vec();
    base(&mut out, task);
    details(&mut out, task);
    finished(out, meta)
}

/// The whole state, as `notifications/tasks` carries it beside its `_meta` (rule K6).
pub(super) fn state(task: &TaskState) -> String {
    let mut out = b"{".to_vec();
    base(&mut out, task);
    details(&mut out, task);
    out.push(b'}');
    into_text(out)
}

/// An empty result: an acknowledgement (rule K3).
pub(super) fn acknowledged(meta: &str) -> String {
    format!(r#"{{"resultType":"complete","_meta":{meta}}}"#)
}

fn finished(mut out: Vec<u8>, meta: &str) -> String {
    out.extend_from_slice(b",\"_meta\":");
    out.extend_from_slice(meta.as_bytes());
    out.push(b'}');
    into_text(out)
}

/// Everything that was put in was text.
fn into_text(out: Vec<u8>) -> String {
    String::from_utf8(out).unwrap_or_default()
}

fn base(out: &mut Vec<u8>, task: &TaskState) {
    out.extend_from_slice(b"\"taskId\":");
    encode::string(out, &task.id);
    out.extend_from_slice(b",\"status\":");
    encode::string(out, task.status.as_str());
    if let Some(message) = &task.message {
        out.extend_from_slice(b",\"statusMessage\":");
        encode::string(out, message);
    }
    let (created, updated) = (iso_8601(task.created_at), iso_8601(task.updated_at));
    let ttl = task.ttl.map_or_else(|| "null".to_owned(), |ttl| ttl.as_millis().max(1).to_string());
    let poll = task.poll_interval.as_millis().max(1);
    let rest = format!(r#","createdAt":"{created}","lastUpdatedAt":"{updated}","ttlMs":{ttl},"pollIntervalMs":{poll}"#);
    out.extend_from_slice(rest.as_bytes());
}

fn details(out: &mut Vec<u8>, task: &TaskState) {
    let outcome = task.outcome.as_deref().unwrap_or("{}");
    match task.status {
        Status::Working | Status::Cancelled => {}
        Status::Completed => member(out, "result", outcome),
        Status::Failed => member(out, "error", outcome),
        Status::InputRequired => {
            out.extend_from_slice(b",\"inputRequests\":{");
            for (nth, (key, request)) in task.input_requests.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                encode::string(out, key);
                out.push(b':');
                encode::raw(out, request);
            }
            out.push(b'}');
        }
    }
}

fn member(out: &mut Vec<u8>, name: &str, json: &str) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    encode::raw(out, json);
}

/// A time as ISO 8601 in UTC, with milliseconds. The proleptic Gregorian calendar, whatever the year.
pub(super) fn iso_8601(time: WallTime) -> String {
    const DAY_MS: i64 = 86_400_000;
    let (days, ms) = (time.unix_millis().div_euclid(DAY_MS), time.unix_millis().rem_euclid(DAY_MS));
    // Years that begin with March, in eras of 400: the leap day is a year's last then, and the months' lengths a line.
    let since_era = days + 719_468;
    let (era, day) = (since_era.div_euclid(146_097), since_era.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400 + i64::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    let (second, milli) = (ms / 1000, ms % 1000);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::Revision;
    use alloc::vec;

    #[test]
    fn times_are_iso_8601() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_798_761_599_001, "2026-12-31T23:59:59.001Z"),
            (1_798_761_600_000, "2027-01-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
        ] {
            assert_eq!(iso_8601(WallTime::from_unix_millis(millis)), text);
        }
    }

    fn task(status: Status) -> TaskState {
        TaskState {
            id: "t-1".into(),
            revision: Revision::new(7),
            status,
            cancel_requested: false,
            message: Some("a \"word\"".into()),
            created_at: WallTime::from_unix_millis(0),
            updated_at: WallTime::from_unix_millis(5),
            ttl: None,
            poll_interval: Duration::from_millis(1500),
            outcome: status.is_terminal().then(|| "{\n\"a\":1}".into()),
            input_requests: vec![("k".into(), r#"{"method":"roots/list"}"#.into())],
        }
    }

    #[test]
    fn rule_k4_a_status_brings_its_own_members_and_no_other() {
        for (status, more) in [
            (Status::Working, ""),
            (Status::InputRequired, r#","inputRequests":{"k":{"method":"roots/list"}}"#),
            (Status::Completed, r#","result":{ "a":1}"#),
            (Status::Failed, r#","error":{ "a":1}"#),
            (Status::Cancelled, ""),
        ] {
            let text = detailed(&task(status), "{}");
            assert_eq!(
                text,
                format!(
                    r#"{{"resultType":"complete","taskId":"t-1","status":"{status}","statusMessage":"a \"word\"","createdAt":"1970-01-01T00:00:00.000Z","lastUpdatedAt":"1970-01-01T00:00:00.005Z","ttlMs":null,"pollIntervalMs":1500{more},"_meta":{{}}}}"#
                )
            );
            let (start, end) = (r#"{"resultType":"complete","#, r#","_meta":{}}"#);
            let same = text.strip_prefix(start).and_then(|text| text.strip_suffix(end)).expect("both");
            assert_eq!(state(&task(status)), format!("{{{same}}}"), "a notification holds the same");
        }
    }

    #[test]
    fn a_store_that_is_away_for_a_while_is_an_overload_to_who_may_repeat_the_request() {
        let away = TaskStoreError::Unavailable("busy".into());
        assert_eq!(rpc_error(&away, Repeat::Safe).code, code::OVERLOADED);
        // The task may have been made.
        assert_eq!(rpc_error(&away, Repeat::Unknown).code, code::INTERNAL_ERROR);
        let busy = TaskStoreError::Busy { retry_after: Duration::from_millis(100), message: "under way".into() };
        for repeat in [Repeat::Safe, Repeat::Unknown] {
            assert_eq!(rpc_error(&TaskStoreError::Unknown, repeat).code, code::INVALID_PARAMS);
            // Nothing was made, so that even a creation can be repeated.
            let error = rpc_error(&busy, repeat);
            assert_eq!((error.code, error.data.as_deref()), (code::OVERLOADED, Some(r#"{"retryAfterMs":100}"#)));
        }
    }

    #[test]
    fn rule_k1_a_created_task_is_flat() {
        let mut task = task(Status::Working);
        task.ttl = Some(Duration::from_millis(250));
        let text = created(&task, r#"{"s":1}"#);
        assert_eq!(
            text,
            r#"{"resultType":"task","taskId":"t-1","status":"working","statusMessage":"a \"word\"","createdAt":"1970-01-01T00:00:00.000Z","lastUpdatedAt":"1970-01-01T00:00:00.005Z","ttlMs":250,"pollIntervalMs":1500,"_meta":{"s":1}}"#
        );
    }

    #[test]
    fn rule_m9_the_extension_is_declared_in_the_request_itself() {
        let declared = |capabilities: &str| {
            declares_tasks(&format!(r#"{{"_meta":{{"io.modelcontextprotocol/clientCapabilities":{capabilities}}}}}"#))
        };
        assert!(declared(r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#));
        for other in [
            "{}",
            r#"{"extensions":{}}"#,
            r#"{"tasks":{}}"#,
            r#"{"extensions":{"io.modelcontextprotocol/tasks":true}}"#,
            r#"{"extensions":[]}"#,
            "7",
        ] {
            assert!(!declared(other), "{other}");
        }
        assert!(!declares_tasks("{}"));
    }

    #[test]
    fn input_responses_are_read_as_they_are() {
        let read = |json: &str| input_responses(&format!(r#"{{"inputResponses":{json}}}"#));
        let expected: Responses = vec![("a".into(), "{\"x\": 1}".into()), ("b\u{e9}".into(), "null".into())];
        assert_eq!(read(r#"{"a":{"x": 1},"b\u00e9":null}"#), Ok(expected));
        assert_eq!(read("{}"), Ok(Vec::new()));
        for malformed in [r#"{"a":1,"a":2}"#, "[]", "7"] {
            assert_eq!(read(malformed).expect_err(malformed).code, code::INVALID_PARAMS);
        }
        assert!(input_responses("{}").is_err());
    }
}
