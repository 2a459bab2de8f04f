//! What a task asks its client, and what becomes of the answers.

use std::collections::BTreeMap;

use steady_ledger::{Input, Status};

use super::*;

fn answers(pairs: &[(&str, &str)]) -> BTreeMap<Box<str>, Body> {
    pairs.iter().map(|(key, text)| (Box::from(*key), body(text))).collect()
}

fn questions(keys: &[&str]) -> Vec<(Box<str>, Body)> {
    keys.iter().map(|key| (Box::from(*key), body("which?"))).collect()
}

/// The keys and the answers.
fn plain(inputs: &[Input]) -> Vec<(&str, Option<String>)> {
    inputs.iter().map(|input| (&*input.key, input.response.as_ref().map(|body| body.decode().unwrap()))).collect()
}

#[test]
fn k4_a_task_waits_for_all_answers_and_the_first_of_each_stays() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    let (tasks, id) = (desk.tasks(), lease.task());
    let update = |pairs: &[(&str, &str)]| tasks.update("tenant-1", id, answers(pairs)).unwrap();
    update(&[("size", "too early")]);
    tasks.ask(&lease, questions(&["size", "colour"])).unwrap();
    let asked = desk.get(id).unwrap();
    assert_eq!(asked.status, Status::InputRequired);
    assert_eq!(plain(&asked.input_requests), [("colour", None), ("size", None)]);
    assert_eq!(asked.input_requests[0].request, body("which?"));

    update(&[("price", "nobody asked")]);
    assert_eq!(desk.get(id).unwrap(), asked);
    update(&[("colour", "red"), ("price", "nobody asked")]);
    let half = desk.get(id).unwrap();
    assert_eq!((half.status, plain(&half.input_requests)), (Status::InputRequired, vec![("size", None)]));
    assert!(half.revision > asked.revision);
    update(&[("colour", "blue")]);
    assert_eq!(desk.get(id).unwrap(), half);
    update(&[("colour", "blue"), ("size", "small")]);
    let whole = desk.get(id).unwrap();
    assert_eq!((whole.status, whole.input_requests.len()), (Status::Working, 0));
    update(&[("size", "large")]);

    let all = [("colour", Some("red".to_owned())), ("size", Some("small".to_owned()))];
    assert_eq!(plain(&tasks.checkpoint(&lease, step(1)).unwrap().inputs), all);
    desk.advance(LEASE);
    assert_eq!(plain(&desk.claim().unwrap().inputs), all, "the next worker has them too");
}

#[test]
fn k4_an_input_key_is_never_reused() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    let (tasks, id) = (desk.tasks(), lease.task());
    let ask = |keys: &[&str]| named(tasks.ask(&lease, questions(keys)));
    ask(&["size"]).unwrap();
    assert_eq!(ask(&["colour", "size"]), Err("InputKeyUsed".to_owned()), "while it is open");
    tasks.update("tenant-1", id, answers(&[("size", "small")])).unwrap();
    let before = desk.get(id).unwrap();
    assert_eq!(ask(&["colour", "size"]), Err("InputKeyUsed".to_owned()), "once it is answered");
    assert_eq!(ask(&["colour", "colour"]), Err("InputKeyUsed".to_owned()), "in one question");
    assert_eq!(desk.get(id).unwrap(), before, "a refused question asks nothing");
    ask(&["colour"]).unwrap();
    assert_eq!(plain(&desk.get(id).unwrap().input_requests), [("colour", None)]);
}

#[test]
fn a_question_has_inputs_but_not_too_many() {
    let desk = Desk::open_with(TaskLimits { inputs: 3, ..TaskLimits::default() });
    let lease = desk.started("order-7");
    let ask = |keys: &[&str]| named(desk.tasks().ask(&lease, questions(keys)));
    assert_eq!(ask(&[]), Err("NoInput".to_owned()));
    assert_eq!(desk.get(lease.task()).unwrap().status, Status::Working);
    ask(&["a", "b"]).unwrap();
    assert_eq!(ask(&["c", "d"]), Err("TooManyInputs { limit: 3 }".to_owned()));
    ask(&["c"]).unwrap();
    desk.tasks().update("tenant-1", lease.task(), answers(&[("a", "1"), ("b", "2"), ("c", "3")])).unwrap();
    assert_eq!(ask(&["d"]), Err("TooManyInputs { limit: 3 }".to_owned()), "over its life");
}

#[test]
fn a_question_extends_the_lease() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    desk.advance(LEASE / 2);
    desk.tasks().ask(&lease, questions(&["size"])).unwrap();
    desk.tasks().update("tenant-1", lease.task(), answers(&[("size", "small")])).unwrap();
    desk.advance(LEASE - Duration::from_millis(1));
    assert!(desk.claim().is_none());
    desk.advance(Duration::from_millis(1));
    assert!(desk.claim().is_some());
}

#[test]
fn a_task_that_waits_for_its_client_is_no_work_until_it_is_answered_or_cancelled() {
    for cancel in [false, true] {
        let desk = Desk::open();
        let lease = desk.started("order-7");
        desk.tasks().ask(&lease, questions(&["size"])).unwrap();
        desk.tasks().release(&lease).unwrap();
        desk.advance(LEASE * 10);
        assert!(desk.claim().is_none());
        if cancel {
            desk.tasks().cancel("tenant-1", lease.task()).unwrap();
        } else {
            desk.tasks().update("tenant-1", lease.task(), answers(&[("size", "small")])).unwrap();
        }
        let claimed = desk.claim().unwrap();
        assert_eq!((claimed.cancel_requested, claimed.lease.epoch()), (cancel, 2));
        if cancel {
            desk.tasks().observe_cancel(&claimed.lease).unwrap();
            assert_eq!(desk.get(lease.task()).unwrap().status, Status::Cancelled);
        }
    }
}

#[test]
fn the_end_of_a_task_takes_questions_and_answers_with_it() {
    let desk = Desk::open();
    let lease = desk.started("order-7");
    desk.tasks().ask(&lease, questions(&["size", "colour"])).unwrap();
    desk.tasks().update("tenant-1", lease.task(), answers(&[("size", "small")])).unwrap();
    desk.tasks().complete(&lease, body("done")).unwrap();
    assert_eq!(desk.count("SELECT count(*) FROM ledger_task_input"), 0);
    let over = desk.get(lease.task()).unwrap();
    assert_eq!((over.status, over.input_requests.len()), (Status::Completed, 0));
    desk.tasks().update("tenant-1", lease.task(), answers(&[("colour", "red")])).unwrap();
    assert_eq!(desk.get(lease.task()).unwrap(), over);
}
