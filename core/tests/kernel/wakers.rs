//! What ends with a waker may come back to where it was kept: none is dropped under a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use steady_core::kernel::{Answer, Hub, OutboundQueue, ServerConfig};
use steady_core::outbound::{Config, Handle};
use steady_core::subscription::Refetch;

use super::{Server, cancel, ok, request};

/// The last owner of a task that looks at something when it ends.
struct Last(Box<dyn Fn() + Send + Sync>);

impl Wake for Last {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Last {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Polls with a waker that `look`s when it is dropped, and then with another one.
fn replaced(look: impl Fn() + Send + Sync + 'static, mut poll: impl FnMut(&mut Context<'_>)) {
    let last = Waker::from(Arc::new(Last(Box::new(look))));
    poll(&mut Context::from_waker(&last));
    drop(last);
    poll(&mut Context::from_waker(Waker::noop()));
}

/// Runs a case on a thread of its own: one that waits for its own lock would never end.
fn ends(case: &str, run: impl FnOnce() + Send + 'static) {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        run();
        done.send(()).expect("the test waits");
    });
    assert!(ended.recv_timeout(Duration::from_secs(20)).is_ok(), "{case} drops a waker under its lock");
    thread.join().expect("no panic");
}

#[test]
fn a_waker_that_is_replaced_is_dropped_outside_of_the_lock() {
    ends("the buffer, its consumer", || {
        let queue = Arc::new(OutboundQueue::new(Config::default()));
        let looked = Arc::clone(&queue);
        replaced(move || assert!(looked.is_empty()), |cx| assert!(queue.park(cx).is_pending()));
    });
    ends("the buffer, a producer", || {
        let queue = Arc::new(OutboundQueue::new(Config { lossless: 1, ..Config::default() }));
        let (call, looked) = (Handle::new(0, 1), Arc::clone(&queue));
        queue.open(call, "");
        assert!(queue.poll_lossless(&Context::from_waker(Waker::noop()), call, b"x").is_ready());
        let last = Waker::from(Arc::new(Last(Box::new(move || assert!(!looked.is_empty())))));
        assert!(queue.poll_lossless(&Context::from_waker(&last), call, b"x").is_pending());
        drop(last);
        queue.purge(call);
    });
    ends("a subscription", || {
        let subscription = Arc::new(Hub::new().subscribe(None, [Refetch::Tools]).expect("room"));
        let looked = Arc::downgrade(&subscription);
        let mut cx = Context::from_waker(Waker::noop());
        assert!(subscription.poll_next(&mut cx).is_ready(), "acknowledged");
        let look = move || {
            if let Some(subscription) = looked.upgrade() {
                subscription.drain();
            }
        };
        replaced(look, |cx| assert!(subscription.poll_next(cx).is_pending()));
    });
    ends("a request", || {
        let mut server = Server::new(ServerConfig::default(), |_, cx| {
            let looked = cx.clone();
            let mut cancelled = Box::pin({
                let cx = cx.clone();
                async move { cx.cancelled().await }
            });
            let look = move || assert!(looked.is_cancelled().is_none());
            replaced(look, |cx| assert!(cancelled.as_mut().poll(cx).is_pending()));
            // The one that waits gives up.
            let looked = cx.clone();
            let last = Waker::from(Arc::new(Last(Box::new(move || assert!(looked.is_cancelled().is_none())))));
            assert!(cancelled.as_mut().poll(&mut Context::from_waker(&last)).is_pending());
            drop(last);
            drop(cancelled);
            Answer::Ready(ok())
        });
        server.send(request(1, "look"));
        assert_eq!(server.received(), ["1 ok"]);
    });
}

/// Counts its wake-ups.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_of_those_who_wait_for_one_cancellation_keeps_its_own_waker() {
    let counts: [Arc<Count>; 2] = std::array::from_fn(|_| Arc::default());
    let counted = counts.clone();
    let mut server = Server::new(ServerConfig::default(), move |_, cx| {
        let mut waiting = counted.clone().map(|count| {
            let cx = cx.clone();
            (Waker::from(count), Box::pin(async move { cx.cancelled().await }))
        });
        // Each is polled again after the other has come.
        for _ in 0..2 {
            for (waker, cancelled) in &mut waiting {
                assert!(cancelled.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
            }
        }
        Answer::later(async move {
            std::future::pending::<()>().await;
            drop(waiting);
            ok()
        })
    });
    server.send(request(1, "wait"));
    server.send(cancel(1));
    assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [1, 1]);
}
