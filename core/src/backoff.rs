//! Full-jitter capped exponential backoff.
//!
//! Decides how long to pause after a failed attempt: a ceiling that doubles from [`Backoff::base`] to [`Backoff::cap`],
//! then one uniform pick from zero to that ceiling, both ends included. The pick is made **after** the cap, so a fleet
//! that lost one server does not come back in step (rules S4, L5).
//!
//! There are no states: the pause is a function of the attempt and of one 64-bit draw. Two sources of draws exist:
//!
//! | source | draw depends on | for |
//! |---|---|---|
//! | [`Jitter::seeded`] | client id, stream number, attempt | simulation, replay, tests |
//! | [`Jitter::random`] | 128 bits that the shell took from the operating system | production |
//!
//! A shell with a generator of its own implements [`Entropy`] and calls [`Backoff::delay_from`].
//!
//! Ties: none, the machine holds no timer. Whoever arms the pause owns its tie rule.
//!
//! Invariants:
//! - `BACKOFF-1` a pause never exceeds the ceiling of its attempt, and a ceiling never exceeds the cap;
//! - `BACKOFF-2` a ceiling never shrinks as attempts grow, and a huge attempt number saturates at the cap;
//! - `BACKOFF-3` the seeded pause is a pure function of (client, stream, attempt): asking twice gives the same answer.
//!
//! ```
//! use core::time::Duration;
//! use steady_core::backoff::{Backoff, Jitter};
//! use steady_core::id::{Attempt, ClientId};
//!
//! let backoff = Backoff::default();
//! let mut jitter = Jitter::seeded(ClientId::new(7), 0);
//! let first = Attempt::FIRST;
//! assert_eq!(backoff.ceiling(first), Duration::from_millis(250));
//! assert_eq!(backoff.ceiling(first.next()), Duration::from_millis(500));
//! let pause = backoff.delay(first, &mut jitter);
//! assert!(pause <= Duration::from_millis(250));
//! assert_eq!(pause, backoff.delay(first, &mut jitter));
//! ```

use core::time::Duration;

use crate::id::{Attempt, ClientId};

/// The shape of the pauses. Copy it freely; it holds no state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    /// Ceiling of the pause after the first attempt. Nanosecond resolution; default 250 ms. Zero means no pause at all.
    pub base: Duration,
    /// The largest ceiling. Nanosecond resolution; default 8 s. Below `base` it wins.
    pub cap: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base: Duration::from_millis(250), cap: Duration::from_secs(8) }
    }
}

impl Backoff {
    /// For a fleet of thousands of clients of one server: the first pause spreads over 2 s instead of 250 ms, so that the
    /// busiest 100 ms after a loss hold 5 % of the fleet and not 40 %. A client is back a second later on average.
    pub const FLEET: Self = Self { base: Duration::from_secs(2), cap: Duration::from_secs(8) };

    /// The largest share of a fleet that the policy puts into a window of this length after the failure of `attempt`, in
    /// thousandths, rounded up: the window over the ceiling of the pause.
    ///
    /// ```
    /// # use core::time::Duration;
    /// # use steady_core::{backoff::Backoff, id::Attempt};
    /// let window = Duration::from_millis(100);
    /// assert_eq!(Backoff::default().share_permille(Attempt::FIRST, window), 400);
    /// assert_eq!(Backoff::FLEET.share_permille(Attempt::FIRST, window), 50);
    /// ```
    #[must_use]
    pub fn share_permille(&self, attempt: Attempt, window: Duration) -> u32 {
        let (window, ceiling) = (window.as_nanos(), self.ceiling(attempt).as_nanos());
        if window >= ceiling {
            return 1000;
        }
        u32::try_from(window.saturating_mul(1000).div_ceil(ceiling)).unwrap_or(1000)
    }

    /// The longest pause after `attempt` failed: `base * 2^(attempt - 1)`, at most `cap` (`BACKOFF-1`, `BACKOFF-2`).
    ///
    /// With the defaults: 250, 500, 1000, 2000, 4000, 8000, 8000, ... milliseconds.
    #[must_use]
    pub fn ceiling(&self, attempt: Attempt) -> Duration {
        let doublings = u32::from(attempt.number().saturating_sub(1));
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        let ceiling = nanos(self.base).saturating_mul(factor);
        Duration::from_nanos(ceiling.min(nanos(self.cap)))
    }

    /// The pause after `attempt` failed, drawn from `jitter`: uniform from zero to [`ceiling`](Self::ceiling) inclusive,
    /// in whole nanoseconds.
    #[must_use]
    pub fn delay(&self, attempt: Attempt, jitter: &mut Jitter) -> Duration {
        pick(jitter.bits(attempt), self.ceiling(attempt))
    }

    /// The same pause, drawn from a generator of the caller's own. Takes one value from it.
    #[must_use]
    pub fn delay_from<E: Entropy + ?Sized>(&self, attempt: Attempt, entropy: &mut E) -> Duration {
        pick(entropy.next_u64(), self.ceiling(attempt))
    }
}

/// A source of uniformly distributed 64-bit values, provided by the shell. The core calls no operating system.
pub trait Entropy {
    /// The next value; all `2^64` of them equally likely.
    fn next_u64(&mut self) -> u64;
}

/// Where the pick comes from. A value: a machine that owns one can be copied, compared and searched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// A pure function of the client, the stream and the attempt (`BACKOFF-3`).
    Seeded(Seed),
    /// The next value of a small generator.
    Random(SmallRng),
}

impl Jitter {
    /// Deterministic picks for `client`. `stream` tells apart what one client backs off from (a subscription, a call):
    /// equal pairs pause in step, different pairs spread. The meaning of a pair is fixed for good.
    #[must_use]
    pub const fn seeded(client: ClientId, stream: u64) -> Self {
        Self::Seeded(Seed { client, stream })
    }

    /// Production picks from `entropy`: 128 bits that the caller took from the operating system.
    #[must_use]
    pub const fn random(entropy: [u8; 16]) -> Self {
        Self::Random(SmallRng::from_entropy(entropy))
    }

    /// Picks for something else that this client backs off from: they differ from these, and from those of another `stream`.
    #[must_use]
    pub fn fork(&mut self, stream: u64) -> Self {
        match self {
            Self::Seeded(seed) => Self::seeded(seed.client, mix(seed.stream.wrapping_add(WEYL)).wrapping_add(stream)),
            Self::Random(rng) => Self::Random(SmallRng::from_u64(rng.next_u64() ^ mix(stream))),
        }
    }

    fn bits(&mut self, attempt: Attempt) -> u64 {
        match self {
            Self::Seeded(seed) => seed.bits(attempt),
            Self::Random(rng) => rng.next_u64(),
        }
    }
}

/// The seed of [`Jitter::seeded`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Seed {
    client: ClientId,
    stream: u64,
}

impl Seed {
    /// Sequential ids are the normal case, so each part passes the mixer before the next one is added.
    fn bits(self, attempt: Attempt) -> u64 {
        let client = mix(self.client.number().wrapping_add(WEYL));
        let stream = mix(client ^ self.stream.wrapping_mul(WEYL).wrapping_add(1));
        mix(stream.wrapping_add(WEYL.wrapping_mul(u64::from(attempt.number()))))
    }
}

/// A small non-cryptographic generator: a Weyl sequence with its own odd step, finished by [`Seed`]'s mixer.
///
/// Good for jitter and for nothing that an adversary must not guess. Never seeds itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SmallRng {
    state: u64,
    step: u64,
}

impl SmallRng {
    /// Seeded from 128 bits of entropy: half for the state, half for the step (63 bits of it count, the step is odd).
    #[must_use]
    pub const fn from_entropy(entropy: [u8; 16]) -> Self {
        let bits = u128::from_le_bytes(entropy);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves are wanted")]
        let (low, high) = (bits as u64, (bits >> 64) as u64);
        Self { state: mix(low.wrapping_add(WEYL)), step: mix(high) | 1 }
    }

    /// Seeded from 64 bits of entropy. Two generators with different seeds may overlap, far apart.
    #[must_use]
    pub const fn from_u64(entropy: u64) -> Self {
        Self { state: mix(entropy), step: WEYL }
    }
}

impl Entropy for SmallRng {
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(self.step);
        mix(self.state)
    }
}

/// Maps 64 uniform bits to `0..=ceiling` by multiply and shift.
///
/// Bias: of the `2^64` inputs each result gets `floor` or `ceil` of `2^64 / (ceiling + 1)`, so two results differ in
/// probability by at most 1 in `2^64`; relative to one result that is `(ceiling + 1) / 2^64`, below `2^-31` at 8 s.
fn pick(bits: u64, ceiling: Duration) -> Duration {
    let outcomes = u128::from(nanos(ceiling)).saturating_add(1);
    let picked = (u128::from(bits) * outcomes) >> 64;
    Duration::from_nanos(u64::try_from(picked).unwrap_or(u64::MAX))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The odd number nearest to `2^64` divided by the golden ratio: steps of it spread evenly over the 64-bit circle.
const WEYL: u64 = 0x9E37_79B9_7F4A_7C15;

/// A bijection on 64 bits in which every input bit reaches every output bit: xor-shift and multiply, twice.
const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    extern crate std;

    const CLIENTS: u64 = 10_000;

    fn attempts(count: usize) -> impl Iterator<Item = Attempt> {
        core::iter::successors(Some(Attempt::FIRST), |attempt| Some(attempt.next())).take(count)
    }

    /// Every tenth of `[0, ceiling]` must hold 8 to 12 % of the picks.
    fn assert_flat(picks: impl Iterator<Item = Duration>, ceiling: Duration, what: &str) {
        let mut deciles = [0_u64; 10];
        let mut total = 0_u64;
        for pause in picks {
            assert!(pause <= ceiling, "{what}: {pause:?} is over {ceiling:?}");
            let decile = pause.as_nanos() * 10 / (ceiling.as_nanos() + 1);
            deciles[usize::try_from(decile).unwrap()] += 1;
            total += 1;
        }
        for (decile, count) in deciles.iter().enumerate() {
            let permille = count * 1000 / total;
            assert!((80..=120).contains(&permille), "{what}: decile {decile} holds {permille} permille");
        }
    }

    #[test]
    fn seeded_jitter_is_flat_at_every_attempt() {
        let backoff = Backoff::default();
        for attempt in attempts(8) {
            let picks = (0..CLIENTS).map(|id| backoff.delay(attempt, &mut Jitter::seeded(ClientId::new(id), 0)));
            assert_flat(picks, backoff.ceiling(attempt), "sequential clients");
            let picks =
                (0..CLIENTS).map(|stream| backoff.delay(attempt, &mut Jitter::seeded(ClientId::new(1), stream)));
            assert_flat(picks, backoff.ceiling(attempt), "sequential streams");
        }
    }

    #[test]
    fn production_jitter_is_flat_at_every_attempt() {
        let backoff = Backoff::default();
        for attempt in attempts(8) {
            // One long-lived client, and 10,000 young ones that each draw once.
            let mut one = Jitter::random([0x5A; 16]);
            let picks = (0..CLIENTS).map(|_| backoff.delay(attempt, &mut one));
            assert_flat(picks, backoff.ceiling(attempt), "one generator");
            let picks = (0..CLIENTS).map(|seed| {
                let entropy = u128::from(seed).to_le_bytes();
                backoff.delay(attempt, &mut Jitter::random(entropy))
            });
            assert_flat(picks, backoff.ceiling(attempt), "many generators");
            let mut small = SmallRng::from_u64(3);
            let picks = (0..CLIENTS).map(|_| backoff.delay_from(attempt, &mut small));
            assert_flat(picks, backoff.ceiling(attempt), "64-bit seed");
        }
    }

    #[test]
    fn one_client_spreads_over_its_attempts() {
        let backoff = Backoff { base: Duration::from_secs(1), cap: Duration::from_secs(1) };
        let mut jitter = Jitter::seeded(ClientId::new(42), 0);
        let picks = attempts(10_000).map(|attempt| backoff.delay(attempt, &mut jitter));
        assert_flat(picks, Duration::from_secs(1), "attempts of one client");
    }

    #[test]
    fn forks_spread_whatever_they_come_from() {
        let backoff = Backoff::default();
        for mut jitter in [Jitter::seeded(ClientId::new(1), 0), Jitter::random([3; 16])] {
            let picks = (0..CLIENTS).map(|stream| backoff.delay(Attempt::FIRST, &mut jitter.fork(stream)));
            assert_flat(picks, backoff.ceiling(Attempt::FIRST), "forks of one client");
        }
    }

    #[test]
    fn shares_are_those_of_the_ceilings() {
        let window = Duration::from_millis(100);
        let shares: std::vec::Vec<u32> =
            attempts(7).map(|attempt| Backoff::default().share_permille(attempt, window)).collect();
        assert_eq!(shares, [400, 200, 100, 50, 25, 13, 13]);
        let none = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
        assert_eq!(none.share_permille(Attempt::FIRST, window), 1000);
    }

    #[test]
    fn ceilings_are_exact_and_saturate() {
        let backoff = Backoff::default();
        let expected = [250, 500, 1000, 2000, 4000, 8000, 8000, 8000];
        for (attempt, millis) in attempts(8).zip(expected) {
            assert_eq!(backoff.ceiling(attempt), Duration::from_millis(millis));
        }
        let mut last = Duration::ZERO;
        for attempt in attempts(usize::from(u16::MAX) + 5) {
            let ceiling = backoff.ceiling(attempt);
            assert!(ceiling >= last && ceiling <= backoff.cap);
            last = ceiling;
        }
        assert_eq!(last, backoff.cap);
    }

    #[test]
    fn extreme_configurations_stay_in_range() {
        let huge = Backoff { base: Duration::MAX, cap: Duration::MAX };
        assert_eq!(huge.ceiling(Attempt::FIRST), Duration::from_nanos(u64::MAX));
        assert_eq!(pick(u64::MAX, Duration::MAX), Duration::from_nanos(u64::MAX));
        let none = Backoff { base: Duration::ZERO, cap: Duration::MAX };
        let last = attempts(100).last().unwrap();
        assert_eq!(none.delay(last, &mut Jitter::random([1; 16])), Duration::ZERO);
        let inverted = Backoff { base: Duration::from_secs(9), cap: Duration::from_secs(1) };
        assert_eq!(inverted.ceiling(Attempt::FIRST), Duration::from_secs(1));
    }

    #[test]
    fn both_ends_of_the_range_are_reachable() {
        let ceiling = Duration::from_nanos(9);
        assert_eq!(pick(0, ceiling), Duration::ZERO);
        assert_eq!(pick(u64::MAX, ceiling), ceiling);
    }

    /// A change of these numbers re-maps every recorded seed: do not change them, change the caller.
    #[test]
    fn seeds_keep_their_meaning() {
        let backoff = Backoff::default();
        let mut jitter = Jitter::seeded(ClientId::new(1), 2);
        let picks: [u128; 3] = core::array::from_fn(|index| {
            let attempt = attempts(index + 1).last().unwrap();
            backoff.delay(attempt, &mut jitter).as_nanos()
        });
        assert_eq!(picks, [187_466_908, 57_680_389, 228_743_683]);
    }
}
