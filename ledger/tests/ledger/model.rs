//! Any sequence of calls, failures and restarts agrees with a map.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Ending {
    Succeed,
    Refuse,
    Abort,
    Panic,
    Escape,
}

#[derive(Clone, Debug)]
enum Step {
    Call { key: u8, units: i64, ending: Ending },
    Keyless(Ending),
    Reopen,
}

/// An effect that writes, and then ends in the given way. It answers how many reservations there are with its own.
fn effect(ending: Ending) -> impl FnMut(&mut EffectTx<'_>) -> Result<i64, EffectError<i64>> + Send + 'static {
    move |tx| {
        reserve(tx).map_err(|_| std::io::Error::other("reserve"))?;
        let count = tx.query_row("SELECT count(*) FROM reservation", [], |row| row.get(0))?;
        match ending {
            Ending::Succeed => Ok(count),
            Ending::Refuse => Err(EffectError::Reject(-count)),
            Ending::Abort => Err(std::io::Error::other("planned").into()),
            Ending::Panic => std::panic::resume_unwind(Box::new("planned")),
            Ending::Escape => {
                tx.execute("INSERT OR ROLLBACK INTO stock VALUES ('a-1', 1)", [])?;
                Ok(count)
            }
        }
    }
}

/// What the ledger must be like, in memory.
#[derive(Default)]
struct Model {
    /// Arguments and answer of each key.
    keys: BTreeMap<u8, (i64, i64)>,
    reservations: i64,
    keyless: u64,
}

/// An answer, or the kind of the error.
type Seen<T> = Result<T, &'static str>;

#[expect(clippy::wildcard_enum_match_arm, reason = "the model knows no other error")]
fn kind(error: &LedgerError) -> &'static str {
    match error {
        LedgerError::Mismatch => "mismatch",
        LedgerError::Aborted(_) => "aborted",
        LedgerError::Panicked => "panicked",
        LedgerError::TransactionLost(_) => "lost",
        other => panic!("{other:?}"),
    }
}

impl Model {
    fn run(&mut self, ending: Ending) -> Seen<i64> {
        match ending {
            Ending::Succeed => {
                self.reservations += 1;
                Ok(self.reservations)
            }
            Ending::Refuse => Ok(-(self.reservations + 1)),
            Ending::Abort => Err("aborted"),
            Ending::Panic => Err("panicked"),
            Ending::Escape => Err("lost"),
        }
    }

    fn call(&mut self, key: u8, units: i64, ending: Ending) -> Seen<Executed<i64>> {
        match self.keys.get(&key) {
            Some((other, _)) if *other != units => Err("mismatch"),
            Some((_, answer)) => Ok(Executed::Replayed(*answer)),
            None => {
                let answer = self.run(ending)?;
                self.keys.insert(key, (units, answer));
                Ok(Executed::Fresh(answer))
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let ending = || {
        prop_oneof![
            4 => Just(Ending::Succeed),
            2 => Just(Ending::Refuse),
            1 => Just(Ending::Abort),
            1 => Just(Ending::Panic),
            1 => Just(Ending::Escape),
        ]
    };
    let call = (0..4u8, 1..3i64, ending()).prop_map(|(key, units, ending)| Step::Call { key, units, ending });
    let step = prop_oneof![8 => call, 2 => ending().prop_map(Step::Keyless), 1 => Just(Step::Reopen)];
    proptest::collection::vec(step, 1..25)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_ledger_agrees_with_a_map(steps in steps()) {
        let mut shop = Shop::open();
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Call { key: number, units, ending } => {
                    let (scope, key, args) = (scope(), key(&format!("order-{number}")), arguments("a-1", units));
                    let seen = shop.ledger.execute(&Request::new(&scope, &key, &args), effect(ending));
                    prop_assert_eq!(seen.map_err(|error| kind(&error)), model.call(number, units, ending));
                    let known = shop.ledger.reconcile(&scope, &key).unwrap().map(|known| known.executions);
                    let expected = model.keys.get(&number).map(|(_, answer)| u64::from(*answer > 0));
                    prop_assert_eq!(known, expected);
                }
                Step::Keyless(ending) => {
                    let seen = shop.ledger.execute_keyless(&scope(), effect(ending));
                    let seen = seen.map(|answer| answer.into_inner()).map_err(|error| kind(&error));
                    prop_assert_eq!(seen, model.run(ending));
                    model.keyless += u64::from(matches!(ending, Ending::Succeed));
                }
                Step::Reopen => shop.ledger = open(&shop.path()),
            }
            prop_assert_eq!(shop.reservations(), model.reservations);
            prop_assert_eq!(shop.ledger.keyless_executions(&scope()).unwrap(), model.keyless);
        }
    }
}
