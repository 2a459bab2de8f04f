//! The parameters of the two notifications that the library decides about.

use alloc::borrow::Cow;
use alloc::boxed::Box;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::message::request_id;
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
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(rename = "requestId", borrow)]
        id: &'a RawValue,
        #[serde(borrow)]
        reason: Option<&'a RawValue>,
    }
    let params: Params<'_> = serde_json::from_str(params).ok()?;
    let id = request_id(params.id.get())?;
    let reason = params.reason.and_then(|reason| serde_json::from_str::<Cow<'_, str>>(reason.get()).ok());
    Some(Cancellation { id, reason: reason.map(|reason| reason.as_ref().into()) })
}

/// Reads token and value of `notifications/progress`; `None` if they are malformed, which makes them no activity (rule T2).
#[must_use]
pub fn read_progress(params: &str) -> Option<(ProgressToken, Progress)> {
    #[derive(Deserialize)]
    struct Params<'a> {
        #[serde(rename = "progressToken", borrow)]
        token: &'a RawValue,
        progress: f64,
    }
    let params: Params<'_> = serde_json::from_str(params).ok()?;
    Some((ProgressToken(request_id(params.token.get())?), Progress::new(params.progress)?))
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
        for malformed in [r#""x""#, "[]", "{}", r#"{"requestId":null}"#, r#"{"requestId":1.5}"#, r#"{"requestId":{}}"#]
        {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn progress_values() {
        let read = |params| read_progress(params).map(|(token, value)| (token.0, value.value()));
        assert_eq!(read(r#"{"progressToken":"t","progress":1e2,"total":3}"#), Some(("t".into(), 100.0)));
        for malformed in [r#"{"progressToken":1}"#, r#"{"progressToken":1,"progress":"2"}"#, r#"{"progress":2}"#, "1"] {
            assert_eq!(read(malformed), None, "{malformed}");
        }
    }
}
