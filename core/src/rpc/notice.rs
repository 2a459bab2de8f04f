//! The parameters of the two notifications that the library decides about.

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

/// Reads token and value of `notifications/progress`; `None` if they are malformed, which makes them no activity (rule T2).
#[must_use]
pub fn read_progress(params: &str) -> Option<(ProgressToken, Progress)> {
    let [token, progress] = members(params, &["progressToken", "progress"])?;
    // The standard library reads to the nearest double; a value that is off by one bit could pass for no increase.
    let progress: f64 =
        progress.filter(|json| json.starts_with(|c: char| c == '-' || c.is_ascii_digit()))?.parse().ok()?;
    Some((ProgressToken(request_id(token?)?), Progress::new(progress)?))
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
        let read = |params| read_progress(params).map(|(token, value)| (token.0, value.value()));
        assert_eq!(read(r#"{"progressToken":"t","progress":1e2,"total":3}"#), Some(("t".into(), 100.0)));
        for malformed in
            [r#"{"progressToken":1}"#, r#"{"progressToken":1,"progress":"2"}"#, r#"{"progress":2}"#, "1", r#"["t",1]"#]
        {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }
}
