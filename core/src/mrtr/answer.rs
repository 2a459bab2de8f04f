//! The server's side of a retry: the state and the inputs that came back.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use core::fmt;

use super::{Kind, MAX_STATE_BYTES};
use crate::rpc::RpcError;
use crate::rpc::scan::{MAX_NESTING, Scanner, members, text};

/// Why the members of a retry cannot be read (-32602).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum RetryError {
    /// The parameters are no object, or name one of the two members twice.
    #[error("params must be an object that names inputResponses and requestState once at most")]
    Params,
    /// `inputResponses` is no object.
    #[error("params.inputResponses must be an object")]
    Responses,
    /// `requestState` is no string, or longer than [`MAX_STATE_BYTES`].
    #[error("params.requestState must be the string that the server sent, of at most {MAX_STATE_BYTES} bytes")]
    State,
}

impl From<RetryError> for RpcError {
    fn from(error: RetryError) -> Self {
        Self::invalid_params(alloc::format!("{error}"))
    }
}

/// Why there is no answer to use under a key: ask for it again, or refuse with the error that this turns into (rule I4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("params.inputResponses[{key:?}] {wrong}")]
#[non_exhaustive]
pub struct Unanswered {
    /// The key.
    pub key: Box<str>,
    /// What is wrong there.
    pub wrong: Wrong,
}

impl From<Unanswered> for RpcError {
    fn from(error: Unanswered) -> Self {
        Self::invalid_params(alloc::format!("{error}"))
    }
}

/// What is wrong with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wrong {
    /// There is none.
    Missing,
    /// It stands twice.
    Twice,
    /// It is not a result of its kind.
    Kind(Kind),
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("is missing: answer every key of inputRequests"),
            Self::Twice => f.write_str("stands twice: send it once"),
            Self::Kind(kind) => write!(f, "is not a result of {}: send the result of the request", kind.method()),
        }
    }
}

/// What a request carries from the round before; a first request carries nothing.
///
/// ```
/// use steady_core::mrtr::{Kind, Retry};
///
/// let retry = Retry::read(r#"{"name":"order","inputResponses":{"size":{"action":"decline"}},"requestState":"s"}"#).unwrap();
/// assert_eq!(retry.state(), Some("s"));
/// assert_eq!(retry.response("size", Kind::Form).unwrap(), r#"{"action":"decline"}"#);
/// assert!(retry.response("colour", Kind::Form).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry<'a> {
    state: Option<Cow<'a, str>>,
    responses: Option<&'a str>,
}

impl<'a> Retry<'a> {
    /// Reads the parameters of a request. Keys that nobody asked for are left alone (rule I4).
    ///
    /// # Errors
    /// [`RetryError`], which turns into the error to answer.
    pub fn read(params: &'a str) -> Result<Self, RetryError> {
        let [responses, state] = members(params, &["inputResponses", "requestState"]).ok_or(RetryError::Params)?;
        if responses.is_some_and(|json| !json.starts_with('{')) {
            return Err(RetryError::Responses);
        }
        let state = match state {
            None => None,
            Some(json) => Some(text(json).filter(|state| state.len() <= MAX_STATE_BYTES).ok_or(RetryError::State)?),
        };
        Ok(Self { state, responses })
    }

    /// Whether it is a first request: neither a state nor an answer.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.state.is_none() && self.responses.is_none()
    }

    /// The `requestState`, as the client sent it: open it before believing it.
    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }

    /// The answer under `key`, as JSON text: a result of this kind as far as the protocol defines it. Whether a form's
    /// content fits its schema is the handler's to check.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub fn response(&self, key: &str, kind: Kind) -> Result<&'a str, Unanswered> {
        let wrong = |wrong| Unanswered { key: key.into(), wrong };
        let mut found = None;
        let mut twice = false;
        let mut scanner = Scanner::new(self.responses.unwrap_or("{}"), MAX_NESTING);
        let passed = scanner.object(|name, scanner| {
            let value = scanner.value()?;
            if name.is(key) {
                twice |= found.replace(value).is_some();
            }
            Ok(())
        });
        match found.filter(|_| passed.is_ok()) {
            None => Err(wrong(Wrong::Missing)),
            Some(_) if twice => Err(wrong(Wrong::Twice)),
            Some(json) if fits(kind, json).is_some_and(|fits| fits) => Ok(json),
            Some(_) => Err(wrong(Wrong::Kind(kind))),
        }
    }
}

/// Whether a JSON text is a result of this kind.
fn fits(kind: Kind, json: &str) -> Option<bool> {
    let string = |json: Option<&str>| json.is_some_and(|json| json.starts_with('"'));
    Some(match kind {
        Kind::Form | Kind::Url => {
            let [action, content] = members(json, &["action", "content"])?;
            let action = text(action?)?;
            let object = content.is_none_or(|json| json.starts_with('{'));
            object && ["accept", "decline", "cancel"].contains(&&*action)
        }
        Kind::Sampling | Kind::SamplingWithTools => {
            let [role, model, content] = members(json, &["role", "model", "content"])?;
            let role = text(role?)?;
            (role == "assistant" || role == "user") && string(model) && content?.starts_with(['{', '['])
        }
        Kind::Roots => members(json, &["roots"])?[0]?.starts_with('['),
    })
}
