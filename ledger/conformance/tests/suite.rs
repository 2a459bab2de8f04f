//! The suite on a model without a store: it passes, and for each fault of the model a case fails.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::time::Duration;

use steady_conformance::{
    Answer, Call, Command, Effect, HORIZON, KeyState, Known, LEASE, RETENTION, START_MS, Subject, Ticket, Upstream,
    Word, compare, run,
};

/// What the model does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    RunsAgain,
    ForgetsRefusals,
    KeepsRowsOfRefusals,
    KeepsRowsOfFailures,
    ReplaysAnything,
    ComparesText,
    OneScope,
    RunsExpired,
    ForgetsOnRestart,
    ForgetsTombstones,
    LosesLeases,
    RunsDoubts,
    RefusesLateWords,
    AlwaysResends,
    NeverStale,
    ResolvesTwice,
    CollectsOpen,
}

const FAULTS: [Fault; 17] = [
    Fault::RunsAgain,
    Fault::ForgetsRefusals,
    Fault::KeepsRowsOfRefusals,
    Fault::KeepsRowsOfFailures,
    Fault::ReplaysAnything,
    Fault::ComparesText,
    Fault::OneScope,
    Fault::RunsExpired,
    Fault::ForgetsOnRestart,
    Fault::ForgetsTombstones,
    Fault::LosesLeases,
    Fault::RunsDoubts,
    Fault::RefusesLateWords,
    Fault::AlwaysResends,
    Fault::NeverStale,
    Fault::ResolvesTwice,
    Fault::CollectsOpen,
];

#[derive(Clone, Copy)]
enum Place {
    Started { until: i64 },
    InDoubt,
    Done { committed: bool, value: i64, expires: i64 },
    Tombstone { executions: u64 },
}

#[derive(Clone)]
struct Entry {
    arguments: String,
    place: Place,
    ticket: Ticket,
    number: u32,
    /// When it was first sent, and until when it may be sent again.
    window: (i64, Option<i64>),
}

type Name = (String, String, String);

struct Model {
    fault: Fault,
    now: i64,
    keys: BTreeMap<Name, Entry>,
    rows: BTreeMap<Name, u64>,
    tickets: Vec<Name>,
    forgotten: i64,
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap()
}

/// The canonical form of the few arguments that the suite uses.
fn canonical(text: &str) -> Option<String> {
    if text.contains(r#""a":1,"a""#)
        || text.contains("18446744073709551616")
        || !text.trim().starts_with('{')
        || text == "{"
    {
        return None;
    }
    let inner: String = text.replace("1.0", "1").chars().filter(|letter| !letter.is_whitespace()).collect();
    let mut fields: Vec<&str> = inner.trim_matches(['{', '}']).split(',').collect();
    fields.sort_unstable();
    Some(fields.join(","))
}

/// The time in a key of the suite that carries one.
fn born(key: &str) -> Option<i64> {
    let hex = key.get(..13).filter(|_| key.len() == 36)?.replace('-', "");
    i64::from_str_radix(&hex, 16).ok()
}

impl Model {
    fn new(fault: Fault) -> Self {
        let (keys, rows) = (BTreeMap::new(), BTreeMap::new());
        Self { fault, now: START_MS, keys, rows, tickets: Vec::new(), forgotten: i64::MIN }
    }

    fn name(&self, call: &Call) -> Name {
        let principal = if self.fault == Fault::OneScope { "" } else { &*call.principal };
        (principal.to_owned(), call.operation.clone(), call.key.clone())
    }

    fn arguments(&self, call: &Call) -> Option<String> {
        let canonical = canonical(&call.arguments)?;
        Some(if self.fault == Fault::ComparesText { call.arguments.clone() } else { canonical })
    }

    fn done(&self, committed: bool, value: i64) -> Place {
        Place::Done { committed, value, expires: self.now + millis(RETENTION) }
    }

    /// The answer that is known; none if it is a new key, or an attempt that was abandoned.
    fn known(&self, call: &Call) -> Option<Answer> {
        let Some(arguments) = self.arguments(call) else { return Some(Answer::InvalidArguments) };
        let Some(entry) = self.keys.get(&self.name(call)) else {
            let limit = self.forgotten.max(self.now - millis(HORIZON));
            return born(&call.key).is_some_and(|born| born < limit).then_some(Answer::TooOld);
        };
        if entry.arguments != arguments && self.fault != Fault::ReplaysAnything {
            return Some(Answer::Mismatch);
        }
        match entry.place {
            Place::Done { expires, .. } if self.now >= expires => {
                (self.fault != Fault::RunsExpired).then_some(Answer::Expired)
            }
            Place::Done { committed: false, .. } if self.fault == Fault::ForgetsRefusals => None,
            Place::Done { value, .. } => (self.fault != Fault::RunsAgain).then_some(Answer::Replayed(value)),
            Place::Tombstone { .. } => Some(Answer::Expired),
            Place::Started { until } if self.now < until => {
                (self.fault != Fault::LosesLeases).then_some(Answer::InFlight)
            }
            Place::Started { .. } | Place::InDoubt => (self.fault != Fault::RunsDoubts).then_some(Answer::InDoubt),
        }
    }

    fn entry(&self, call: &Call, place: Place) -> Entry {
        let arguments = self.arguments(call).unwrap();
        Entry { arguments, place, ticket: usize::MAX, number: 0, window: (self.now, None) }
    }
}

impl Subject for Model {
    fn execute(&mut self, call: &Call, effect: Effect) -> Answer {
        if let Some(answer) = self.known(call) {
            return answer;
        }
        let name = self.name(call);
        let (answer, keeps, place) = match effect {
            Effect::Commit(value) => (Answer::Fresh(value), true, Some(self.done(true, value))),
            Effect::Reject(value) => {
                (Answer::Fresh(value), self.fault == Fault::KeepsRowsOfRefusals, Some(self.done(false, value)))
            }
            Effect::Abort => (Answer::Aborted, self.fault == Fault::KeepsRowsOfFailures, None),
            Effect::Panic => (Answer::Panicked, self.fault == Fault::KeepsRowsOfFailures, None),
        };
        if keeps {
            *self.rows.entry(name.clone()).or_default() += 1;
        }
        if let Some(place) = place {
            let entry = self.entry(call, place);
            self.keys.insert(name, entry);
        }
        answer
    }

    fn begin(&mut self, call: &Call, upstream: Upstream) -> Answer {
        let known = self.known(call);
        let name = self.name(call);
        let (mut entry, number) = match (known, self.keys.get(&name)) {
            (None, _) => (self.entry(call, Place::InDoubt), 1),
            (Some(Answer::InDoubt), Some(entry)) => {
                let mine = match upstream {
                    Upstream::Unknown => None,
                    Upstream::Idempotent(window) => Some(entry.window.0 + millis(window)),
                };
                let until = entry.window.1.zip(mine).map(|(first, mine)| first.min(mine));
                let open = until.is_some_and(|until| self.now + millis(LEASE) + 60_000 < until);
                if !open && self.fault != Fault::AlwaysResends {
                    self.keys.get_mut(&name).unwrap().place = Place::InDoubt;
                    return Answer::InDoubt;
                }
                (entry.clone(), entry.number + 1)
            }
            (Some(answer), _) => return answer,
        };
        if number == 1 {
            let until = match upstream {
                Upstream::Unknown => None,
                Upstream::Idempotent(window) => Some(self.now + millis(window)),
            };
            entry.window = (self.now, until);
        }
        let ticket = self.tickets.len();
        self.tickets.push(name.clone());
        entry = Entry { place: Place::Started { until: self.now + millis(LEASE) }, ticket, number, ..entry };
        self.keys.insert(name, entry);
        Answer::Send(ticket, number)
    }

    fn report(&mut self, ticket: Ticket, word: Word) -> Answer {
        let name = self.tickets[ticket].clone();
        let outcome = match word {
            Word::Commit(value) => Some((true, value)),
            Word::Reject(value) => Some((false, value)),
            Word::InDoubt | Word::NotSent => None,
        };
        let Some(entry) = self.keys.get(&name).cloned() else {
            return if word == Word::NotSent { Answer::Done } else { Answer::Stale };
        };
        let late = match entry.place {
            Place::Done { committed, value, .. } if outcome == Some((committed, value)) => return Answer::Done,
            Place::Done { .. } | Place::Tombstone { .. } => return Answer::Stale,
            Place::Started { .. } => false,
            Place::InDoubt => true,
        };
        if entry.ticket != ticket && self.fault != Fault::NeverStale || late && self.fault == Fault::RefusesLateWords {
            return Answer::Stale;
        }
        match (word, outcome) {
            (_, Some((committed, value))) => self.keys.get_mut(&name).unwrap().place = self.done(committed, value),
            (Word::NotSent, None) if entry.number == 1 => drop(self.keys.remove(&name)),
            (..) => self.keys.get_mut(&name).unwrap().place = Place::InDoubt,
        }
        Answer::Done
    }

    fn resolve(&mut self, call: &Call, committed: bool, value: i64) -> Answer {
        let place = self.done(committed, value);
        let (now, fault) = (self.now, self.fault);
        let name = self.name(call);
        let Some(entry) = self.keys.get_mut(&name) else { return Answer::NotInDoubt };
        match entry.place {
            Place::Started { until } if now < until => return Answer::InFlight,
            Place::Done { .. } | Place::Tombstone { .. } if fault != Fault::ResolvesTwice => return Answer::NotInDoubt,
            Place::Started { .. } | Place::InDoubt | Place::Done { .. } | Place::Tombstone { .. } => {}
        }
        entry.place = place;
        Answer::Done
    }

    fn look(&mut self, call: &Call) -> Option<Known> {
        let (state, executions) = match self.keys.get(&self.name(call))?.place {
            Place::Started { .. } => (KeyState::Started, 0),
            Place::InDoubt => (KeyState::InDoubt, 0),
            Place::Done { committed: true, .. } => (KeyState::Committed, 1),
            Place::Done { committed: false, .. } => (KeyState::Rejected, 0),
            Place::Tombstone { executions } => (KeyState::Expired, executions),
        };
        Some(Known { state, executions })
    }

    fn rows(&mut self, call: &Call) -> u64 {
        self.rows.get(&self.name(call)).copied().unwrap_or(0)
    }

    fn advance(&mut self, by: Duration) {
        self.now += millis(by);
    }

    fn collect(&mut self) {
        let (now, fault) = (self.now, self.fault);
        for entry in self.keys.values_mut() {
            match entry.place {
                Place::Done { committed, expires, .. } if now >= expires => {
                    entry.place = Place::Tombstone { executions: committed.into() };
                }
                Place::Started { until } if now >= until => entry.place = Place::InDoubt,
                Place::Started { .. } | Place::InDoubt | Place::Done { .. } | Place::Tombstone { .. } => {}
            }
        }
        let horizon = now - millis(HORIZON);
        let mut forgotten = self.forgotten;
        self.keys.retain(|name, entry| match (entry.place, born(&name.2)) {
            (Place::Tombstone { .. }, Some(born)) if born < horizon => {
                forgotten = forgotten.max(born + 1);
                false
            }
            (Place::Tombstone { .. }, _) => fault != Fault::ForgetsTombstones,
            (Place::InDoubt | Place::Started { .. }, _) => fault != Fault::CollectsOpen,
            (Place::Done { .. }, _) => true,
        });
        self.forgotten = forgotten;
    }

    fn restart(&mut self) {
        if self.fault == Fault::ForgetsOnRestart {
            self.keys.clear();
        }
    }
}

#[test]
fn the_model_passes_and_each_of_its_faults_is_found() {
    assert_eq!(run(|| Model::new(Fault::None)), Ok(steady_conformance::CASES.len()));
    for fault in FAULTS {
        let found = run(|| Model::new(fault));
        assert!(found.is_err(), "{fault:?} is not found");
    }
}

#[test]
fn random_commands_tell_a_faulty_model_from_a_sound_one() {
    // xorshift: reproducible, and as random as this needs.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bits = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let runs: Vec<Vec<Command>> = (0..60).map(|_| (0..80).map(|_| Command::from_bits(bits())).collect()).collect();
    let differs =
        |fault| runs.iter().any(|run| compare(&mut Model::new(Fault::None), &mut Model::new(fault), run).is_err());
    assert!(!differs(Fault::None));
    for fault in
        [Fault::RunsAgain, Fault::KeepsRowsOfFailures, Fault::RunsDoubts, Fault::NeverStale, Fault::CollectsOpen]
    {
        assert!(differs(fault), "{fault:?} is not found");
    }
}
