//! The listener of a listen stream: every reachable state times every operation, and long histories, against a naive model.

#[path = "../support/invariants/mod.rs"]
mod invariants;
mod model;
#[path = "../support/searched.rs"]
mod searched;

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;
use steady_core::listener::{Config, End, Listener, Published, Taken};

use model::{Op, Pair, States, ops};
use searched::Searched;

/// Two states of two bytes are too many.
const CONFIG: Config = Config { slots: 2, bytes: 3 };

#[test]
fn every_history_of_two_things() {
    let mut searched = Searched::begin();
    let start = Pair::new(CONFIG);
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::from([start.clone()]));
    searched.state(seen.insert(start));
    while let Some(before) = queue.pop_front() {
        for op in ops(2) {
            let mut after = before.clone();
            after.apply(op);
            after.normalise();
            searched.transitions += 1;
            if searched.state(seen.insert(after.clone())) {
                queue.push_back(after);
            }
        }
    }
    searched.report("a listener of two things");
    assert!(searched.states > 100, "{} states", searched.states);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn long_histories(ops in prop::collection::vec(prop::sample::select(ops(6)), 1..300), bytes in 0..12_usize) {
        let mut pair = Pair::new(Config { slots: 5, bytes });
        for op in ops {
            pair.apply(op);
        }
    }
}

#[test]
fn marks_leave_in_the_order_of_the_first_publication_and_carry_the_newest_state() {
    let mut listener: Listener<&str> = Listener::new(Config::default());
    let slots: Vec<_> = (0..3).map(|_| listener.watch().expect("room")).collect();
    assert_eq!(listener.take(), Taken::Acknowledge);
    for (slot, state) in [(2, "old"), (0, "a"), (2, "new"), (1, "b"), (0, "c")] {
        let _marked: Published = listener.publish(slots[slot], Some(state));
    }
    let told: Vec<_> = std::iter::from_fn(|| match listener.take() {
        Taken::Notify { slot, state } => Some((slot.index(), state)),
        Taken::Acknowledge | Taken::Nothing | Taken::Finish(_) | Taken::Over => None,
    })
    .collect();
    assert_eq!(told, [(2, Some("new")), (0, Some("c")), (1, Some("b"))]);
}

#[test]
fn a_stream_that_drains_says_what_it_owes_and_nothing_that_comes_later() {
    let mut listener: Listener<&str> = Listener::new(Config::default());
    let slot = listener.watch().expect("room");
    let _marked: Published = listener.publish(slot, None);
    assert!(!listener.drain(), "nobody waits");
    assert_eq!(listener.publish(slot, None), Published::Ignored);
    assert_eq!(listener.take(), Taken::Acknowledge, "rule L1 holds for a stream that ends at once");
    assert_eq!(listener.take(), Taken::Notify { slot, state: None });
    assert_eq!(listener.take(), Taken::Finish(End::Drained));
    assert_eq!(listener.take(), Taken::Over);
    assert_eq!(listener.watch(), None);
}

/// The model is shown to bite: each of these would be a fault of a listener.
#[test]
fn the_model_refuses_a_listener_that_loses_or_invents() {
    type Fault = fn(&mut Listener<States>);
    let faults: [(&str, Fault); 3] = [
        ("HUB-3", |listener| assert_ne!(listener.take(), Taken::Over)),
        ("HUB-5", |listener| listener.close()),
        ("HUB-6", |listener| while !matches!(listener.take(), Taken::Nothing | Taken::Over) {}),
    ];
    for (id, fault) in faults {
        let caught = std::panic::catch_unwind(|| {
            let mut pair = Pair::new(CONFIG);
            for op in [Op::Watch, Op::Take, Op::Publish(0, Some("a")), Op::Publish(0, None)] {
                pair.apply(op);
            }
            fault(&mut pair.listener);
            for op in [Op::Take, Op::Publish(0, None), Op::Take, Op::Take] {
                pair.apply(op);
            }
        });
        let panic = caught.expect_err(id);
        let text = panic.downcast_ref::<String>().expect("a text");
        assert!(text.contains("HUB-"), "{id}: {text}");
    }
}
