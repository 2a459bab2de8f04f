//! The fake ledger answers as the real one does: the same calls, restarts, deaths and jumps of the clock, the same verdicts
//! and the same effects. Each fault of the fake that the swarm is to find is a difference here, too.

use std::sync::Arc;

use steady_core::backoff::{Entropy, SmallRng};
use steady_sim::swarm::Mutant;
use steady_sim::swarm::store::{self, Death, Entry, Store, Vault, WallClock};

/// Processes that share a ledger.
const PROCESSES: usize = 3;
const RETENTION_MS: i64 = 60_000;
const START_MS: i64 = 1_790_000_000_000;
/// Calls, restarts and jumps in a history.
const STEPS: usize = 60;

struct Subject {
    vault: Box<dyn Vault>,
    processes: Vec<Arc<dyn Store>>,
}

impl Subject {
    fn new(vault: Box<dyn Vault>) -> Self {
        let processes = (0..PROCESSES).map(|_| vault.open().expect("it opens")).collect();
        Self { vault, processes }
    }

    fn restart(&mut self, process: usize) {
        self.processes[process] = self.vault.open().expect("it opens again");
    }
}

struct Pick(SmallRng);

impl Pick {
    fn below(&mut self, end: u32) -> u32 {
        u32::try_from(self.0.next_u64() % u64::from(end)).expect("below")
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(u32::try_from(all.len()).expect("few")) as usize]
    }
}

/// Where the two differ in the history of this seed; what the real one said, too, to see that it said all there is.
fn differ(seed: u64, mutant: Option<Mutant>) -> (Option<String>, Vec<String>) {
    let dir = tempfile::tempdir().expect("a directory");
    let clock = WallClock::new(START_MS);
    let mut real = Subject::new(store::sqlite(&dir.path().join("shop.db"), clock.clone(), RETENTION_MS, 0));
    let mut fake = Subject::new(store::memory(clock.clone(), RETENTION_MS, mutant));
    let mut pick = Pick(SmallRng::from_u64(seed));
    let mut said = Vec::new();
    for step in 0..STEPS {
        let process = pick.below(3) as usize;
        match pick.below(11) {
            0 => {
                real.restart(process);
                fake.restart(process);
            }
            1 => {
                let far = 9 * 24 * 3_600_000;
                let ms = pick.of(&[1, 999, 1000, 5000, 59_999, 60_000, 61_000, 3_599_000, 3_700_000, far, -far, -5000]);
                clock.set(clock.ms() + ms);
            }
            2 => {
                // How much that is depends on what was forgotten before; what follows from it does not.
                let [one, two] = [&real, &fake].map(|subject| subject.processes[process].collect());
                assert!(one.is_ok() && two.is_ok(), "{one:?}, {two:?}");
            }
            _ => {
                let key = if pick.below(5) == 0 { None } else { Some(pick.below(4)) };
                let amount = pick.of(&[1, 1, 1, 2, 100, 101]);
                let death = pick.of(&[None, None, None, None, Some(Death::BeforeCommit), Some(Death::AfterCommit)]);
                let key_text = key.map(|key| format!("key-{key}")).unwrap_or_default();
                let arguments =
                    pick.of(&["{\"order\":1,\"amount\":A}", "{\"amount\":A,\"order\":2}", "{\"amount\" : A.0}"]);
                let arguments = arguments.replace('A', &amount.to_string());
                let entry = Entry { order: step, key, amount, arguments: &arguments, key_text: &key_text };
                let [one, two] = [&real, &fake].map(|subject| subject.processes[process].execute(&entry, death));
                said.push(format!("{one:?}"));
                if one != two {
                    return (Some(format!("step {step}: {entry:?} {death:?}: real {one:?}, fake {two:?}")), said);
                }
                if death.is_some() {
                    real.restart(process);
                    fake.restart(process);
                }
            }
        }
    }
    let (one, two) = (real.vault.effects().expect("it reads"), fake.vault.effects().expect("it reads"));
    ((one != two).then(|| format!("at the end: real {one:?}, fake {two:?}")), said)
}

#[test]
fn the_fake_ledger_answers_as_the_real_one() {
    let mut all = String::new();
    for seed in 0..60 {
        let (found, said) = differ(seed, None);
        assert_eq!(found, None, "seed {seed}");
        all.push_str(&said.concat());
    }
    for verdict in ["Fresh", "Replayed", "Mismatch", "Expired", "Died", "refused: true", "Nothing", "Refusal", "Effect"]
    {
        assert!(all.contains(verdict), "no history came to {verdict}");
    }
}

#[test]
fn a_faulty_fake_answers_otherwise() {
    // The other fault of a ledger, a key that is checked apart, is in the server that does it.
    let faults = Mutant::ALL.into_iter().filter(|mutant| mutant.is_of_ledger() && *mutant != Mutant::KeyApart);
    for mutant in faults {
        assert!((0..60).any(|seed| differ(seed, Some(mutant)).0.is_some()), "{mutant:?} makes no difference");
    }
}
