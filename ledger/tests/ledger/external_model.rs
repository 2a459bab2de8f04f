//! Any sequence of calls with outside effects, words of their senders, decisions, pauses and restarts agrees with a map.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use steady_ledger::{Attempt, Begun, External, Resolved, State, Upstream};

use super::clock::TestClock;
use super::*;

const START: i64 = 1_790_000_000_000;
const LEASE: i64 = 30_000;
const MARGIN: i64 = 60_000;
const WINDOW: i64 = 200_000;
const RETENTION: i64 = 150_000;

#[derive(Clone, Copy, Debug)]
enum Word {
    Commit(i64),
    Reject(i64),
    InDoubt,
    NotSent,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin {
        key: u8,
        units: i64,
        idempotent: bool,
    },
    /// What the sender of an earlier attempt says, counted from the latest.
    Say {
        back: usize,
        word: Word,
    },
    Resolve {
        key: u8,
        committed: bool,
    },
    Pass(i64),
    Collect,
    Reopen,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Started { lease_until: i64 },
    InDoubt,
    Done { committed: bool, value: i64, expires: i64 },
    Expired,
}

struct Known {
    units: i64,
    standing: Standing,
    /// The place of the attempt whose sender has a say, its number, and when the first one began.
    holder: usize,
    number: u32,
    first_sent: i64,
    idempotent: bool,
}

#[derive(Default)]
struct Model {
    now: i64,
    keys: BTreeMap<u8, Known>,
    audit: BTreeMap<u8, Vec<&'static str>>,
    attempts: usize,
}

type Seen<T> = Result<T, &'static str>;

/// What a call came to.
#[derive(Debug, PartialEq)]
enum Came {
    Replayed(i64),
    Send(u32),
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the model knows no other error")]
fn kind(error: &LedgerError) -> &'static str {
    match error {
        LedgerError::Mismatch => "mismatch",
        LedgerError::InFlight { .. } => "in flight",
        LedgerError::InDoubt => "in doubt",
        LedgerError::ResultExpired => "expired",
        LedgerError::Stale => "stale",
        LedgerError::NotInDoubt => "not in doubt",
        other => panic!("{other:?}"),
    }
}

impl Model {
    fn write(&mut self, key: u8, action: &'static str) {
        self.audit.entry(key).or_default().push(action);
    }

    /// Puts a key in doubt whose lease is over.
    fn look_at(&mut self, key: u8) {
        let now = self.now;
        if let Some(known) = self.keys.get_mut(&key)
            && let Standing::Started { lease_until } = known.standing
            && now >= lease_until
        {
            known.standing = Standing::InDoubt;
            self.write(key, "lease_expired");
        }
    }

    fn begin(&mut self, key: u8, units: i64, idempotent: bool) -> Seen<Came> {
        let (now, place) = (self.now, self.attempts);
        let lease_until = now + LEASE;
        let Some(known) = self.keys.get_mut(&key) else {
            let standing = Standing::Started { lease_until };
            let known = Known { units, standing, holder: place, number: 1, first_sent: now, idempotent };
            self.keys.insert(key, known);
            self.attempts += 1;
            return Ok(Came::Send(1));
        };
        if known.units != units {
            return Err("mismatch");
        }
        match known.standing {
            Standing::Started { lease_until } if now < lease_until => return Err("in flight"),
            Standing::Done { value, expires, .. } if now < expires => return Ok(Came::Replayed(value)),
            Standing::Done { .. } | Standing::Expired => return Err("expired"),
            Standing::Started { .. } | Standing::InDoubt => {}
        }
        if idempotent && known.idempotent && now + LEASE + MARGIN < known.first_sent + WINDOW {
            known.standing = Standing::Started { lease_until };
            (known.holder, known.number) = (place, known.number + 1);
            let number = known.number;
            self.attempts += 1;
            self.write(key, "resent");
            return Ok(Came::Send(number));
        }
        self.look_at(key);
        Err("in doubt")
    }

    fn say(&mut self, key: u8, place: usize, word: Word) -> Seen<()> {
        let expires = self.now + RETENTION;
        let said = match word {
            Word::Commit(value) => Some((true, value)),
            Word::Reject(value) => Some((false, value)),
            Word::InDoubt | Word::NotSent => None,
        };
        let Some(known) = self.keys.get_mut(&key) else {
            return if matches!(word, Word::NotSent) { Ok(()) } else { Err("stale") };
        };
        let late = match known.standing {
            Standing::Started { .. } if known.holder == place => false,
            Standing::InDoubt if known.holder == place => true,
            Standing::Done { committed, value, .. } if said == Some((committed, value)) => return Ok(()),
            Standing::Started { .. } | Standing::InDoubt | Standing::Done { .. } | Standing::Expired => {
                return Err("stale");
            }
        };
        let action = match (said, word) {
            (Some((committed, value)), _) => {
                known.standing = Standing::Done { committed, value, expires };
                if committed { "committed_late" } else { "rejected_late" }
            }
            (None, Word::NotSent) if known.number == 1 => {
                self.keys.remove(&key);
                "never_sent"
            }
            (None, _) => {
                known.standing = Standing::InDoubt;
                if !late {
                    self.write(key, "reported_in_doubt");
                }
                return Ok(());
            }
        };
        if late {
            self.write(key, action);
        }
        Ok(())
    }

    fn resolve(&mut self, key: u8, committed: bool, value: i64) -> Seen<()> {
        let (now, expires) = (self.now, self.now + RETENTION);
        let Some(known) = self.keys.get_mut(&key) else { return Err("not in doubt") };
        match known.standing {
            Standing::Started { lease_until } if now < lease_until => return Err("in flight"),
            Standing::Started { .. } | Standing::InDoubt => {}
            Standing::Done { .. } | Standing::Expired => return Err("not in doubt"),
        }
        known.standing = Standing::Done { committed, value, expires };
        self.write(key, if committed { "resolved_committed" } else { "resolved_rejected" });
        Ok(())
    }

    fn collect(&mut self) {
        for known in self.keys.values_mut() {
            if let Standing::Done { expires, .. } = known.standing
                && self.now >= expires
            {
                known.standing = Standing::Expired;
            }
        }
        self.look_at_all();
    }

    fn look_at_all(&mut self) {
        for key in 0..3 {
            self.look_at(key);
        }
    }

    fn state(&self, key: u8) -> Option<State> {
        self.keys.get(&key).map(|known| match known.standing {
            Standing::Started { lease_until } => {
                State::Started { lease_until: steady_ledger::WallTime::from_unix_millis(lease_until) }
            }
            Standing::InDoubt => State::InDoubt,
            Standing::Done { committed: true, .. } => State::Committed,
            Standing::Done { committed: false, .. } => State::Rejected,
            Standing::Expired => State::Expired,
        })
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..3u8;
    let word = prop_oneof![
        3 => (0..2i64).prop_map(Word::Commit),
        1 => (0..2i64).prop_map(Word::Reject),
        2 => Just(Word::InDoubt),
        2 => Just(Word::NotSent),
    ];
    let begin = (key(), prop_oneof![5 => Just(1i64), 1 => Just(2)], prop::bool::weighted(0.8))
        .prop_map(|(key, units, idempotent)| Step::Begin { key, units, idempotent });
    let step = prop_oneof![
        8 => begin,
        8 => (0..4usize, word).prop_map(|(back, word)| Step::Say { back, word }),
        2 => (key(), any::<bool>()).prop_map(|(key, committed)| Step::Resolve { key, committed }),
        5 => prop_oneof![Just(1i64), Just(LEASE - 1), Just(LEASE), Just(2 * LEASE)].prop_map(Step::Pass),
        1 => Just(Step::Collect),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..40)
}

fn begin(ledger: &Ledger, key_text: &str, units: i64, idempotent: bool) -> Result<Begun<i64>, LedgerError> {
    let millis = |millis: i64| Duration::from_millis(millis.unsigned_abs());
    let external = External::new(millis(LEASE));
    let window = Upstream::Idempotent { window: millis(WINDOW) };
    let external = if idempotent { external.upstream(window) } else { external };
    ledger.begin(&Request::new(&scope(), &key(key_text), &arguments("a-1", units)), &external)
}

fn say(attempt: &Attempt, word: Word) -> Result<(), LedgerError> {
    match word {
        Word::Commit(value) => attempt.commit(&value),
        Word::Reject(value) => attempt.reject(&value),
        Word::InDoubt => attempt.in_doubt(),
        Word::NotSent => attempt.not_sent(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn outside_effects_agree_with_a_map(steps in steps()) {
        let clock = TestClock::at(START);
        let retention = Duration::from_millis(RETENTION.unsigned_abs());
        let durability = steady_ledger::Durability::ProcessCrash;
        let options = || Options { clock: clock.clock(), retention, durability, ..options() };
        let mut shop = Shop::open_with(options());
        let mut model = Model { now: START, ..Model::default() };
        // An attempt keeps its ledger open, so a restart is another handle.
        let mut attempts: Vec<(u8, Attempt)> = Vec::new();
        for step in steps {
            let name = |key: u8| format!("order-{key}");
            match step {
                Step::Begin { key, units, idempotent } => {
                    let expected = model.begin(key, units, idempotent);
                    let seen = match begin(&shop.ledger, &name(key), units, idempotent) {
                        Ok(Begun::Replayed(value)) => Ok(Came::Replayed(value)),
                        Ok(Begun::Send(attempt)) => {
                            let number = attempt.number();
                            attempts.push((key, attempt));
                            Ok(Came::Send(number))
                        }
                        Err(error) => Err(kind(&error)),
                    };
                    prop_assert_eq!(seen, expected);
                }
                Step::Say { back, word } => {
                    let Some(place) = attempts.len().checked_sub(back + 1) else { continue };
                    let (key, attempt) = &attempts[place];
                    let seen = say(attempt, word).map_err(|error| kind(&error));
                    prop_assert_eq!(seen, model.say(*key, place, word));
                }
                Step::Resolve { key: number, committed } => {
                    let resolution = if committed { Resolved::Committed(9) } else { Resolved::Rejected(9) };
                    let seen = shop.ledger.resolve(&scope(), &key(&name(number)), &resolution, "ops", "");
                    prop_assert_eq!(seen.map_err(|error| kind(&error)), model.resolve(number, committed, 9));
                }
                Step::Pass(millis) => {
                    clock.pass(millis);
                    model.now += millis;
                }
                Step::Collect => {
                    shop.ledger.collect(100).unwrap();
                    model.collect();
                }
                Step::Reopen => {
                    shop.ledger = Ledger::open(shop.path(), options()).unwrap();
                    model.look_at_all();
                }
            }
            for number in 0..3 {
                let key = key(&name(number));
                let known = shop.ledger.reconcile(&scope(), &key).unwrap();
                prop_assert_eq!(known.map(|known| known.state), model.state(number));
                let audit = shop.ledger.audit(&scope(), &key).unwrap();
                let audit: Vec<_> = audit.iter().map(|entry| entry.action.as_str()).collect();
                prop_assert_eq!(&audit[..], model.audit.get(&number).map_or(&[][..], |audit| &audit[..]));
            }
        }
        let checked = shop.ledger.check(|_, _| ()).unwrap();
        prop_assert!(checked.is_sound(), "{:?}", checked);
    }
}
