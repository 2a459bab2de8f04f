//! Decides how a future runs on a thread of its own, for programs without an executor: a worker of tasks, or their feed.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use steady_core::kernel::{BoxFuture, Timer};
use steady_core::time::Instant;

use crate::sync::Mutex;

/// A future on a thread of its own. Dropping it tells the future to stop, and waits for nothing.
///
/// ```no_run
/// use steady_core::kernel::tasks::{Worker, WorkerConfig};
/// use steady_ledger::{Background, Ledger, Options};
///
/// # use steady_core::kernel::Reply;
/// let ledger = Ledger::open("shop.db", Options::default())?;
/// let worker = Worker::new(ledger.tasks(), "packer-1", WorkerConfig::default())
///     .on("pack_order", |_job| async { Ok(Reply::text("packed")) });
/// let packing = Background::start("packer", |timer, stop| async move { worker.run(&timer, stop).await })?;
/// // ... serve ...
/// packing.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Background {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// Done once the [`Background`] is stopped or dropped.
pub struct Stop(Arc<Shared>);

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    waiting: Mutex<Option<Waker>>,
}

impl Background {
    /// Runs what `work` makes of a clock and of the word to stop.
    ///
    /// # Errors
    ///
    /// The system has no thread to give.
    pub fn start<F>(name: &str, work: impl FnOnce(Arc<dyn Timer>, Stop) -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = ()>,
    {
        let shared = Arc::new(Shared::default());
        let stop = Stop(Arc::clone(&shared));
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let timer = ThreadTimer::new();
            block_on(&timer, work(Arc::new(timer.clone()), stop));
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Tells it to stop, and waits until it has.
    pub fn stop(mut self) {
        self.shared.stop();
        let _panicked = self.thread.take().map(JoinHandle::join);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("stopped", &self.shared.stopped).finish_non_exhaustive()
    }
}

impl Shared {
    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(waker) = self.waiting.lock().take() {
            waker.wake();
        }
    }
}

impl Future for Stop {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // First the waker, then the look: the word may come in between.
        *self.0.waiting.lock() = Some(cx.waker().clone());
        if self.0.stopped.load(Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stop")
    }
}

/// The clock of one thread, and whom to wake when. One alarm for each sleep that was polled and not dropped.
#[derive(Clone)]
struct ThreadTimer(Arc<Alarms>);

struct Alarms {
    origin: std::time::Instant,
    set: Mutex<BTreeMap<(Instant, u64), Waker>>,
    next: AtomicU64,
}

impl ThreadTimer {
    fn new() -> Self {
        Self(Arc::new(Alarms { origin: std::time::Instant::now(), set: Mutex::default(), next: AtomicU64::new(0) }))
    }

    /// Wakes whoever is due. How long until the next one is, if there is one.
    fn ring(&self) -> Option<Duration> {
        loop {
            let mut set = self.0.set.lock();
            let first = set.first_entry()?;
            let left = first.key().0.saturating_since(self.now());
            if !left.is_zero() {
                return Some(left);
            }
            let due = first.remove();
            drop(set);
            due.wake();
        }
    }
}

impl Timer for ThreadTimer {
    fn now(&self) -> Instant {
        Instant::ZERO + self.0.origin.elapsed()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<()> {
        let key = (at, self.0.next.fetch_add(1, Ordering::Relaxed));
        Box::pin(Sleep { timer: self.clone(), key })
    }
}

struct Sleep {
    timer: ThreadTimer,
    key: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.now() >= self.key.0 {
            return Poll::Ready(());
        }
        self.timer.0.set.lock().insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.timer.0.set.lock().remove(&self.key);
    }
}

/// Wakes a thread that sleeps in [`block_on`].
struct Unpark {
    thread: Thread,
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        self.thread.unpark();
    }
}

/// Runs a future to its end on this thread.
fn block_on(timer: &ThreadTimer, future: impl Future<Output = ()>) {
    let unpark = Arc::new(Unpark { thread: thread::current(), woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&unpark));
    let mut future = pin!(future);
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        // A wake-up before the thread parks leaves a token, so none is lost.
        while !unpark.woken.swap(false, Ordering::SeqCst) {
            match timer.ring() {
                Some(left) => thread::park_timeout(left),
                None => thread::park(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Longer than any machine takes.
    const HANG: Duration = Duration::from_secs(30);

    #[test]
    fn it_sleeps_in_order_of_time_and_stops_when_it_is_told() {
        let (say, said) = mpsc::channel();
        let background = Background::start("test", move |timer, stop| async move {
            let start = timer.now();
            let at = |millis| timer.sleep_until(start + Duration::from_millis(millis));
            let (mut late, mut early) = (at(20), at(5));
            let first = std::future::poll_fn(|cx| match (late.as_mut().poll(cx), early.as_mut().poll(cx)) {
                (Poll::Pending, Poll::Ready(())) => Poll::Ready("early"),
                (Poll::Ready(()), _) => Poll::Ready("late"),
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            });
            let _heard = say.send(first.await);
            late.await;
            assert!(timer.now() >= start + Duration::from_millis(20));
            let _heard = say.send("slept");
            stop.await;
            let _heard = say.send("stopped");
        });
        let background = background.expect("a thread");
        let heard = || said.recv_timeout(HANG);
        assert!(["early", "late"].contains(&heard().expect("a word")), "a machine may be slow");
        assert_eq!(heard(), Ok("slept"));
        assert_eq!(said.try_recv(), Err(mpsc::TryRecvError::Empty));
        background.stop();
        assert_eq!((heard(), heard()), (Ok("stopped"), Err(mpsc::RecvTimeoutError::Disconnected)));
    }

    #[test]
    fn it_hears_wakers_of_other_threads_and_of_its_drop() {
        let (say, said) = mpsc::channel();
        let (hand_over, wakers) = mpsc::channel::<Waker>();
        let background = Background::start("test", move |_timer, stop| async move {
            let mut polls = 0;
            std::future::poll_fn(|cx| {
                polls += 1;
                let _gone = hand_over.send(cx.waker().clone());
                if polls == 3 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            let _heard = say.send("woken");
            stop.await;
            let _heard = say.send("stopped");
        });
        for _ in 0..2 {
            wakers.recv_timeout(HANG).expect("it was polled").wake();
        }
        assert_eq!(said.recv_timeout(HANG), Ok("woken"));
        drop(background);
        assert_eq!(said.recv_timeout(HANG), Ok("stopped"));
    }
}
