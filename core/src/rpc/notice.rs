//! The parameters of the two notifications that the library decides about.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use super::message::request_id;
use super::scan::{members, text};
use crate::id::{ProgressToken, RequestId};
use crate::progress::Progress;

/// What `notifications/cancelled` says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cancellation {
    /// The request that it names.
    pub id: RequestId,
    /// Why, for people. A reason that is no string is left out.
    pub reason: Option<Box<str>>,
}

/// Reads the parameters of `notifications/cancelled`; `None` if they name no request (rule C4).
#[must_use]
pub fn read_cancellation(params: &str) -> Option<Cancellation> {
    let [id, reason] = members(params, &["requestId", "reason"])?;
    let id = request_id(id?)?;
    let reason = reason.and_then(text);
    Some(Cancellation { id, reason: reason.map(|reason| reason.as_ref().into()) })
}

/// What `notifications/progress` says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ProgressNotice<'a> {
    /// The token that the request gave.
    pub token: ProgressToken,
    /// How far it is.
    pub value: Progress,
    /// Of how much, if that is known. One that is no number is left out.
    pub total: Option<f64>,
    /// What for people. One that is no string is left out.
    pub message: Option<Cow<'a, str>>,
}

/// Reads token and value of `notifications/progress`; `None` if they are malformed, which makes them no activity (rule T2).
#[must_use]
pub fn read_progress(params: &str) -> Option<(ProgressToken, Progress)> {
    read_progress_notice(params).map(|notice| (notice.token, notice.value))
}

/// The same with what is for people.
#[must_use]
pub fn read_progress_notice(params: &str) -> Option<ProgressNotice<'_>> {
    let [token, progress, total, message] = members(params, &["progressToken", "progress", "total", "message"])?;
    let value = Progress::new(progress.and_then(number)?)?;
    let token = ProgressToken(request_id(token?)?);
    Some(ProgressNotice { token, value, total: total.and_then(number), message: message.and_then(text) })
}

/// The standard library reads to the nearest double; a value that is off by one bit could pass for no increase.
fn number(json: &str) -> Option<f64> {
    json.starts_with(|c: char| c == '-' || c.is_ascii_digit()).then(|| json.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellations() {
        let read = |params| read_cancellation(params).map(|c| (c.id, c.reason));
        assert_eq!(read(r#"{"requestId":7,"x":1}"#), Some((7.into(), None)));
        assert_eq!(read(r#"{"requestId":"7","reason":"a\nb"}"#), Some(("7".into(), Some("a\nb".into()))));
        assert_eq!(read(r#"{"requestId":7,"reason":[]}"#), Some((7.into(), None)));
        for malformed in [
            r#""x""#,
            "[]",
            r#"[7,"x"]"#,
            r#"{"requestId":7,"requestId":7}"#,
            "{}",
            r#"{"requestId":null}"#,
            r#"{"requestId":1.5}"#,
            r#"{"requestId":{}}"#,
        ] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn progress_values() {
        let full = read_progress_notice(r#"{"progressToken":1,"progress":2,"total":"x","message":"a\nb"}"#);
        let full = full.expect("token and value are there");
        assert_eq!((full.total, full.message.as_deref()), (None, Some("a\nb")));
        let read = |params| read_progress(params).map(|(token, value)| (token.0, value.value()));
        assert_eq!(read(r#"{"progressToken":"t","progress":1e2,"total":3}"#), Some(("t".into(), 100.0)));
        for malformed in
            [r#"{"progressToken":1}"#, r#"{"progressToken":1,"progress":"2"}"#, r#"{"progress":2}"#, "1", r#"["t",1]"#]
        {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }
}
