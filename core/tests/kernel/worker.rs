//! A worker on a store that refuses in passing: no lease is claimed again before a pause.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
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
    released: Arc<AtomicU32>,
    lost: u32,
    /// How many tasks there are.
    tasks: Option<u32>,
    ended: Arc<Mutex<Option<TaskEnd>>>,
}

impl TaskQueue for Busy {
    fn claim(&self, operations: &[&str], owner: &str, lease: Duration) -> Stored<Option<Claim>> {
        let none_waits = match self.tasks {
            Some(tasks) => self.claims.load(Ordering::SeqCst) >= tasks,
            None => self.ended.lock().expect("no panic").is_some(),
        };
        if none_waits {
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
        self.released.fetch_add(1, Ordering::SeqCst);
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
        assert_eq!(running.turn(), Some(Poll::Ready(Ok(true))));
        store.ended.lock().expect("no panic").take()
    };
    assert!(matches!(end_of(15, 100), Some(TaskEnd::Complete(_))), "its lease is the 116th");
    let Some(TaskEnd::Fail(error)) = end_of(16, 0) else { panic!("it goes on for ever") };
    assert!(error.contains("lost 16 workers"), "{error}");
}

#[test]
fn a_worker_hears_that_it_is_to_stop_between_two_tasks_whose_handlers_never_wait() {
    let store = Busy { tasks: Some(100), ..Busy::default() };
    let worker = Worker::new(store.clone(), "worker", WorkerConfig::default())
        .on("pack", |_| async move { Ok(Reply::text("packed")) });
    let timer: Arc<dyn Timer> = Arc::new(World::default());
    let claims = Arc::clone(&store.claims);
    let stop =
        std::future::poll_fn(move |_| if claims.load(Ordering::SeqCst) >= 3 { Poll::Ready(()) } else { Poll::Pending });
    let mut running = Driven::new(async move { worker.run(&timer, stop).await });
    assert_eq!(running.turn(), Some(Poll::Ready(())));
    assert_eq!(store.claims.load(Ordering::SeqCst), 3, "the others wait for another worker");
}

/// Its destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

#[test]
fn a_handler_whose_destructor_panics_does_not_take_its_worker_along() {
    // The one is given up, the other has ended.
    for (ends, released) in [(false, 1), (true, 0)] {
        let store = Busy::default();
        let worker = Worker::new(store.clone(), "worker", WorkerConfig::default()).on("pack", move |_| async move {
            let _bomb = Bomb;
            if !ends {
                std::future::pending::<()>().await;
            }
            Ok(Reply::text("packed"))
        });
        let timer: Arc<dyn Timer> = Arc::new(World::default());
        let claims = Arc::clone(&store.claims);
        let stop =
            std::future::poll_fn(
                move |_| {
                    if claims.load(Ordering::SeqCst) > 0 { Poll::Ready(()) } else { Poll::Pending }
                },
            );
        let mut running = Driven::new(async move { worker.run(&timer, stop).await });
        assert_eq!(running.turn(), Some(Poll::Ready(())), "{ends}");
        assert_eq!(store.released.load(Ordering::SeqCst), released, "{ends}");
    }
}
