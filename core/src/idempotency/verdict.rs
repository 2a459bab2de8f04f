//! Decides what follows from a stored record: run, replay or refuse. One pure table.

use core::time::Duration;

use crate::time::WallTime;

/// Where the execution of a key stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(
    clippy::exhaustive_enums,
    reason = "a store must map every state to its own rows, and a caller must handle each"
)]
pub enum State {
    /// An effect outside of the store is under way; its owner has until `lease_until` to report.
    Started {
        /// When the owner is presumed dead.
        lease_until: WallTime,
    },
    /// The effect and its result are durable.
    Committed,
    /// The business refused: no effect, and the refusal is durable.
    Rejected,
    /// The effect may or may not have happened. Only a person or a lookup upstream resolves it, never a re-run.
    InDoubt,
    /// It ran once; its result is gone. A tombstone: the key never runs again.
    Expired,
}

/// What a store keeps of one key, as far as the verdict is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// The fingerprint of the arguments it first came with.
    pub fingerprint: [u8; 32],
    /// Where it stands.
    pub state: State,
    /// From when on the result of a committed or rejected key is no longer replayed.
    pub expires_at: WallTime,
}

/// What to do with a call.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a caller must handle each verdict")]
pub enum Verdict {
    /// The key is new: run the effect, and store what comes out of it with it.
    Execute,
    /// The key is finished: answer what is stored.
    Replay,
    /// The key belongs to other arguments: refuse, and say no more than that.
    Mismatch,
    /// Another call holds the key.
    InFlight {
        /// How long until its lease ends; never zero.
        retry_after: Duration,
    },
    /// The key may have run. Refuse until it is resolved.
    InDoubt,
    /// The key ran, but its result is no longer kept. Refuse; never run it again.
    Expired,
}

/// The verdict on a call with this `fingerprint` at `now`, given what is `stored` under its scope and key.
///
/// The first row that fits wins, so a stranger with another fingerprint learns nothing about the state:
///
/// | stored | verdict |
/// |---|---|
/// | nothing | execute |
/// | another fingerprint | mismatch |
/// | in doubt | in doubt |
/// | started, `now < lease_until` | in flight |
/// | started, lease over | in doubt |
/// | expired | expired |
/// | committed or rejected, `now >= expires_at` | expired |
/// | committed or rejected | replay |
///
/// ```
/// use steady_core::idempotency::{Record, State, Verdict, decide};
/// use steady_core::time::WallTime;
///
/// let now = WallTime::from_unix_millis(1_000);
/// assert_eq!(decide(None, &[7; 32], now), Verdict::Execute);
///
/// let stored = Record { fingerprint: [7; 32], state: State::Committed, expires_at: WallTime::from_unix_millis(2_000) };
/// assert_eq!(decide(Some(&stored), &[7; 32], now), Verdict::Replay);
/// assert_eq!(decide(Some(&stored), &[8; 32], now), Verdict::Mismatch);
/// ```
pub fn decide(stored: Option<&Record>, fingerprint: &[u8; 32], now: WallTime) -> Verdict {
    let Some(record) = stored else {
        return Verdict::Execute;
    };
    if record.fingerprint != *fingerprint {
        return Verdict::Mismatch;
    }
    match record.state {
        State::InDoubt => Verdict::InDoubt,
        State::Started { lease_until } => match millis_until(now, lease_until) {
            0 => Verdict::InDoubt,
            millis => Verdict::InFlight { retry_after: Duration::from_millis(millis) },
        },
        State::Expired => Verdict::Expired,
        State::Committed | State::Rejected if now >= record.expires_at => Verdict::Expired,
        State::Committed | State::Rejected => Verdict::Replay,
    }
}

/// Milliseconds from `now` until `then`; zero if `then` is not after it.
fn millis_until(now: WallTime, then: WallTime) -> u64 {
    u64::try_from(then.unix_millis().saturating_sub(now.unix_millis())).unwrap_or(0)
}
