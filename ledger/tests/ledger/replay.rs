//! A replay is the first answer again: the same bytes, another value, and only for the same arguments.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use steady_ledger::{Executed, State};

use super::*;

/// Something that answers one call again and again.
trait Store {
    type Value;
    fn answer(&self) -> Self::Value;
    fn spoil(value: &mut Self::Value);
    fn notes(value: &Self::Value) -> Vec<String>;
}

/// Whether a caller can change what others get, by changing what it got.
fn replays_are_copies<S: Store>(store: &S) -> bool {
    let mut first = store.answer();
    let before = S::notes(&first);
    S::spoil(&mut first);
    let mut second = store.answer();
    let after_first = S::notes(&second);
    S::spoil(&mut second);
    after_first == before && S::notes(&store.answer()) == before
}

impl Store for Shop {
    type Value = Reserved;

    fn answer(&self) -> Reserved {
        call(&self.ledger, "order-7").unwrap().into_inner()
    }

    fn spoil(value: &mut Reserved) {
        value.notes.push("spoiled".into());
    }

    fn notes(value: &Reserved) -> Vec<String> {
        value.notes.clone()
    }
}

/// The usual mistake: a map of shared results.
#[derive(Default)]
struct SharedResults(RefCell<HashMap<String, Rc<RefCell<Vec<String>>>>>);

impl Store for SharedResults {
    type Value = Rc<RefCell<Vec<String>>>;

    fn answer(&self) -> Self::Value {
        let fresh = || Rc::new(RefCell::new(vec!["kept".into()]));
        Rc::clone(self.0.borrow_mut().entry("order-7".into()).or_insert_with(fresh))
    }

    fn spoil(value: &mut Self::Value) {
        value.borrow_mut().push("spoiled".into());
    }

    fn notes(value: &Self::Value) -> Vec<String> {
        value.borrow().clone()
    }
}

#[test]
fn statement_09_a_replay_is_a_copy_and_the_check_catches_a_store_that_shares() {
    assert!(replays_are_copies(&Shop::open()));
    assert!(!replays_are_copies(&SharedResults::default()), "the check must fail on a store that shares");
}

/// A value that remembers the closure it came from would tell a fresh answer from a replayed one.
#[test]
fn a_fresh_answer_is_decoded_from_the_stored_bytes_too() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Answer {
        kept: i64,
        #[serde(skip)]
        in_memory_only: i64,
    }
    let shop = Shop::open();
    let effect = |_: &mut EffectTx<'_>| Ok(Answer { kept: 1, in_memory_only: 1 });
    let stored = Answer { kept: 1, in_memory_only: 0 };
    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let keyed = || shop.ledger.execute(&Request::new(&scope, &key, &args), effect).unwrap();
    assert_eq!(keyed().into_inner(), stored);
    assert_eq!(keyed().into_inner(), stored);
    assert_eq!(shop.ledger.execute_keyless(&scope, effect).unwrap().into_inner(), stored);
}

#[test]
fn other_arguments_under_the_same_key_are_refused_without_an_effect() {
    let shop = Shop::open();
    let (scope, key) = (scope(), key("order-7"));
    let attempt = |args: &str| shop.ledger.execute(&Request::new(&scope, &key, args), reserve);
    let first = r#"{"sku":"a-1","units":2,"tenant":"t","note":null}"#;
    assert!(!attempt(first).unwrap().is_replay());
    let changed = [
        r#"{"sku":"b-2","units":2,"tenant":"t","note":null}"#,
        r#"{"sku":"a-1","units":3,"tenant":"t","note":null}"#,
        r#"{"sku":"a-1","units":2,"tenant":"other","note":null}"#,
        r#"{"sku":"a-1","units":2,"tenant":"t"}"#,
        r#"{"sku":"a-1","units":"2","tenant":"t","note":null}"#,
    ];
    for args in changed {
        assert!(matches!(attempt(args), Err(LedgerError::Mismatch)), "{args}");
    }
    let version_2 = Request::new(&scope, &key, first).version(2);
    assert!(matches!(shop.ledger.execute(&version_2, reserve), Err(LedgerError::Mismatch)));
    assert!(attempt(r#" {"note":null, "units":2.0, "tenant":"t", "sku":"a\u002d1"} "#).unwrap().is_replay());
    assert_eq!(shop.reservations(), 1);
}

#[test]
fn excluded_arguments_do_not_count_and_bad_ones_are_named() {
    let shop = Shop::open();
    let (scope, key) = (scope(), key("order-7"));
    let attempt = |args: &str| shop.ledger.execute(&Request::new(&scope, &key, args).exclude(&["key"]), reserve);
    assert!(!attempt(r#"{"units":2,"key":"order-7"}"#).unwrap().is_replay());
    assert!(attempt(r#"{"units":2}"#).unwrap().is_replay());
    let Err(LedgerError::InvalidArguments(error)) = attempt(r#"{"units":2,"units":2}"#) else {
        panic!("a name that stands twice must be refused");
    };
    assert_eq!(&*error.place, "/units");
}

#[test]
fn a_business_refusal_leaves_no_effect_and_replays() {
    let shop = Shop::open();
    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let refuse = |tx: &mut EffectTx<'_>| {
        let reserved = reserve(tx)?;
        Err(EffectError::Reject(Reserved { id: -reserved.id, notes: vec!["out of stock".into()] }))
    };
    let refusal = Reserved { id: -1, notes: vec!["out of stock".into()] };
    let attempt = || shop.ledger.execute(&Request::new(&scope, &key, &args), refuse).unwrap();
    assert_eq!(attempt(), Executed::Fresh(refusal.clone()));
    assert_eq!(attempt(), Executed::Replayed(refusal.clone()));
    // Also to a call that would succeed by now.
    assert_eq!(call(&shop.ledger, "order-7").unwrap(), Executed::Replayed(refusal.clone()));
    assert_eq!(shop.reservations(), 0);
    let known = shop.ledger.reconcile(&scope, &key).unwrap().unwrap();
    assert_eq!((known.state, known.executions), (State::Rejected, 0));

    assert_eq!(shop.ledger.execute_keyless(&scope, refuse).unwrap().into_inner(), refusal);
    assert_eq!((shop.reservations(), shop.ledger.keyless_executions(&scope).unwrap()), (0, 0));
}

#[test]
fn a_replay_of_another_type_is_refused() {
    let shop = Shop::open();
    let (scope, key, args) = (scope(), key("order-7"), arguments("a-1", 2));
    call(&shop.ledger, "order-7").unwrap().into_inner();
    let other = shop.ledger.execute(&Request::new(&scope, &key, &args), |_| Ok(7));
    assert!(matches!(other, Err(LedgerError::ResultType)));
    assert!(call(&shop.ledger, "order-7").unwrap().is_replay());
}
