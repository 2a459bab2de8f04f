//! Calls that the server answers by a demand for input: the application is asked, and the call goes out again (rules I1, I2).

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::future::Future;

use super::caller::Caller;
use super::error::CallError;
use super::tools::Raw;
use super::{Request, ToolResult};
use crate::id::WireId;
use crate::kernel::legacy::parked_call;
use crate::mrtr::{self, Kind};

/// How often a server may ask within one call.
pub const MAX_ROUNDS: usize = 32;

/// One thing that a server asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputAsked {
    /// The server's name for it.
    pub key: Box<str>,
    /// What it is. Only a kind that the client declared is asked for; a server that asks for another breaks the protocol.
    pub kind: Kind,
    /// The parameters of the question, a JSON object.
    pub params: Raw,
}

/// A server of an older revision waits behind a demand for input. Dropping this tells it that nobody answers, unless the call
/// has gone on meanwhile.
struct Round<'a> {
    caller: &'a Caller,
    call: Option<WireId>,
}

impl<'a> Round<'a> {
    /// Of this demand, if there is such a server behind it.
    fn of(caller: &'a Caller, demand: &str) -> Self {
        Self { caller, call: parked_call(demand) }
    }

    /// The call has gone on, to another answer.
    fn is_over(&mut self) {
        self.call = None;
    }
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            self.caller.shared.lock().abandon(call);
        }
    }
}

impl Caller {
    /// Calls, and answers what the server asks for on the way: `answer` gives the JSON object for each question, or `None`
    /// to give the call up. Each round is a request of its own, with the limits, the contract and the key of `request`;
    /// while `answer` is awaited no request is out and no clock runs.
    ///
    /// # Errors
    /// [`CallError`]; [`CallError::NoInput`] if `answer` gave none, [`CallError::Answer`] for a demand that breaks the
    /// protocol, or one after [`MAX_ROUNDS`].
    pub async fn call_with_input<F, A>(&self, request: Request, mut answer: F) -> Result<Raw, CallError>
    where
        F: FnMut(InputAsked) -> A,
        A: Future<Output = Option<String>>,
    {
        let refused = |error: &dyn core::fmt::Display| CallError::Answer(error.to_string().into());
        let capabilities = &self.shared.config.capabilities;
        let mut next = request.clone();
        let mut round: Option<Round<'_>> = None;
        for _ in 0..MAX_ROUNDS {
            // Until there is an answer its next round may not have left.
            let result = self.call(next).await?;
            if let Some(before) = &mut round {
                before.is_over();
            }
            let demand = match mrtr::read_result(request.method(), capabilities, result.get()) {
                Ok(mrtr::Outcome::Final) => return Ok(result),
                Ok(mrtr::Outcome::Input(demand)) => Ok(demand),
                Err(error) => Err(refused(&error)),
            };
            round = Some(Round::of(self, result.get()));
            let demand = demand?;
            let mut answers = Vec::new();
            for asked in &demand.requests {
                let key: Box<str> = asked.key.as_ref().into();
                let asked = InputAsked { key: key.clone(), kind: asked.kind, params: Raw::text(asked.params) };
                let Some(given) = answer(asked).await else { return Err(CallError::NoInput(key)) };
                answers.push((key, given));
            }
            let answers: Vec<(&str, &str)> = answers.iter().map(|(key, given)| (&**key, given.as_str())).collect();
            // It was sent, so it has parameters.
            let params = demand.retry_params(request.params().unwrap_or("{}"), &answers);
            next = request.with_params(params.map_err(|error| CallError::Params(error.to_string().into()))?);
        }
        Err(CallError::Answer("the server asks for input without an end".into()))
    }

    /// The same for a tool and its result.
    ///
    /// # Errors
    /// As [`call_with_input`](Self::call_with_input).
    pub async fn call_tool_with_input<F, A>(&self, request: Request, answer: F) -> Result<ToolResult, CallError>
    where
        F: FnMut(InputAsked) -> A,
        A: Future<Output = Option<String>>,
    {
        ToolResult::read(self.call_with_input(request, answer).await?)
    }
}
