//! A worker on a store that refuses in passing: no lease is claimed again before a pause.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steady_core::kernel::tasks::{
    Claim, Known, Lease, OnChange, Progress, Stored, TaskEnd, TaskQueue, TaskStoreError, Worker, WorkerConfig,
};
use steady_core::kernel::{Reply, Timer};

use super::ms;
use super::support::{Driven, World};

/// A store with one task, whose checkpoints it refuses for as long as it is busy.
#[derive(Clone, Default)]
struct Busy {
    claims: Arc<AtomicU32>,
    refusals: Arc<AtomicU32>,
    lost: u32,
    ended: Arc<Mutex<Option<TaskEnd>>>,
}

impl TaskQueue for Busy {
    fn claim(&self, operations: &[&str], owner: &str, lease: Duration) -> Stored<Option<Claim>> {
        if self.ended.lock().expect("no panic").is_some() {
            return Box::pin(async { Ok(None) });
        }
        let epoch = self.claims.fetch_add(1, Ordering::SeqCst) + 1;
        let lease =
            Lease { task: "t-1".into(), operation: operations[0].into(), owner: owner.into(), epoch, duration: lease };
        let (progress, known) = (Progress::default(), Known::default());
        let lost_leases = self.lost;
        let claim = Claim { lease, lost_leases, principal: "".into(), key: None, payload: None, progress, known };
        Box::pin(async { Ok(Some(claim)) })
    }

    fn checkpoint(&self, _: &Lease, _: Progress) -> Stored<Known> {
        let left = self.refusals.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        let busy = left.is_ok();
        Box::pin(
            async move { if busy { Err(TaskStoreError::Unavailable("busy".into())) } else { Ok(Known::default()) } },
        )
    }

    fn ask(&self, _: &Lease, _: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        Box::pin(async { Ok(()) })
    }

    fn external(&self, _: &Lease, _: bool) -> Stored<()> {
        Box::pin(async { Ok(()) })
    }

    fn finish(&self, _: &Lease, end: TaskEnd) -> Stored<()> {
        *self.ended.lock().expect("no panic") = Some(end);
        Box::pin(async { Ok(()) })
    }

    fn release(&self, _: &Lease) -> Stored<()> {
        Box::pin(async { Ok(()) })
    }

    fn on_change(&self, _: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        Ok(())
    }
}

#[test]
fn a_store_that_refuses_in_passing_is_asked_after_a_pause_and_burns_no_leases_without_one() {
    let world = World::default();
    let store = Busy { refusals: Arc::new(AtomicU32::new(3)), ..Busy::default() };
    let worker = Worker::new(store.clone(), "worker", WorkerConfig::default()).on("pack", |job| async move {
        job.checkpoint(Progress::step(1)).await?;
        Ok(Reply::text("packed"))
    });
    let timer: Arc<dyn Timer> = Arc::new(world.clone());
    let mut running = Driven::new(async move { worker.run(&timer, std::future::pending()).await });
    let mut claims = Vec::new();
    for at in [0, 1_999, 2_000, 5_999, 6_000, 14_000] {
        world.advance(ms(at));
        while running.turn().is_some() {}
        claims.push(store.claims.load(Ordering::SeqCst));
    }
    assert_eq!(claims, [1, 1, 2, 2, 3, 4], "one claim a pause, and the pauses grow");
    assert!(matches!(*store.ended.lock().expect("no panic"), Some(TaskEnd::Complete(_))), "then it is done");
}

#[test]
fn a_task_that_lost_too_many_leases_fails_and_one_that_was_given_back_often_does_not() {
    let world = World::default();
    let timer: Arc<dyn Timer> = Arc::new(world);
    let end_of = |lost: u32, given_back: u32| {
        let store = Busy { lost, claims: Arc::new(AtomicU32::new(lost + given_back)), ..Busy::default() };
        let worker = Worker::new(store.clone(), "worker", WorkerConfig::default())
            .on("pack", |_| async move { Ok(Reply::text("packed")) });
        let timer = Arc::clone(&timer);
        let mut running = Driven::new(async move { worker.run_one(&timer).await });
        assert_eq!(running.turn(), Some(std::task::Poll::Ready(Ok(true))));
        store.ended.lock().expect("no panic").take()
    };
    assert!(matches!(end_of(15, 100), Some(TaskEnd::Complete(_))), "its lease is the 116th");
    let Some(TaskEnd::Fail(error)) = end_of(16, 0) else { panic!("it goes on for ever") };
    assert!(error.contains("lost 16 workers"), "{error}");
}
