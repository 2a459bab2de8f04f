//! The kernel's worker on a ledger: how handlers end, and what becomes of tasks whose worker does not.

use std::sync::mpsc;

use steady_core::kernel::Reply;
use steady_core::kernel::tasks::{Job, Progress as Step, Unfinished, Worker, WorkerConfig};
use steady_core::mrtr::Kind;
use steady_core::rpc::RpcError;
use steady_ledger::{Background, Status};

use super::*;

const OPERATION: &str = "reserve_inventory";
/// Longer than any machine takes.
const HANG: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(5);

fn config() -> WorkerConfig {
    WorkerConfig { lease: LEASE, look: LOOK, leases: 3 }
}

/// A worker in a thread of its own, that does this with every task.
fn at_work<F, R>(desk: &Desk, handler: F) -> Background
where
    F: Fn(Job) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Reply, Unfinished>> + Send + 'static,
{
    let worker = Worker::new(desk.tasks(), "worker-1", config()).on(OPERATION, handler);
    Background::start("worker", |timer, stop| async move { worker.run(&timer, stop).await }).unwrap()
}

/// The task, as soon as it is as `wanted`.
fn wait_until(desk: &Desk, id: &TaskId, wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let (ring, rung) = mpsc::channel();
    let bell: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
        let _nobody_waits = ring.send(());
    });
    desk.tasks().on_change(&bell).unwrap();
    loop {
        let task = desk.get(id).unwrap();
        if wanted(&task) {
            return task;
        }
        rung.recv_timeout(HANG).expect("the task changes");
    }
}

fn over(desk: &Desk, id: &TaskId) -> (Status, serde_json::Value) {
    let task = wait_until(desk, id, |task| task.status.is_terminal());
    (task.status, task.outcome.map_or(serde_json::Value::Null, |outcome| outcome.decode().unwrap()))
}

#[test]
fn rule_k2_a_reply_completes_also_with_is_error_and_only_an_error_of_the_protocol_fails() {
    let desk = Desk::open();
    let _working = at_work(&desk, |job| async move {
        match job.key().map(Key::as_str) {
            Some("good") => Ok(Reply::text("packed")),
            Some("sorry") => Ok(Reply::error("the shelf is empty")),
            Some("wrong") => Err(RpcError::new(-7, "no").with_data(r#"{"a":1}"#).into()),
            _ => panic!("on purpose"),
        }
    });
    let end = |key: &str| over(&desk, &desk.fresh(key));
    let (status, result) = end("good");
    assert_eq!((status, &result["resultType"]), (Status::Completed, &"complete".into()));
    let (status, result) = end("sorry");
    assert_eq!((status, &result["isError"]), (Status::Completed, &true.into()));
    let (status, error) = end("wrong");
    assert_eq!(status, Status::Failed);
    assert_eq!(error, serde_json::json!({"code": -7, "message": "no", "data": {"a": 1}}));
    let (status, error) = end("panics");
    assert_eq!((status, &error["code"]), (Status::Failed, &(-32603).into()));
    assert_eq!(end("good-again").0, Status::Failed, "a panic costs its own task");
}

#[test]
fn rule_k3_a_cancellation_is_observed_where_the_handler_looks_and_not_before() {
    let desk = Desk::open();
    let (say, said) = mpsc::channel();
    let _working = at_work(&desk, move |job| {
        let say = say.clone();
        async move {
            say.send(()).unwrap();
            while !job.is_cancelled() {
                job.keep(Step::default()).await?;
            }
            say.send(()).unwrap();
            match job.key().map(Key::as_str) {
                Some("stops") => job.checkpoint(Step::step(1)).await?,
                _ => job.keep(Step::step(1)).await?,
            }
            Ok(Reply::text("finished all the same"))
        }
    });
    for (key, expected) in [("stops", Status::Cancelled), ("goes on", Status::Completed)] {
        let id = desk.fresh(&key.replace(' ', "-"));
        said.recv_timeout(HANG).unwrap();
        assert_eq!(desk.get(&id).unwrap().status, Status::Working);
        desk.tasks().cancel("tenant-1", &id).unwrap();
        said.recv_timeout(HANG).unwrap();
        assert_eq!(over(&desk, &id).0, expected, "{key}");
        assert_eq!(desk.get(&id).unwrap().progress.step, 1, "the last step is stored whatever it says");
    }
}

#[test]
fn a_sleeping_handler_hears_of_a_cancellation_without_a_checkpoint_of_its_own() {
    let desk = Desk::open();
    let _working = at_work(&desk, |job| async move {
        job.sleep(HANG * 100).await?;
        Ok(Reply::text("slept"))
    });
    let id = desk.fresh("one");
    desk.tasks().cancel("tenant-1", &id).unwrap();
    assert_eq!(over(&desk, &id).0, Status::Cancelled);
}

#[test]
fn a_second_worker_goes_on_after_the_last_step_and_the_first_one_is_shut_out() {
    let desk = Desk::open();
    let (say, said) = mpsc::channel();
    let first = at_work(&desk, move |job| {
        let say = say.clone();
        async move {
            job.checkpoint(Step::step(3).state(&"shelf 3")?.message("at shelf 3")).await?;
            say.send(()).unwrap();
            std::future::pending().await
        }
    });
    let id = desk.fresh("one");
    said.recv_timeout(HANG).unwrap();
    assert!(claim(&desk.other().tasks(), "worker-2").is_none(), "its lease is kept while the handler waits");
    first.stop();
    let second = claim(&desk.other().tasks(), "worker-2").expect("a worker that stops gives its task up");
    assert_eq!((second.lease.task(), second.progress.step), (&id, 3));
    assert_eq!(second.progress.state.unwrap().decode::<String>().unwrap(), "shelf 3");
}

#[test]
fn a_handler_whose_lease_is_lost_is_dropped() {
    struct Dropped(mpsc::Sender<&'static str>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let _nobody_waits = self.0.send("dropped");
        }
    }
    let desk = Desk::open();
    let (say, said) = mpsc::channel();
    let release = Arc::new(std::sync::Mutex::new(()));
    let held = release.lock().unwrap();
    let gate = Arc::clone(&release);
    let _working = at_work(&desk, move |job| {
        let (dropped, say, gate) = (Dropped(say.clone()), say.clone(), Arc::clone(&gate));
        async move {
            let _dropped = dropped;
            say.send("begun").unwrap();
            // Blocks its thread, so nobody keeps the lease.
            drop(gate.lock().unwrap());
            job.sleep(HANG * 100).await?;
            Ok(Reply::text("too late"))
        }
    });
    let id = desk.fresh("one");
    assert_eq!(said.recv_timeout(HANG), Ok("begun"));
    desk.advance(LEASE * 2);
    let second = claim(&desk.other().tasks(), "worker-2").expect("its lease is over");
    drop(held);
    assert_eq!(said.recv_timeout(HANG), Ok("dropped"));
    desk.tasks().complete(&second.lease, body("by the second")).unwrap();
    assert_eq!(over(&desk, &id), (Status::Completed, "by the second".into()));
}

#[test]
fn a_panic_inside_an_external_step_leaves_the_task_in_doubt() {
    let desk = Desk::open();
    let (say, said) = mpsc::channel();
    let working = at_work(&desk, move |job| {
        let say = say.clone();
        async move {
            job.external_started().await?;
            say.send(()).unwrap();
            panic!("on purpose");
        }
    });
    let id = desk.fresh("one");
    said.recv_timeout(HANG).unwrap();
    working.stop();
    assert_eq!(desk.get(&id).unwrap().status, Status::Working, "nobody knows what became of the step");
    desk.advance(LEASE * 2);
    assert_eq!(desk.tasks().expire_leases(10).unwrap(), 1);
    let doubt = desk.get(&id).unwrap();
    assert_eq!((doubt.status, desk.tasks().in_doubt(None, 10).unwrap().len()), (Status::Working, 1));
    assert!(doubt.progress.message.unwrap().contains("unknown outcome"));
    assert!(claim(&desk.tasks(), "worker-2").is_none(), "nobody runs it again unasked");
}

#[test]
fn a_task_that_loses_its_workers_again_and_again_fails() {
    let desk = Desk::open();
    let id = desk.fresh("one");
    for _ in 0..config().leases {
        claim(&desk.tasks(), "dies").expect("it waits");
        desk.advance(LEASE * 2);
    }
    let _working = at_work(&desk, |_job| async move { Ok(Reply::text("never")) });
    let (status, error) = over(&desk, &id);
    assert_eq!((status, &error["code"]), (Status::Failed, &(-32603).into()));
}

#[test]
fn rule_k4_questions_go_round_and_only_declared_kinds_are_asked() {
    const FORM: &str = r#"{"message":"?","requestedSchema":{"type":"object","properties":{}}}"#;
    let desk = Desk::open();
    let _working = at_work(&desk, |job| async move {
        let answers = job.ask(&[("sure", Kind::Form, FORM), ("when", Kind::Form, FORM)]).await?;
        Ok(Reply::text(&format!("{answers:?}")))
    });
    let create = |key: &str, capabilities: &str| {
        let payload = Body::from_json(&format!(r#"{{"arguments":{{}},"capabilities":{capabilities}}}"#)).unwrap();
        let spec = TaskSpec { payload: Some(payload), ..TaskSpec::default() };
        create_for(&desk.tasks(), "tenant-1", key, spec).unwrap().into_inner().id
    };
    let (status, error) = over(&desk, &create("mute", "{}"));
    assert_eq!((status, &error["code"]), (Status::Failed, &(-32021).into()));
    let id = create("asks", r#"{"elicitation":{}}"#);
    let asked = wait_until(&desk, &id, |task| task.status == Status::InputRequired);
    assert_eq!(asked.input_requests.len(), 2);
    assert_eq!(asked.input_requests[0].request.json(), format!(r#"{{"method":"elicitation/create","params":{FORM}}}"#));
    for key in ["when", "sure"] {
        let answer = Body::from_json(r#"{"action":"decline"}"#).unwrap();
        desk.tasks().update("tenant-1", &id, [(key.into(), answer)].into()).unwrap();
    }
    assert_eq!(over(&desk, &id).0, Status::Completed);
}
