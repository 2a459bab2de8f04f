//! What makes a `requestState` believable when it comes back from the peer (rule I3).
//!
//! ```text
//!   "s1." base64url( nonce 16 | issued 8 | expires 8 | caller 16 | request 16 | value | tag 32 )
//! ```
//!
//! The tag is a MAC over all before it; `caller` and `request` are MACs too, cut to 16 bytes, so that a client cannot learn
//! the principal or the arguments of others from them. The value itself is readable for the client: it is protected, and no
//! secret. The key belongs to the [`Mac`]; to change it, open with the new one first, and with the old one what is
//! [`StateError::Forged`] under it, for as long as the longest lifetime.
//!
//! The checks run in this order, so that nothing is told to whoever did not get the state from us:
//!
//! | check | error |
//! |---|---|
//! | version, text, length | [`StateError::Malformed`] |
//! | tag, compared in constant time | [`StateError::Forged`] |
//! | principal | [`StateError::OtherCaller`] |
//! | method, name, canonical arguments | [`StateError::OtherRequest`] |
//! | lifetime: usable before its end, not at it | [`StateError::Expired`] |
//! | single use, where asked for | [`StateError::Replayed`] |
//!
//! Invariants: `SEAL-1` a state opens for its caller and its request alone; `SEAL-2` one spelling: no changed text opens;
//! `SEAL-3` a state that fails a check is not spent.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::hint::black_box;
use core::time::Duration;

use super::{MAX_STATE_BYTES, METHODS, base64};
use crate::idempotency::{CanonicalError, canonical_arguments};
use crate::rpc::RpcError;
use crate::rpc::scan::{members, text};
use crate::time::WallTime;

const VERSION: &str = "s1.";
const HEAD: usize = 16 + 8 + 8 + 16 + 16;
const TAG: usize = 32;

/// A keyed digest, as HMAC-SHA-256 is. The core has no cryptography: bring it.
pub trait Mac {
    /// The digest of `message` under the key, which never leaves the implementation.
    fn mac(&self, message: &[u8]) -> [u8; 32];
}

/// Which states were used. An implementation that guards a side effect records in the same transaction as the effect.
pub trait Spent {
    /// Records this state, named by its tag, and says whether this is its first use. It may be forgotten after `until`,
    /// when the state no longer opens.
    fn spend(&mut self, state: &[u8; 32], until: WallTime) -> bool;
}

/// When a state is made, and how long it may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "what the caller knows and the core does not")]
pub struct Stamp {
    /// Now.
    pub issued: WallTime,
    /// How long it opens, in whole milliseconds.
    pub lifetime: Duration,
    /// Random, or counted for ever: it tells two states of the same content apart, which single use needs.
    pub nonce: u128,
}

/// What a state is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    principal: &'a str,
    method: &'a str,
    name: Cow<'a, str>,
    arguments: Vec<u8>,
}

/// Why a request has no binding (-32602).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindingError {
    /// The method cannot ask for input (rule I1).
    #[error("only tools/call, prompts/get and resources/read may ask for input")]
    Method,
    /// The parameters have no `name` (of a resource: no `uri`), or one member twice.
    #[error("params must name what is asked for, once")]
    Params,
    /// The arguments have no canonical form.
    #[error(transparent)]
    Arguments(#[from] CanonicalError),
}

impl From<BindingError> for RpcError {
    fn from(error: BindingError) -> Self {
        Self::invalid_params(alloc::format!("{error}"))
    }
}

impl<'a> Binding<'a> {
    /// Of the request with these parameters, by this authenticated (on stdio: configured) caller. Its metadata, the answers
    /// and the state are no part of it: they differ from round to round. Nor is an idempotency key that stands outside of
    /// the arguments: a state that guards a mutation must be opened once ([`Sealer::open_once`], rule I3).
    ///
    /// # Errors
    /// [`BindingError`].
    pub fn of(principal: &'a str, method: &'a str, params: &'a str) -> Result<Self, BindingError> {
        if !METHODS.contains(&method) {
            return Err(BindingError::Method);
        }
        let [name, uri, arguments] = members(params, &["name", "uri", "arguments"]).ok_or(BindingError::Params)?;
        let named = if method == "resources/read" { uri } else { name };
        let name = named.and_then(text).ok_or(BindingError::Params)?;
        // As a tool reads them: null is none.
        let arguments = canonical_arguments(arguments.filter(|json| *json != "null").unwrap_or("{}"), &[])?;
        Ok(Self { principal, method, name, arguments })
    }
}

/// Why a state is refused (-32602).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// No text of this version.
    #[error("requestState is not one of this server's: send it exactly as it came")]
    Malformed,
    /// Changed, or sealed under another key.
    #[error("requestState was changed, or is another server's: send it exactly as it came")]
    Forged,
    /// Given to another caller.
    #[error("requestState belongs to another caller: start again without it")]
    OtherCaller,
    /// Given for another request.
    #[error("requestState belongs to another request: repeat the same name and arguments, or start again without it")]
    OtherRequest,
    /// Its lifetime is over.
    #[error("requestState has expired: start again without it")]
    Expired,
    /// Used before, and good for one use.
    #[error("requestState was used before: start again without it")]
    Replayed,
}

impl From<StateError> for RpcError {
    fn from(error: StateError) -> Self {
        Self::invalid_params(alloc::format!("{error}"))
    }
}

/// A state that holds all it claims.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Opened {
    /// What was sealed.
    pub value: Vec<u8>,
    /// When.
    pub issued: WallTime,
    /// From when on it no longer opens.
    pub expires: WallTime,
    tag: [u8; TAG],
}

/// Seals and opens states under one key. The head of the file says how.
#[derive(Clone, Debug)]
pub struct Sealer<M> {
    mac: M,
}

impl<M: Mac> Sealer<M> {
    /// Under the key of this MAC, which is used for nothing else.
    pub const fn new(mac: M) -> Self {
        Self { mac }
    }

    /// The text of a state that holds `value` for this caller and request. It is a third longer than the value, and one of
    /// more than [`MAX_STATE_BYTES`] does not open: keep much on the server, and seal its name.
    #[must_use]
    pub fn seal(&self, stamp: Stamp, binding: &Binding<'_>, value: &[u8]) -> String {
        let millis = i64::try_from(stamp.lifetime.as_millis()).unwrap_or(i64::MAX);
        let expires = stamp.issued.unix_millis().saturating_add(millis);
        let mut bytes = Vec::with_capacity(HEAD + value.len() + TAG);
        bytes.extend_from_slice(&stamp.nonce.to_be_bytes());
        bytes.extend_from_slice(&stamp.issued.unix_millis().to_be_bytes());
        bytes.extend_from_slice(&expires.to_be_bytes());
        bytes.extend_from_slice(&self.caller(binding));
        bytes.extend_from_slice(&self.request(binding));
        bytes.extend_from_slice(value);
        let tag = self.tag(&bytes);
        bytes.extend_from_slice(&tag);
        let mut text = String::with_capacity(VERSION.len() + bytes.len().div_ceil(3) * 4);
        text.push_str(VERSION);
        base64::encode(&mut text, &bytes);
        text
    }

    /// Opens a state that may be used until it expires.
    ///
    /// # Errors
    /// [`StateError`], which turns into the error to answer.
    pub fn open(&self, now: WallTime, binding: &Binding<'_>, state: &str) -> Result<Opened, StateError> {
        let encoded = state.strip_prefix(VERSION).filter(|_| state.len() <= MAX_STATE_BYTES);
        let bytes = encoded.and_then(base64::decode).ok_or(StateError::Malformed)?;
        let (sealed, tag) = bytes.split_last_chunk::<TAG>().ok_or(StateError::Malformed)?;
        let (head, value) = sealed.split_first_chunk::<HEAD>().ok_or(StateError::Malformed)?;
        if !same(&self.tag(sealed), tag) {
            return Err(StateError::Forged);
        }
        if !same(&self.caller(binding), &head[32..48]) {
            return Err(StateError::OtherCaller);
        }
        if !same(&self.request(binding), &head[48..]) {
            return Err(StateError::OtherRequest);
        }
        let (issued, expires) = (time(&head[16..24]), time(&head[24..32]));
        if now >= expires {
            return Err(StateError::Expired);
        }
        Ok(Opened { value: value.to_vec(), issued, expires, tag: *tag })
    }

    /// Opens a state that is good for one use, and spends it.
    ///
    /// # Errors
    /// [`StateError`], which turns into the error to answer.
    pub fn open_once(
        &self,
        now: WallTime,
        binding: &Binding<'_>,
        state: &str,
        spent: &mut impl Spent,
    ) -> Result<Opened, StateError> {
        let opened = self.open(now, binding, state)?;
        if spent.spend(&opened.tag, opened.expires) { Ok(opened) } else { Err(StateError::Replayed) }
    }

    fn tag(&self, sealed: &[u8]) -> [u8; TAG] {
        self.digest(b"state", &[sealed])
    }

    fn caller(&self, binding: &Binding<'_>) -> [u8; 16] {
        cut(&self.digest(b"caller", &[binding.principal.as_bytes()]))
    }

    fn request(&self, binding: &Binding<'_>) -> [u8; 16] {
        let parts = [binding.method.as_bytes(), binding.name.as_bytes(), &binding.arguments];
        cut(&self.digest(b"request", &parts))
    }

    /// The MAC of a purpose and parts, each with its length: no two lists of parts are one message.
    fn digest(&self, purpose: &[u8], parts: &[&[u8]]) -> [u8; 32] {
        let mut message = Vec::from(&b"mcp-steady requestState 1"[..]);
        for part in core::iter::once(&purpose).chain(parts) {
            message.extend_from_slice(&(part.len() as u64).to_be_bytes());
            message.extend_from_slice(part);
        }
        self.mac.mac(&message)
    }
}

fn cut(digest: &[u8; 32]) -> [u8; 16] {
    core::array::from_fn(|at| digest[at])
}

fn time(bytes: &[u8]) -> WallTime {
    WallTime::from_unix_millis(i64::from_be_bytes(core::array::from_fn(|at| bytes[at])))
}

/// Compares in a time that depends on the lengths alone.
fn same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0u8, |all, (a, b)| black_box(all | (a ^ b)));
    a.len() == b.len() && differences == 0
}
