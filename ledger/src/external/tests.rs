//! What is answered after a commit of unknown outcome, from what the file says.

use super::run::Word;
use super::*;
use crate::options::{Executor, Options};
use crate::writer::unit::recovered;

struct File {
    ledger: Ledger,
    scope: Scope,
    key: Key,
    _dir: tempfile::TempDir,
}

impl File {
    fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { executor: Executor::Inline, ..Options::default() };
        let ledger = Ledger::open(dir.path().join("shop.db"), options).unwrap();
        Self { ledger, scope: Scope::new("tenant-1", "pay"), key: Key::parse("order-7").unwrap(), _dir: dir }
    }

    fn beginning(&self) -> Beginning {
        self.ledger.beginning(&Request::new(&self.scope, &self.key, "{}"), &EXTERNAL).unwrap()
    }

    fn attempt(&self) -> Attempt {
        let beginning = self.beginning();
        let began = self.ledger.inner.writer.wait(beginning.unit()).unwrap();
        let Ok(Begun::Send(attempt)) = beginning.end::<i64>(self.ledger.clone(), began) else { panic!("new") };
        attempt
    }

    fn recovered<R: Send>(&self, unit: (Unit<R>, Answering<R>)) -> Result<R, LedgerError> {
        recovered(&self.ledger.inner.reader, unit)
    }
}

const EXTERNAL: External = External::new(Duration::from_secs(3600));

fn is_not_there<T>(answer: Result<T, LedgerError>) -> bool {
    matches!(answer, Err(LedgerError::Storage(_)))
}

fn words() -> [fn() -> Word; 4] {
    [
        || Word::Outcome(State::Committed, b"1".to_vec()),
        || Word::Outcome(State::Rejected, b"1".to_vec()),
        || Word::InDoubt,
        || Word::NotSent,
    ]
}

#[test]
fn a_beginning_is_held_only_by_the_call_whose_token_is_there() {
    let file = File::open();
    assert!(is_not_there(file.recovered(file.beginning().unit())));
    let own = file.beginning();
    file.ledger.inner.writer.wait(own.unit()).map(drop).unwrap();
    let Ok(Began::Held(held)) = file.recovered(own.unit()) else { panic!("held") };
    assert_eq!(held.number, 1);
    let other = file.recovered(file.beginning().unit());
    assert!(matches!(other, Err(LedgerError::InFlight { .. })), "it is another call's");
}

#[test]
fn a_word_is_there_if_the_file_says_so() {
    for (said, word) in words().into_iter().enumerate() {
        let file = File::open();
        let attempt = file.attempt();
        for word in words() {
            assert!(is_not_there(file.recovered(attempt.unit(word()))), "nothing was said yet");
        }
        file.ledger.inner.writer.wait(attempt.unit(word())).unwrap();
        for (place, word) in words().into_iter().enumerate() {
            let answer = file.recovered(attempt.unit(word()));
            let expected = match (said, place) {
                (said, place) if said == place => answer.is_ok(),
                // In doubt, it can still be taken back by every definite word.
                (2, _) => is_not_there(answer),
                _ => matches!(answer, Err(LedgerError::Stale)),
            };
            assert!(expected, "{said} {place}");
        }
    }
}

#[test]
fn a_resolution_is_there_if_its_outcome_is() {
    let file = File::open();
    let resolving = |value: i64| file.ledger.resolving(&file.scope, &file.key, &Resolved::Committed(value), "ops", "");
    assert!(matches!(file.recovered(resolving(1).unwrap()), Err(LedgerError::NotInDoubt)));
    let attempt = file.attempt();
    assert!(matches!(file.recovered(resolving(1).unwrap()), Err(LedgerError::InFlight { .. })));
    attempt.in_doubt().unwrap();
    assert!(is_not_there(file.recovered(resolving(1).unwrap())));
    file.ledger.inner.writer.wait(resolving(1).unwrap()).unwrap();
    file.recovered(resolving(1).unwrap()).unwrap();
    assert!(matches!(file.recovered(resolving(2).unwrap()), Err(LedgerError::NotInDoubt)));
}

#[test]
fn a_window_is_open_only_if_the_clock_and_the_latest_time_say_so() {
    let (lease, until) = (30_000, 1_000_000);
    let last = until - lease - MARGIN - 1;
    let of = |shown, now, at_latest| Window::of(1_000, until, lease, Tick { shown, now, at_latest, sure: true });
    assert_eq!(of(1_000, 1_000, 1_000), Window::Open);
    assert_eq!(of(last, last, last), Window::Open);
    assert_eq!(of(last + 1, last + 1, last + 1), Window::Over);
    assert_eq!(of(last, last, last + 1), Window::Unsure, "a jump ahead that is not confirmed");
    assert_eq!(of(last, last + 1, last + 1), Window::Over, "a clock that went back");
    assert_eq!(of(999, 1_000, 1_000), Window::Over, "a clock that went back behind the first request");
}
