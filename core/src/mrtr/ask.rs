//! The server's side of a demand for input: what may be asked, and the result that asks it.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Kind, MAX_INPUTS, MAX_STATE_BYTES, METHODS};
use crate::rpc::scan::{MAX_NESTING, Scanner};
use crate::rpc::{RpcError, code, encode};

/// Why a demand for input cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// The request's method cannot be answered so (rule I1).
    #[error("only tools/call, prompts/get and resources/read may ask for input")]
    Method,
    /// The client did not declare this kind for the request (rule I1). Answer with the error that this turns into.
    #[error("the client did not declare {}, which this request needs", .0.required())]
    Undeclared(Kind),
    /// The key is in use in this result.
    #[error("the input {0:?} is asked for twice: give each its own key")]
    Duplicate(Box<str>),
    /// The parameters are no JSON object, or belong to another kind.
    #[error("the parameters of the input {0:?} are not those of its kind")]
    Params(Box<str>),
    /// More than [`MAX_INPUTS`].
    #[error("one result asks for at most {MAX_INPUTS} inputs: ask for the others in the next round")]
    TooMany,
    /// The state is longer than [`MAX_STATE_BYTES`].
    #[error("the request state is longer than {MAX_STATE_BYTES} bytes: keep it on the server and send its name")]
    StateTooLong,
    /// Neither an input nor a state.
    #[error("ask for an input, hand out a state, or both")]
    Empty,
}

impl From<AskError> for RpcError {
    fn from(error: AskError) -> Self {
        match error {
            AskError::Undeclared(kind) => Self::missing_capability(kind.required()),
            AskError::Method
            | AskError::Duplicate(_)
            | AskError::Params(_)
            | AskError::TooMany
            | AskError::StateTooLong
            | AskError::Empty => Self::new(code::INTERNAL_ERROR, alloc::format!("{error}")),
        }
    }
}

/// A result under construction that asks for input.
///
/// ```
/// use steady_core::mrtr::{InputRequired, Kind};
///
/// let declared = r#"{"elicitation":{}}"#;
/// let mut result = InputRequired::new("tools/call", declared).unwrap();
/// result.ask("size", Kind::Form, r#"{"message":"Which size?","requestedSchema":{"type":"object","properties":{}}}"#).unwrap();
/// assert!(result.ask("roots", Kind::Roots, "{}").is_err(), "not declared");
/// result.state("opaque").unwrap();
/// assert!(result.build().unwrap().starts_with(r#"{"resultType":"input_required","inputRequests":{"size":"#));
/// ```
#[derive(Clone, Debug)]
pub struct InputRequired<'a> {
    capabilities: &'a str,
    requests: Vec<(Box<str>, Kind, Box<str>)>,
    state: Option<Box<str>>,
}

impl<'a> InputRequired<'a> {
    /// For a request for `method` that came with these `capabilities` (`RequestMeta::client_capabilities`): nothing is
    /// inferred from an earlier one (rule M9).
    ///
    /// # Errors
    /// [`AskError::Method`].
    pub fn new(method: &str, capabilities: &'a str) -> Result<Self, AskError> {
        if !METHODS.contains(&method) {
            return Err(AskError::Method);
        }
        Ok(Self { capabilities, requests: Vec::new(), state: None })
    }

    /// Asks for an input under `key`; `params` is the JSON object of its request's parameters.
    ///
    /// # Errors
    /// [`AskError`]; what was asked before stays.
    pub fn ask(&mut self, key: &str, kind: Kind, params: &str) -> Result<(), AskError> {
        if !kind.is_declared(self.capabilities) {
            return Err(AskError::Undeclared(kind));
        }
        if self.requests.len() == MAX_INPUTS {
            return Err(AskError::TooMany);
        }
        if self.requests.iter().any(|(other, ..)| &**other == key) {
            return Err(AskError::Duplicate(key.into()));
        }
        // The message, its result, the map and the request are four levels around the parameters.
        let shallow = Scanner::new(params, MAX_NESTING - 4).value().is_ok();
        if !shallow || Kind::of(kind.method(), Some(params)) != Some(kind) {
            return Err(AskError::Params(key.into()));
        }
        self.requests.push((key.into(), kind, params.into()));
        Ok(())
    }

    /// Hands out this state, which comes back with the retry: seal it, unless it may be forged.
    ///
    /// # Errors
    /// [`AskError::StateTooLong`].
    pub fn state(&mut self, state: &str) -> Result<(), AskError> {
        if state.len() > MAX_STATE_BYTES {
            return Err(AskError::StateTooLong);
        }
        self.state = Some(state.into());
        Ok(())
    }

    /// The result, as JSON text.
    ///
    /// # Errors
    /// [`AskError::Empty`].
    pub fn build(self) -> Result<String, AskError> {
        if self.requests.is_empty() && self.state.is_none() {
            return Err(AskError::Empty);
        }
        let mut out = Vec::from(&br#"{"resultType":"input_required""#[..]);
        if !self.requests.is_empty() {
            out.extend_from_slice(b",\"inputRequests\":{");
            for (nth, (key, kind, params)) in self.requests.iter().enumerate() {
                if nth > 0 {
                    out.push(b',');
                }
                encode::string(&mut out, key);
                out.extend_from_slice(b":{\"method\":");
                encode::string(&mut out, kind.method());
                out.extend_from_slice(b",\"params\":");
                out.extend_from_slice(params.as_bytes());
                out.push(b'}');
            }
            out.push(b'}');
        }
        if let Some(state) = &self.state {
            out.extend_from_slice(b",\"requestState\":");
            encode::string(&mut out, state);
        }
        out.push(b'}');
        Ok(String::from_utf8(out).unwrap_or_default())
    }
}
