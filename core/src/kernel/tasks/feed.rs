//! Brings the changes of a store to whoever listens for them: those of this process at once, those of others by looking.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::future::Future;
use core::time::Duration;

use super::bell::{Bell, Either, either};
use super::{OnChange, TaskChange, TaskServer, TaskStore, TaskStoreError, wire};
use crate::kernel::port::Timer;
use crate::task::Revision;

/// How many changes are read at once.
const PAGE: u32 = 256;
/// The longest pause after the store did not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How often a task that cannot be read is tried before the feed goes on without it: its followers ask for it themselves.
const TRIES: u32 = 5;
/// The shortest look: with none at all the feed would never rest.
pub(super) const SHORTEST_LOOK: Duration = Duration::from_millis(1);

type Report = dyn Fn(&TaskStoreError) + Send + Sync;

/// Who listens for tasks.
pub trait TaskAudience: Send + Sync + 'static {
    /// The ids that somebody listens for, in order.
    fn watched(&self) -> Vec<Box<str>>;

    /// The whole state of a task, a JSON object without `_meta` (rule K6), for this principal alone; it is empty if nobody
    /// was authenticated.
    fn publish(&self, principal: &str, id: &str, state: &str);
}

/// Publishes tasks that change to an audience, whichever process changes them. It runs in one place of a server's process.
pub struct TaskFeed<A> {
    store: Arc<dyn TaskStore>,
    audience: A,
    look: Duration,
    report: Box<Report>,
    bell: Arc<Bell>,
    /// Rings the bell; the store lets go of it with the feed.
    _rings: Arc<OnChange>,
}

impl<A: TaskAudience> TaskFeed<A> {
    /// A feed of the tasks that `server` serves. `look` is how long at most it puts off a look for changes of other
    /// processes, 1 ms or more.
    #[must_use]
    pub fn new(server: &TaskServer, audience: A, look: Duration) -> Self {
        let store = Arc::clone(server.store());
        let (bell, rings) = Bell::new();
        // Without a place for it, looks now and then have to do.
        let _heard = store.on_change(&rings);
        let look = look.max(SHORTEST_LOOK);
        Self { store, audience, look, report: Box::new(|_| {}), bell, _rings: rings }
    }

    /// Is told whenever the store does not do what it should; the feed goes on by itself.
    #[must_use]
    pub fn report(mut self, report: impl Fn(&TaskStoreError) + Send + Sync + 'static) -> Self {
        self.report = Box::new(report);
        self
    }

    /// Publishes until `stop` is done. A store that does not answer is asked again, less and less often; nothing is lost by
    /// that, as the changes are read from where it stopped. One task that cannot be read is passed by after five tries.
    pub async fn run(&self, timer: &Arc<dyn Timer>, stop: impl Future<Output = ()>) {
        let (mut since, mut stuck) = (None, Stuck::default());
        let work = async {
            let mut pause = self.look;
            loop {
                let heard = self.bell.count();
                pause = match self.advance(&mut since, &mut stuck).await {
                    Ok(()) => self.look,
                    Err(error) => {
                        (self.report)(&error);
                        pause.saturating_mul(2).min(LONGEST_PAUSE)
                    }
                };
                let _woken = either(self.bell.wait(heard), timer.sleep_until(timer.now() + pause)).await;
            }
        };
        match either(stop, work).await {
            Either::First(()) => {}
            Either::Second(never) => never,
        }
    }

    /// Publishes what changed since the last time.
    async fn advance(&self, since: &mut Option<Revision>, stuck: &mut Stuck) -> Result<(), TaskStoreError> {
        let Some(since) = since else {
            *since = Some(self.store.last_revision().await?);
            return Ok(());
        };
        loop {
            let changes = self.store.changed_since(*since, PAGE).await?;
            let Some(last) = changes.last().map(|change| change.revision) else { return Ok(()) };
            let watched = self.audience.watched();
            for change in changes.iter().filter(|change| watched.binary_search(&change.id).is_ok()) {
                match self.store.get(&change.principal, &change.id).await {
                    Ok(task) => self.audience.publish(&change.principal, &change.id, &wire::state(&task)),
                    // It has expired since.
                    Err(TaskStoreError::Unknown) => {}
                    Err(error) if stuck.gives_up(change) => (self.report)(&error),
                    Err(error) => return Err(error),
                }
            }
            *since = last;
        }
    }
}

/// The task that could not be read, and how often.
#[derive(Default)]
struct Stuck {
    at: Option<(Revision, Box<str>)>,
    tries: u32,
}

impl Stuck {
    /// One more failure to read the task of this change; whether it is enough.
    fn gives_up(&mut self, change: &TaskChange) -> bool {
        let at = (change.revision, change.id.clone());
        self.tries = if self.at.as_ref() == Some(&at) { self.tries + 1 } else { 1 };
        self.at = Some(at);
        self.tries >= TRIES
    }
}

impl<A> fmt::Debug for TaskFeed<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskFeed").field("look", &self.look).finish_non_exhaustive()
    }
}
