//! Decides who moves the bytes of a connection: those who wait for an answer on it, in their own task. So a round trip wakes
//! one task, once, and an idle connection costs nothing.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::Handle;

/// What moves the bytes, until the connection is over.
pub(super) type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A connection that moves while somebody waits for it.
pub(super) struct Driver {
    /// None once it is over.
    running: Mutex<Option<Running>>,
    waiting: Arc<Waiting>,
    runtime: Handle,
}

/// Everybody who waits for this connection. All of them hear that it can move: whoever comes first moves it for all.
#[derive(Default)]
struct Waiting(Mutex<Places>);

#[derive(Default)]
struct Places {
    next: u64,
    wakers: Vec<(u64, Waker)>,
}

impl Waiting {
    fn places<T>(&self, act: impl FnOnce(&mut Places) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // They take their places again when they look.
        let woken = self.places(|places| std::mem::take(&mut places.wakers));
        woken.into_iter().for_each(|(_, waker)| waker.wake());
    }
}

/// The place of one who waits.
struct Place<'a> {
    waiting: &'a Waiting,
    number: u64,
}

impl<'a> Place<'a> {
    fn new(waiting: &'a Waiting) -> Self {
        let number = waiting.places(|places| {
            places.next += 1;
            places.next
        });
        Self { waiting, number }
    }

    fn take(&self, waker: &Waker) {
        self.waiting.places(|places| match places.wakers.iter_mut().find(|(number, _)| *number == self.number) {
            Some((_, known)) => known.clone_from(waker),
            None => places.wakers.push((self.number, waker.clone())),
        });
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.places(|places| places.wakers.retain(|(number, _)| *number != self.number));
    }
}

impl Driver {
    pub(super) fn new(running: Running) -> Self {
        Self { running: Mutex::new(Some(running)), waiting: Arc::default(), runtime: Handle::current() }
    }

    /// Waits for what the connection has to bring.
    pub(super) async fn wait<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        let place = Place::new(&self.waiting);
        poll_fn(|cx| {
            // First what it asks for, then the way there and back, then what came.
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            place.take(cx.waker());
            self.go_on();
            work.as_mut().poll(cx)
        })
        .await
    }

    /// Whether the connection is over, as far as one can see without asking.
    pub(super) fn is_over(&self) -> bool {
        !self.go_on()
    }

    /// Moves what can move now. Returns whether the connection is still there.
    fn go_on(&self) -> bool {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(connection) = running.as_mut() else { return false };
        let waker = Waker::from(Arc::clone(&self.waiting));
        let is_over = connection.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if is_over {
            *running = None;
        }
        !is_over
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The server is told that nobody is here any more, at once if that can be. What is still on its way goes on.
        if self.go_on()
            && let Some(running) = self.running.get_mut().unwrap_or_else(PoisonError::into_inner).take()
        {
            self.runtime.spawn(running);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts how often somebody is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A connection that brings one answer each time that it is polled after `bell` was rung, in order.
    #[derive(Default)]
    struct Server {
        rung: Mutex<(usize, Option<Waker>)>,
        brought: AtomicUsize,
    }

    impl Server {
        fn ring(&self) {
            let mut rung = self.rung.lock().unwrap();
            rung.0 += 1;
            let waker = rung.1.take();
            drop(rung);
            waker.into_iter().for_each(Waker::wake);
        }

        fn connection(self: &Arc<Self>) -> Running {
            let server = Arc::clone(self);
            Box::pin(poll_fn(move |cx| {
                let mut rung = server.rung.lock().unwrap();
                if rung.0 > server.brought.load(Ordering::SeqCst) {
                    server.brought.fetch_add(1, Ordering::SeqCst);
                }
                rung.1 = Some(cx.waker().clone());
                Poll::Pending
            }))
        }

        /// The answer of this number. It wakes nobody by itself: that is for the connection to do.
        async fn answer(self: Arc<Self>, number: usize) {
            poll_fn(|_| if self.brought.load(Ordering::SeqCst) >= number { Poll::Ready(()) } else { Poll::Pending })
                .await;
        }
    }

    #[tokio::test]
    async fn one_who_waits_moves_the_connection_for_another_and_hands_it_on_when_it_goes() {
        let server = Arc::new(Server::default());
        let driver = Driver::new(server.connection());
        let (first, second) = (Arc::<Count>::default(), Arc::<Count>::default());
        let wakers = [Waker::from(Arc::clone(&first)), Waker::from(Arc::clone(&second))];
        let mut one = Box::pin(driver.wait(Arc::clone(&server).answer(1)));
        let mut two = Box::pin(driver.wait(Arc::clone(&server).answer(2)));
        let [mut at_one, mut at_two] = wakers.each_ref().map(Context::from_waker);
        assert!(two.as_mut().poll(&mut at_two).is_pending());
        assert!(one.as_mut().poll(&mut at_one).is_pending());
        let woken = || (first.0.load(Ordering::SeqCst), second.0.load(Ordering::SeqCst));
        assert_eq!(woken(), (0, 0));
        server.ring();
        assert_eq!(woken(), (1, 1), "both hear of it");
        assert!(one.as_mut().poll(&mut at_one).is_ready());
        assert!(two.as_mut().poll(&mut at_two).is_pending());
        // The waker that the connection knows is not that of one who has gone.
        drop(one);
        server.ring();
        assert_eq!(woken(), (1, 2));
        assert!(two.as_mut().poll(&mut at_two).is_ready());
    }

    #[tokio::test]
    async fn a_connection_that_ends_is_over_and_one_that_is_dropped_goes_to_its_end() {
        let driver = Driver::new(Box::pin(std::future::ready(())));
        assert!(driver.is_over() && driver.is_over());
        let (end, ended) = tokio::sync::oneshot::channel();
        let mut end = Some(end);
        let mut polls = 0;
        let driver = Driver::new(Box::pin(poll_fn(move |cx| {
            polls += 1;
            if polls < 3 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            end.take().unwrap().send(()).unwrap();
            Poll::Ready(())
        })));
        assert!(!driver.is_over());
        drop(driver);
        ended.await.unwrap();
    }
}
