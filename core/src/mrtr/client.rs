//! The client's side: what a result is, and the request that follows a demand for input.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use super::{Kind, MAX_INPUTS, METHODS};
use crate::id::RequestId;
use crate::rpc::encode;
use crate::rpc::scan::{MAX_NESTING, Scanner, members, text};

/// What a result says about its request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a result ends its request, or asks for input")]
pub enum Outcome<'a> {
    /// It is the answer, or the handle of a task; whether the client asked for one is the caller's to check.
    Final,
    /// The server needs input first.
    Input(Input<'a>),
}

/// A result that must not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResultError {
    /// No object, or one that names a member of the protocol twice.
    #[error("the result is not an object with one resultType")]
    Malformed,
    /// A `resultType` that this library does not know (rule M4).
    #[error("the result has the unknown type {0:?}")]
    Unknown(Box<str>),
    /// Input for a method that has none (rule I1).
    #[error("the server asks for input for a method that has none")]
    Method,
    /// Neither `inputRequests` nor `requestState`, or one of them of the wrong JSON type.
    #[error("the server asks for input, but says neither which nor gives a state")]
    Empty,
    /// More than [`MAX_INPUTS`].
    #[error("the server asks for more than {MAX_INPUTS} inputs at once")]
    TooMany,
    /// A request for input that cannot be read, or of a kind that this revision does not have.
    #[error("the server's request for the input {0:?} cannot be answered")]
    Request(Box<str>),
    /// An input of a kind that the client did not declare for this request (rule I1).
    #[error("the server asks for {} although it was not declared", .0.method())]
    Undeclared(Kind),
}

/// Why a retry cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRetry {
    /// The retry would have the id of the request before it (rule I2).
    #[error("a retry is a new request and needs an id of its own")]
    SameId,
    /// This input has no answer.
    #[error("the input {0:?} has no answer")]
    Missing(Box<str>),
    /// Nobody asked for this.
    #[error("nobody asked for the input {0:?}, or it is answered twice")]
    Unknown(Box<str>),
    /// An answer or the parameters are not the JSON objects that they must be.
    #[error("{0} must be a JSON object")]
    NotAnObject(Box<str>),
}

/// One thing that a server asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputRequest<'a> {
    /// The server's name for it.
    pub key: Cow<'a, str>,
    /// What it is.
    pub kind: Kind,
    /// The parameters, as JSON text; an object.
    pub params: &'a str,
}

/// A demand for input.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Input<'a> {
    /// What to ask the user, the model or the host for. Empty if the server only wants to be asked again.
    pub requests: Vec<InputRequest<'a>>,
    /// The state to send back, with its quotes and escapes as they came: nobody but the server reads it.
    state: Option<&'a str>,
}

/// Reads the result of a request for `method` that declared these `capabilities`.
///
/// # Errors
/// [`ResultError`]: the peer breaks the protocol. The call has no usable answer, and may have run.
pub fn read_result<'a>(method: &str, capabilities: &str, result: &'a str) -> Result<Outcome<'a>, ResultError> {
    let names = ["resultType", "inputRequests", "requestState"];
    let [kind, requests, state] = members(result, &names).ok_or(ResultError::Malformed)?;
    let kind = kind.map_or(Some(Cow::Borrowed("complete")), text).ok_or(ResultError::Malformed)?;
    match &*kind {
        "complete" | "task" => return Ok(Outcome::Final),
        "input_required" => {}
        unknown => return Err(ResultError::Unknown(unknown.into())),
    }
    if !METHODS.contains(&method) {
        return Err(ResultError::Method);
    }
    let state_fits = state.is_none_or(|json| text(json).is_some());
    if !state_fits || (state.is_none() && requests.is_none()) {
        return Err(ResultError::Empty);
    }
    let requests = requests.map_or(Ok(Vec::new()), |json| read_requests(capabilities, json))?;
    Ok(Outcome::Input(Input { requests, state }))
}

/// Reads the questions of a demand, of a result or of a task: an object of requests by their keys.
///
/// # Errors
/// [`ResultError`]: the peer breaks the protocol.
pub fn read_requests<'a>(capabilities: &str, json: &'a str) -> Result<Vec<InputRequest<'a>>, ResultError> {
    let mut requests: Vec<InputRequest<'a>> = Vec::new();
    let mut wrong = None;
    let mut scanner = Scanner::new(json, MAX_NESTING);
    let passed = scanner.object(|name, scanner| {
        let value = scanner.value()?;
        let key = name.text();
        let read = key.clone().filter(|key| requests.iter().all(|request| request.key != *key));
        let read = read.and_then(|key| {
            let [method, params] = members(value, &["method", "params"])?;
            let kind = Kind::of(&text(method?)?, params)?;
            Some(InputRequest { key, kind, params: params.unwrap_or("{}") })
        });
        match read {
            _ if wrong.is_some() => {}
            _ if requests.len() == MAX_INPUTS => wrong = Some(ResultError::TooMany),
            None => wrong = Some(ResultError::Request(key.unwrap_or_default().into())),
            Some(request) if !request.kind.is_declared(capabilities) => {
                wrong = Some(ResultError::Undeclared(request.kind));
            }
            Some(request) => requests.push(request),
        }
        Ok(())
    });
    passed.map_err(|_| ResultError::Empty)?;
    wrong.map_or(Ok(requests), Err)
}

impl Input<'_> {
    /// Appends the retry to `out`: the request before it, with the same method and `params`, under the new `id`, with the
    /// answers (key and JSON object each) and the server's state (rule I2). Answers and state of an earlier round are
    /// replaced; every other member stays as it is (rule M10).
    ///
    /// # Errors
    /// [`NoRetry`]; nothing is appended.
    pub fn retry(
        &self,
        out: &mut Vec<u8>,
        (before, id): (&RequestId, &RequestId),
        method: &str,
        params: &str,
        answers: &[(&str, &str)],
    ) -> Result<(), NoRetry> {
        if before == id {
            return Err(NoRetry::SameId);
        }
        encode::request(out, id, method, &self.retry_params(params, answers)?);
        Ok(())
    }

    /// The parameters of that retry, for a caller that writes the request itself, under an id of its own.
    ///
    /// # Errors
    /// [`NoRetry`].
    pub fn retry_params(&self, params: &str, answers: &[(&str, &str)]) -> Result<String, NoRetry> {
        self.check(answers)?;
        let mut text = Vec::with_capacity(params.len() + 64);
        let mut separator = b'{';
        let mut member = |text: &mut Vec<u8>| text.push(core::mem::replace(&mut separator, b','));
        let mut scanner = Scanner::new(params, MAX_NESTING);
        let passed = scanner.object(|name, scanner| {
            let value = scanner.value()?;
            if !name.is("inputResponses") && !name.is("requestState") {
                member(&mut text);
                text.extend_from_slice(name.quoted().as_bytes());
                text.push(b':');
                text.extend_from_slice(value.as_bytes());
            }
            Ok(())
        });
        passed.and_then(|()| scanner.end()).map_err(|_| NoRetry::NotAnObject("params".into()))?;
        if !answers.is_empty() {
            member(&mut text);
            text.extend_from_slice(b"\"inputResponses\":");
            for (nth, (key, answer)) in answers.iter().enumerate() {
                text.push(if nth == 0 { b'{' } else { b',' });
                encode::string(&mut text, key);
                text.push(b':');
                text.extend_from_slice(answer.as_bytes());
            }
            text.push(b'}');
        }
        if let Some(state) = self.state {
            member(&mut text);
            text.extend_from_slice(b"\"requestState\":");
            text.extend_from_slice(state.as_bytes());
        }
        if text.is_empty() {
            text.push(b'{');
        }
        text.push(b'}');
        String::from_utf8(text).map_err(|_| NoRetry::NotAnObject("params".into()))
    }

    /// Every input has one answer, and every answer its input.
    fn check(&self, answers: &[(&str, &str)]) -> Result<(), NoRetry> {
        for (nth, (key, answer)) in answers.iter().enumerate() {
            let asked = self.requests.iter().any(|request| request.key == *key);
            if !asked || answers[..nth].iter().any(|(other, _)| other == key) {
                return Err(NoRetry::Unknown((*key).into()));
            }
            members(answer, &[]).map(|[]| ()).ok_or_else(|| NoRetry::NotAnObject((*key).into()))?;
        }
        let unanswered = self.requests.iter().find(|request| answers.iter().all(|(key, _)| request.key != *key));
        unanswered.map_or(Ok(()), |request| Err(NoRetry::Missing((&*request.key).into())))
    }
}
