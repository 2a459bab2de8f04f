//! One key from several connections at once, after a reopen, and with an answer that its caller changes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};
use steady_ledger::{Executor as Writer, Key};

use super::shop::{self, Shop};
use super::{Failure, Record};
use crate::demo::Section;
use crate::lab::{Inventory, Reservation, Reserved};

const CONNECTIONS: usize = 4;
const ROUNDS: usize = 20;

fn arguments(round: usize) -> Value {
    json!({"sku": "widget", "quantity": 1, "tenant": "acme", "idempotencyKey": format!("order-{round}")})
}

/// Who was first is chance and not in the record; that there is one first is.
pub(super) fn record(dir: &Path) -> Result<Record, Failure> {
    let path = dir.join("shop.db");
    let mut section = Section::new("one key at a time from four connections, a reopen, and a changed answer");
    // The file and its tables exist before the race.
    drop(shop::inventory(&path, Writer::Inline)?);
    let barrier = Barrier::new(CONNECTIONS);
    let answers: Vec<Vec<Value>> = thread::scope(|threads| {
        let callers: Vec<_> = (0..CONNECTIONS).map(|_| threads.spawn(|| caller(&path, &barrier))).collect();
        let joined = callers.into_iter().map(|caller| caller.join().map_err(|_| Failure::from("a caller panicked"))?);
        joined.collect::<Result<_, Failure>>()
    })?;
    section.event(format!("{CONNECTIONS} connections call with the same key at a barrier, {ROUNDS} times"));
    let round = |round: usize| answers.iter().filter_map(move |answers| answers.get(round));
    let fresh = |at: usize| round(at).filter(|answer| answer.get("replayed") == Some(&Value::Bool(false))).count();
    let ids = |at: usize| round(at).filter_map(|answer| answer.get("reservationId")?.as_str()).collect::<BTreeSet<_>>();
    let once = (0..ROUNDS).filter(|at| fresh(*at) == 1 && round(*at).count() == CONNECTIONS).count();
    section.claim("rounds in which exactly one call ran the effect", once, ROUNDS);
    let agreed = (0..ROUNDS).filter(|at| ids(*at).len() == 1).count();
    section.claim("rounds in which all got the same reservation", agreed, ROUNDS);

    let mut again = Shop::open(&path)?;
    section.event("every connection is closed, and the file opened anew");
    let (left, reservations) = again.inventory.count("widget")?;
    section.claim("reservations in the reopened file, and what is left of 1000", (reservations, left), (20, 980));
    let replay = again.call("reserve_inventory", &arguments(0))?;
    section.claim("after the reopen the call is a replay", replay.get("replayed"), Some(&Value::Bool(true)));
    let same = replay.get("reservationId").and_then(Value::as_str).is_some_and(|id| ids(0).contains(id));
    section.claim("of the same reservation", same, true);

    let mut ledger = FromLedger(again.inventory.clone());
    let (ours, sharing) = (change_shows(&mut ledger)?, change_shows(&mut Shared::default())?);
    section.claim("changing a returned answer changes a later one", ours, false);
    section.claim("the same check finds the change in a store that shares", sharing, true);
    let data = json!({
        "connections": CONNECTIONS, "rounds": ROUNDS, "rounds_with_one_execution": once,
        "rounds_with_one_reservation": agreed, "reservations_after_reopen": reservations,
        "replayed_after_reopen": replay.get("replayed"), "alias": {"changes_show_in_ledger": ours, "changes_show_in_a_store_that_shares": sharing},
    });
    Ok(Record { section, data })
}

fn caller(path: &Path, barrier: &Barrier) -> Result<Vec<Value>, Failure> {
    let shop = shop::inventory(path, Writer::Thread);
    // Whoever could not open the file must not leave the others waiting.
    let mut shop = shop.map(Shop::on);
    let mut answers = Vec::new();
    for round in 0..ROUNDS {
        barrier.wait();
        let answer = match &mut shop {
            Ok(shop) => shop.call("reserve_inventory", &arguments(round)),
            Err(why) => Err(why.to_string().into()),
        };
        answers.push(answer);
    }
    answers.into_iter().collect()
}

/// What hands out an answer for one key, each time it is asked.
trait Store {
    fn answer(&mut self) -> Result<Rc<RefCell<Reservation>>, Failure>;
}

struct FromLedger(Inventory);

impl Store for FromLedger {
    fn answer(&mut self) -> Result<Rc<RefCell<Reservation>>, Failure> {
        let reserved = self.0.reserve_once(&Key::parse("order-alias")?, "widget", 1, "acme")?;
        match reserved.into_inner() {
            Reserved::Yes(reservation) => Ok(Rc::new(RefCell::new(reservation))),
            Reserved::No(why) => Err(why.into()),
        }
    }
}

/// The wrong one: it hands out what it keeps.
#[derive(Default)]
struct Shared(Option<Rc<RefCell<Reservation>>>);

impl Store for Shared {
    fn answer(&mut self) -> Result<Rc<RefCell<Reservation>>, Failure> {
        let made = || {
            Rc::new(RefCell::new(Reservation {
                reservation_id: "res-1".into(),
                sku: "widget".into(),
                quantity: 1,
                tenant: "acme".into(),
                remaining: 999,
            }))
        };
        Ok(Rc::clone(self.0.get_or_insert_with(made)))
    }
}

fn change_shows(store: &mut impl Store) -> Result<bool, Failure> {
    let first = store.answer()?;
    let before = first.borrow().clone();
    first.borrow_mut().quantity += 98;
    Ok(*store.answer()?.borrow() != before)
}
