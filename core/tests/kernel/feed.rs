//! The feed of task changes on a store that cannot read one of its tasks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steady_core::kernel::Timer;
use steady_core::kernel::tasks::{
    Created, NewTask, OnChange, Stored, TaskAudience, TaskChange, TaskConfig, TaskFeed, TaskServer, TaskState,
    TaskStore, TaskStoreError,
};
use steady_core::task::{Revision, Status};
use steady_core::time::WallTime;

use super::ms;
use super::support::{Driven, World};

/// A store in which both tasks changed once, and one cannot be read.
#[derive(Clone, Default)]
struct Torn {
    reads: Arc<AtomicU32>,
}

fn away<T: Send + 'static>() -> Stored<T> {
    Box::pin(async { Err(TaskStoreError::Unavailable("damaged".into())) })
}

impl TaskStore for Torn {
    fn create(&self, _: NewTask<'_>) -> Stored<Created> {
        away()
    }

    fn get(&self, _: &str, id: &str) -> Stored<TaskState> {
        if id == "torn" {
            self.reads.fetch_add(1, Ordering::SeqCst);
            return away();
        }
        let task = TaskState {
            id: id.into(),
            revision: Revision::new(2),
            status: Status::Working,
            cancel_requested: false,
            message: None,
            created_at: WallTime::from_unix_millis(0),
            updated_at: WallTime::from_unix_millis(0),
            ttl: None,
            poll_interval: Duration::from_secs(1),
            outcome: None,
            input_requests: Vec::new(),
        };
        Box::pin(async { Ok(task) })
    }

    fn update(&self, _: &str, _: &str, _: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        away()
    }

    fn cancel(&self, _: &str, _: &str) -> Stored<()> {
        away()
    }

    fn changed_since(&self, since: Revision, _: u32) -> Stored<Vec<TaskChange>> {
        let changes = ["torn", "whole"].into_iter().zip(1..).map(|(id, revision)| TaskChange {
            principal: "ann".into(),
            id: id.into(),
            revision: Revision::new(revision),
        });
        let changes = changes.filter(|change| change.revision > since).collect();
        Box::pin(async { Ok(changes) })
    }

    fn last_revision(&self) -> Stored<Revision> {
        Box::pin(async { Ok(Revision::new(0)) })
    }

    fn on_change(&self, _: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        Ok(())
    }
}

/// Listens for both.
#[derive(Clone, Default)]
struct Audience(Arc<Mutex<Vec<String>>>);

impl TaskAudience for Audience {
    fn watched(&self) -> Vec<Box<str>> {
        ["torn", "whole"].map(Box::from).to_vec()
    }

    fn publish(&self, _: &str, id: &str, _: &str) {
        self.0.lock().expect("no panic").push(id.to_owned());
    }
}

#[test]
fn a_task_that_cannot_be_read_is_passed_by_after_five_tries_and_told() {
    let (world, store, audience) = (World::default(), Torn::default(), Audience::default());
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    // Without a pause between two looks nothing else would ever run: it is a millisecond then.
    let feed = TaskFeed::new(&TaskServer::new(store.clone(), TaskConfig::default()), audience.clone(), Duration::ZERO)
        .report(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
    let timer: Arc<dyn Timer> = Arc::new(world.clone());
    let mut running = Driven::new(async move { feed.run(&timer, std::future::pending()).await });
    let mut reads = Vec::new();
    // The pauses double.
    for at in [0, 1, 3, 7, 15, 31, 1000] {
        world.advance(ms(at));
        while running.turn().is_some() {}
        reads.push(store.reads.load(Ordering::SeqCst));
    }
    assert_eq!(reads, [0, 1, 2, 3, 4, 5, 5]);
    assert_eq!(*audience.0.lock().expect("no panic"), ["whole"]);
    assert_eq!(told.load(Ordering::SeqCst), 5, "each failure is told");
}
