//! What is answered after a commit of unknown outcome, from what the file says.

use super::*;
use crate::options::{Executor, Options};
use crate::request::Request;
use crate::writer::unit::recovered;

struct File {
    outbox: Outbox,
    _dir: tempfile::TempDir,
}

impl File {
    /// A ledger with one message.
    fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { executor: Executor::Inline, ..Options::default() };
        let ledger = Ledger::open(dir.path().join("shop.db"), options).unwrap();
        let key = Key::parse("order-7").unwrap();
        let effect = |tx: &mut crate::EffectTx<'_>| Ok(tx.enqueue(Message::new("bank", "x"))?);
        let left = ledger.execute(&Request::new(&Scope::new("tenant-1", "pay"), &key, "{}"), effect);
        assert_eq!(left.unwrap().into_inner(), 0);
        Self { outbox: ledger.outbox(Target::new("bank")), _dir: dir }
    }

    fn claimed(&self) -> Delivery {
        self.outbox.claim(1, Duration::from_secs(3600)).unwrap().remove(0)
    }

    fn recovered<R: Send>(&self, unit: (Unit<R>, Answering<R>)) -> Result<R, LedgerError> {
        recovered(&self.outbox.ledger.inner.reader, unit)
    }
}

fn is_not_there<T>(answer: Result<T, LedgerError>) -> bool {
    matches!(answer, Err(LedgerError::Storage(_)))
}

#[test]
fn a_claim_finds_what_it_holds_and_nothing_else() {
    let file = File::open();
    let claiming = |token| {
        let side = Arc::new(file.outbox.side());
        let later = Arc::clone(&side);
        let (unit, answering) = Unit::new("outbox", move |db| run::claim(db, &side, token, 1, 3_600_000));
        (unit.look_up(move |db| run::look_up_claim(db, &later, token)), answering)
    };
    assert!(is_not_there(file.recovered(claiming([1; 16]))));
    assert_eq!(file.outbox.ledger.inner.writer.wait(claiming([1; 16])).unwrap().len(), 1);
    let found = file.recovered(claiming([1; 16])).unwrap();
    assert_eq!((found.len(), &found[0].payload[..]), (1, &b"x"[..]));
    assert!(is_not_there(file.recovered(claiming([2; 16]))));
}

#[test]
fn a_report_is_there_if_to_repeat_it_would_change_nothing() {
    let reports = [
        Report::Delivered,
        Report::Retry { reason: "503" },
        Report::Reject { reason: "no" },
        Report::InDoubt { reason: "timeout" },
        Report::NotSent,
    ];
    for report in reports {
        let file = File::open();
        let delivery = file.claimed();
        for report in reports {
            assert!(is_not_there(file.recovered(delivery.unit(report).unwrap())), "nothing was said yet");
        }
        delivery.report(report).unwrap();
        file.recovered(delivery.unit(report).unwrap()).unwrap();
        if let Report::Delivered = report {
            for other in &reports[1..] {
                let answer = file.recovered(delivery.unit(*other).unwrap());
                assert!(matches!(answer, Err(LedgerError::Stale)), "{other:?}");
            }
        }
    }
}

#[test]
fn a_decision_is_there_if_the_message_stands_as_it_says() {
    let file = File::open();
    let delivery = file.claimed();
    let requeue = || file.outbox.deciding(delivery.id(), Decision::Requeue { deadline: None }, "ops", "").unwrap();
    let skip = || file.outbox.deciding(delivery.id(), Decision::Skip, "ops", "").unwrap();
    delivery.report(Report::Reject { reason: "no" }).unwrap();
    assert!(is_not_there(file.recovered(requeue())) && is_not_there(file.recovered(skip())));
    file.outbox.requeue(delivery.id(), None, "ops", "").unwrap();
    file.recovered(requeue()).unwrap();
    assert!(is_not_there(file.recovered(skip())));
    file.outbox.skip(delivery.id(), "ops", "").unwrap();
    file.recovered(skip()).unwrap();
    assert!(is_not_there(file.recovered(requeue())));
}
