//! What the kernel's ports of tasks ask of every store, over the ports alone: a store's tests run all of it.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use steady_core::idempotency::Key;
use steady_core::kernel::tasks::{
    Claim, Created, NewTask, OnChange, Progress, Stored, TaskEnd, TaskQueue, TaskState, TaskStore, TaskStoreError,
};
use steady_core::task::Status;
use steady_ledger::{Clock, WallTime};

/// Long enough for every machine, and shorter than anybody waits.
const HANG: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(60);

struct Bell(mpsc::Sender<()>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let _nobody_waits = self.0.send(());
    }
}

/// Waits for what a store answers.
pub(crate) fn wait<T>(future: Stored<T>) -> Result<T, TaskStoreError> {
    let (ring, rung) = mpsc::channel();
    let waker = Waker::from(Arc::new(Bell(ring)));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => rung.recv_timeout(HANG).expect("the store answers"),
        }
    }
}

/// A store that is both halves of the port.
pub(crate) trait Both: TaskStore + TaskQueue {}
impl<T: TaskStore + TaskQueue> Both for T {}

fn new_task<'a>(principal: &'a str, key: Option<&'a Key>, arguments: &'a str) -> NewTask<'a> {
    NewTask {
        principal,
        operation: "pack",
        key,
        arguments,
        exclude: &["idempotencyKey"],
        payload: r#"{"shelf":12}"#.into(),
        ttl: Some(Duration::from_secs(3600)),
        poll_interval: Duration::from_millis(250),
        message: Some("queued".into()),
    }
}

fn create(store: &dyn Both, principal: &str, key: Option<&str>, arguments: &str) -> Result<Created, TaskStoreError> {
    let key = key.map(|text| Key::parse(text).expect("a key"));
    wait(store.create(new_task(principal, key.as_ref(), arguments)))
}

fn fresh(store: &dyn Both) -> TaskState {
    create(store, "ann", None, "{}").expect("room").task
}

fn get(store: &dyn Both, id: &str) -> TaskState {
    wait(store.get("ann", id)).expect("a task of ann's")
}

fn claim(store: &dyn Both, owner: &str) -> Option<Claim> {
    wait(store.claim(&["sort", "pack"], owner, LEASE)).expect("an answer")
}

fn started(store: &dyn Both) -> Claim {
    fresh(store);
    claim(store, "worker").expect("a task waits")
}

/// Everything that follows, each on a store of its own; one of them by a clock of its own.
pub(crate) fn every_promise(open: &dyn Fn(Option<Clock>) -> Box<dyn Both>) {
    type Promise = fn(&dyn Both);
    const PROMISES: [Promise; 9] = [
        a_key_makes_one_task,
        a_task_is_unknown_to_others,
        a_worker_goes_from_claim_to_end,
        the_first_end_stays,
        cancel_is_an_intent,
        inputs_go_round,
        changes_are_named_in_order,
        a_lease_given_back_is_not_lost,
        workers_hear_of_work_and_not_of_progress,
    ];
    for promise in PROMISES {
        promise(&*open(None));
    }
    let now = Arc::new(AtomicI64::new(1_000_000));
    let shown = Arc::clone(&now);
    let clock = Clock::new(move || WallTime::from_unix_millis(shown.load(Ordering::SeqCst)));
    what_nobody_can_see_is_no_work(&*open(Some(clock)), &|millis| {
        now.fetch_add(millis, Ordering::SeqCst);
    });
}

/// `pass` lets time pass, in milliseconds.
fn what_nobody_can_see_is_no_work(store: &dyn Both, pass: &dyn Fn(i64)) {
    let short = || NewTask { ttl: Some(Duration::from_secs(30)), ..new_task("ann", None, "{}") };
    let claimed = || {
        wait(store.create(short())).expect("room");
        claim(store, "worker").expect("a task waits")
    };
    let (waiting, outside, ends) = (claimed(), claimed(), claimed());
    let question = vec![(Box::from("size"), Box::from(r#"{"method":"elicitation/create","params":{}}"#))];
    wait(store.ask(&waiting.lease, question.clone())).expect("asked");
    wait(store.external(&outside.lease, true)).expect("a lease");
    let look = |claim: &Claim| wait(store.checkpoint(&claim.lease, Progress::default())).map(|_| ());
    pass(29_999);
    assert_eq!([&waiting, &outside, &ends].map(look), [(); 3].map(Ok), "they live");
    pass(1);
    let lost = Err(TaskStoreError::LeaseLost);
    assert_eq!([&waiting, &outside, &ends].map(look), [lost.clone(), Ok(()), lost.clone()]);
    assert_eq!(wait(store.ask(&ends.lease, question)), lost);
    assert_eq!(wait(store.external(&ends.lease, true)), lost);
    wait(store.external(&outside.lease, false)).expect("the step can be closed");
    assert_eq!(look(&outside), lost, "and then there is nothing left");
    wait(store.finish(&ends.lease, TaskEnd::Complete("{}".into()))).expect("who is done may say so");
    wait(store.release(&waiting.lease)).expect("who stops may say so");
    assert!(claim(store, "second").is_none());
}

fn a_lease_given_back_is_not_lost(store: &dyn Both) {
    let first = started(store);
    wait(store.release(&first.lease)).expect("a lease");
    let second = claim(store, "second").expect("it was given up");
    assert_eq!((first.lost_leases, second.lost_leases), (0, 0));
    // A lease that is over when it begins.
    wait(store.release(&second.lease)).expect("a lease");
    let lost = wait(store.claim(&["pack"], "third", Duration::ZERO)).expect("an answer").expect("it was given up");
    let next = claim(store, "fourth").expect("its lease is over");
    assert_eq!((lost.lost_leases, next.lost_leases), (0, 1));
    assert!(next.lease.epoch > lost.lease.epoch && lost.lease.epoch > second.lease.epoch);
}

fn workers_hear_of_work_and_not_of_progress(store: &dyn Both) {
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    let callback: Arc<OnChange> = Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    TaskQueue::on_change(store, &callback).expect("room");
    let rung = |what: &str, by: &mut dyn FnMut()| {
        let before = heard.load(Ordering::SeqCst);
        by();
        (what.to_owned(), heard.load(Ordering::SeqCst) > before)
    };
    let id = fresh(store).id;
    let claimed = claim(store, "worker").expect("a task waits");
    let steps = [
        rung("creation", &mut || drop(fresh(store))),
        rung("progress", &mut || {
            let step = Progress { step: 1, ..Progress::default() };
            assert!(wait(store.checkpoint(&claimed.lease, step)).expect("a lease").stored);
        }),
        rung("question", &mut || {
            let question = (Box::from("size"), Box::from(r#"{"method":"roots/list","params":{}}"#));
            wait(store.ask(&claimed.lease, vec![question])).expect("asked");
        }),
        rung("answer", &mut || {
            wait(store.update("ann", &id, vec![("size".into(), "1".into())])).expect("answered");
        }),
        rung("cancellation", &mut || wait(store.cancel("ann", &id)).expect("acknowledged")),
        rung("release", &mut || wait(store.release(&claimed.lease)).expect("a lease")),
    ];
    let expected = [true, false, false, true, true, true];
    let told: Vec<_> = steps.iter().map(|(what, heard)| (what.as_str(), *heard)).collect();
    assert_eq!(told.iter().map(|(_, heard)| *heard).collect::<Vec<_>>(), expected, "{told:?}");
}

fn a_key_makes_one_task(store: &dyn Both) {
    let order = |arguments| create(store, "ann", Some("order-7"), arguments);
    let first = order(r#"{"n":1,"idempotencyKey":"order-7"}"#).expect("room");
    assert!(!first.replayed);
    let again = order(r#"{ "idempotencyKey": "x", "n": 1 }"#).expect("the same call");
    assert_eq!((again.replayed, &again.task), (true, &first.task));
    let conflict = order(r#"{"n":2}"#).expect_err("other arguments");
    assert!(matches!(conflict, TaskStoreError::Key { kind: "idempotency_key_conflict", .. }), "{conflict:?}");
    let other = create(store, "bob", Some("order-7"), r#"{"n":1}"#).expect("another caller's key");
    assert_ne!(other.task.id, first.task.id);
    assert_ne!(fresh(store).id, fresh(store).id, "without a key each call creates one");
    let TaskState { status, message, ttl, poll_interval, .. } = first.task;
    assert_eq!((status, message.as_deref()), (Status::Working, Some("queued")));
    assert_eq!((ttl, poll_interval), (Some(Duration::from_secs(3600)), Duration::from_millis(250)));
}

fn a_task_is_unknown_to_others(store: &dyn Both) {
    let id = fresh(store).id;
    for (principal, id) in [("bob", &*id), ("", &*id), ("ann", "nonsense"), ("ann", "")] {
        assert_eq!(wait(store.get(principal, id)).err(), Some(TaskStoreError::Unknown));
        assert_eq!(wait(store.cancel(principal, id)), Err(TaskStoreError::Unknown));
        assert_eq!(wait(store.update(principal, id, Vec::new())), Err(TaskStoreError::Unknown));
    }
    assert!(!get(store, &id).cancel_requested);
}

fn a_worker_goes_from_claim_to_end(store: &dyn Both) {
    assert!(claim(store, "early").is_none());
    let id = fresh(store).id;
    let claimed = claim(store, "worker").expect("a task waits");
    assert_eq!((&claimed.lease.task, &*claimed.principal), (&id, "ann"));
    assert_eq!((claimed.payload.as_deref(), claimed.progress.step), (Some(r#"{"shelf":12}"#), 0));
    assert!(claim(store, "second").is_none(), "one worker at a time");
    let first = Progress { step: 1, state: Some("[1]".into()), message: Some("packing".into()) };
    assert!(wait(store.checkpoint(&claimed.lease, first.clone())).expect("a lease").stored);
    assert!(!wait(store.checkpoint(&claimed.lease, first)).expect("a lease").stored, "a step is stored once");
    assert_eq!(get(store, &id).message.as_deref(), Some("packing"));
    wait(store.external(&claimed.lease, true)).expect("a lease");
    wait(store.external(&claimed.lease, false)).expect("a lease");
    wait(store.release(&claimed.lease)).expect("a lease");
    assert_eq!(wait(store.checkpoint(&claimed.lease, Progress::default())).err(), Some(TaskStoreError::LeaseLost));
    let second = claim(store, "second").expect("it was given up");
    assert!(second.lease.epoch > claimed.lease.epoch);
    assert_eq!((second.progress.step, second.progress.state.as_deref()), (1, Some("[1]")));
    wait(store.finish(&second.lease, TaskEnd::Complete(r#"{"isError":true}"#.into()))).expect("an end");
    let over = get(store, &id);
    assert_eq!((over.status, over.outcome.as_deref()), (Status::Completed, Some(r#"{"isError":true}"#)));
}

fn the_first_end_stays(store: &dyn Both) {
    let Claim { lease, .. } = started(store);
    let refused = wait(store.finish(&lease, TaskEnd::Cancel));
    assert!(matches!(refused, Err(TaskStoreError::Refused(_))), "nobody asked for it: {refused:?}");
    let unfinal = wait(store.finish(&lease, TaskEnd::Complete(r#"{"resultType":"input_required"}"#.into())));
    assert!(matches!(unfinal, Err(TaskStoreError::Refused(_))), "no outcome: {unfinal:?}");
    wait(store.finish(&lease, TaskEnd::Fail(r#"{"code":1,"message":"no"}"#.into()))).expect("an end");
    wait(store.cancel("ann", &lease.task)).expect("acknowledged, though it is over");
    for late in [TaskEnd::Complete("{}".into()), TaskEnd::Cancel, TaskEnd::Fail("{}".into())] {
        assert_eq!(wait(store.finish(&lease, late)), Err(TaskStoreError::Over(Status::Failed)));
    }
    assert_eq!(get(store, &lease.task).outcome.as_deref(), Some(r#"{"code":1,"message":"no"}"#));
}

fn cancel_is_an_intent(store: &dyn Both) {
    let Claim { lease, .. } = started(store);
    wait(store.cancel("ann", &lease.task)).expect("acknowledged");
    let asked = get(store, &lease.task);
    assert_eq!((asked.status, asked.cancel_requested), (Status::Working, true));
    assert!(wait(store.checkpoint(&lease, Progress::default())).expect("a lease").cancel_requested);
    wait(store.finish(&lease, TaskEnd::Cancel)).expect("it was asked for");
    assert_eq!(get(store, &lease.task).status, Status::Cancelled);
}

fn inputs_go_round(store: &dyn Both) {
    let Claim { lease, .. } = started(store);
    let question = |key: &str| (Box::from(key), Box::from(r#"{"method":"roots/list","params":{}}"#));
    wait(store.ask(&lease, vec![question("a"), question("b")])).expect("asked");
    assert_eq!(get(store, &lease.task).status, Status::InputRequired);
    let answer = |key: &str, text: &str| vec![(Box::from(key), Box::from(text))];
    wait(store.update("ann", &lease.task, answer("nobody-asked", "{}"))).expect("ignored");
    wait(store.update("ann", &lease.task, answer("a", "1"))).expect("answered");
    wait(store.update("ann", &lease.task, answer("a", "2"))).expect("ignored");
    let half = get(store, &lease.task);
    let open: Vec<_> = half.input_requests.iter().map(|(key, _)| &**key).collect();
    assert_eq!((half.status, open), (Status::InputRequired, vec!["b"]));
    wait(store.update("ann", &lease.task, answer("b", "3"))).expect("answered");
    let whole = get(store, &lease.task);
    assert_eq!((whole.status, whole.input_requests.len()), (Status::Working, 0));
    let known = wait(store.checkpoint(&lease, Progress::default())).expect("a lease");
    let responses: Vec<_> = known.inputs.iter().map(|input| input.response.as_deref()).collect();
    assert_eq!(responses, [Some("1"), Some("3")], "the first answer stays");
    let reused = wait(store.ask(&lease, vec![question("a")]));
    assert!(matches!(reused, Err(TaskStoreError::Refused(_))), "a key is used once: {reused:?}");
}

fn changes_are_named_in_order(store: &dyn Both) {
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    let callback: Arc<OnChange> = Arc::new(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    TaskStore::on_change(store, &callback).expect("room");
    let since = wait(store.last_revision()).expect("an answer");
    let (one, two) = (fresh(store).id, fresh(store).id);
    assert!(heard.load(Ordering::SeqCst) > 0, "a change is heard of before its answer");
    wait(store.cancel("ann", &one)).expect("acknowledged");
    let changes = wait(store.changed_since(since, 10)).expect("an answer");
    let ids: Vec<_> = changes.iter().map(|change| (&*change.principal, &change.id)).collect();
    assert_eq!(ids, [("ann", &two), ("ann", &one)], "each once, by its last change");
    assert_eq!(wait(store.changed_since(since, 1)).expect("an answer").len(), 1);
    let last = changes.last().expect("two").revision;
    assert_eq!(wait(store.last_revision()), Ok(last));
    assert_eq!(wait(store.changed_since(last, 10)).expect("an answer"), []);
}
