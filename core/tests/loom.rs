//! Every interleaving of two or three threads around the queue and a request's slot: nobody sleeps through a wake-up, no
//! progress follows the final, nothing follows a cancellation.
//!
//! With `RUSTFLAGS="--cfg steady_loom"` the models are searched by loom; without it they run once each as plain threads.
//! Run: `RUSTFLAGS="--cfg steady_loom" cargo test -p mcp-steady-core --release --test loom --target-dir target/loom`

use std::future::poll_fn;
use std::sync::{Arc as Shared, Mutex};
use std::task::{Context, Poll};

use steady_core::coordinator::{Effect, Event, ServedRequest};
use steady_core::deadline::Limits;
use steady_core::kernel::{
    Answer, BoxFuture, Call, Context as Request, Exchange, OutboundQueue, Ports, ServerConfig, Service, Spawn, Timer,
};
use steady_core::outbound::{Config, Handle, Item, Popped, Pushed, SendPermit};
use steady_core::time::Instant;

use shim::{Arc, block_on, model, spawn};

#[cfg(steady_loom)]
mod shim {
    pub(crate) use loom::future::block_on;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::thread::spawn;

    /// Searches all interleavings with at most this many preemptions; `None`: all.
    pub(crate) fn model(preemptions: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = preemptions;
        builder.max_branches = 10_000;
        builder.check(test);
    }
}

#[cfg(not(steady_loom))]
mod shim {
    pub(crate) use std::sync::Arc;
    pub(crate) use std::thread::spawn;

    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Wake, Waker};
    use std::thread::Thread;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        let waker: Waker = Arc::new(Unpark(std::thread::current())).into();
        let (mut cx, mut future) = (Context::from_waker(&waker), pin!(future));
        loop {
            match future.as_mut().poll(&mut cx) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    pub(crate) fn model(_preemptions: Option<usize>, test: impl Fn() + Send + Sync + 'static) {
        test();
    }
}

fn permit(handle: Handle) -> SendPermit {
    let mut request = ServedRequest::start(Instant::ZERO, handle, Limits::default(), true, Default::default());
    let Effect::Respond { permit, .. } = request.handle(Instant::ZERO, Event::Complete) else { panic!("in flight") };
    permit
}

const CALL: Handle = Handle::new(0, 1);

fn queue(config: Config) -> Arc<OutboundQueue> {
    let queue = OutboundQueue::new(config);
    queue.open(CALL, "p");
    Arc::new(queue)
}

/// Takes the next message, parking until there is one.
fn next(queue: &OutboundQueue) -> (Popped, bool) {
    block_on(poll_fn(|cx: &mut Context<'_>| {
        loop {
            if let Some(popped) = queue.pop(|item| matches!(item, Item::Progress { .. })) {
                return Poll::Ready(popped);
            }
            if queue.park(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }))
}

#[test]
fn a_parked_consumer_hears_of_what_comes() {
    model(None, || {
        let queue = queue(Config { capacity: 2, ..Config::default() });
        let producer = {
            let queue = Arc::clone(&queue);
            spawn(move || {
                assert_eq!(queue.progress(CALL, 1.0, None, ""), Pushed::Queued);
                queue.finish(permit(CALL), b"final".to_vec());
            })
        };
        let (first, progress) = next(&queue);
        if progress {
            assert!(!first.last && next(&queue).0.last);
        } else {
            panic!("the final came without the progress before it");
        }
        producer.join().expect("no panic");
        assert!(queue.is_empty());
    });
}

#[test]
fn progress_of_another_thread_never_follows_the_final() {
    model(Some(3), || {
        let queue = queue(Config { capacity: 2, ..Config::default() });
        let reporter = {
            let queue = Arc::clone(&queue);
            spawn(move || {
                let _before_or_after_the_final: Pushed = queue.progress(CALL, 1.0, None, "");
            })
        };
        let finisher = {
            let queue = Arc::clone(&queue);
            spawn(move || queue.finish(permit(CALL), b"final".to_vec()))
        };
        while !next(&queue).0.last {}
        reporter.join().expect("no panic");
        finisher.join().expect("no panic");
        assert!(queue.is_empty(), "OUT-3: something followed the final");
    });
}

#[test]
fn a_producer_that_waits_for_room_and_a_parked_consumer_wake_each_other() {
    model(None, || {
        let queue = queue(Config { lossless: 1, ..Config::default() });
        let producer = {
            let queue = Arc::clone(&queue);
            spawn(move || {
                for body in [b"1", b"2"] {
                    block_on(poll_fn(|cx: &mut Context<'_>| queue.poll_lossless(cx, CALL, body)));
                }
            })
        };
        assert!(!next(&queue).0.last);
        assert!(!next(&queue).0.last);
        producer.join().expect("no panic");
        assert!(queue.is_empty());
    });
}

#[test]
fn a_purge_reaches_a_producer_that_waits_for_room() {
    model(None, || {
        let queue = queue(Config { lossless: 1, ..Config::default() });
        let producer = {
            let queue = Arc::clone(&queue);
            spawn(move || {
                for body in [b"1", b"2"] {
                    block_on(poll_fn(|cx: &mut Context<'_>| queue.poll_lossless(cx, CALL, body)));
                }
            })
        };
        queue.purge(CALL);
        producer.join().expect("no panic: the producer does not wait for ever");
        assert!(queue.pop(|_| ()).is_none(), "OUT-3");
    });
}

/// Ports of one exchange: a clock that stands still, and the one task that is spawned.
#[derive(Clone, Default)]
struct Still(Shared<Mutex<Option<BoxFuture<()>>>>);

impl Still {
    fn ports(&self) -> Ports {
        Ports { timer: Shared::new(self.clone()), spawn: Shared::new(self.clone()) }
    }

    fn task(&self) -> BoxFuture<()> {
        self.0.lock().expect("no panic").take().expect("a handler that was not done at once")
    }
}

impl Timer for Still {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn sleep_until(&self, _: Instant) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

impl Spawn for Still {
    fn spawn(&self, task: BoxFuture<()>) {
        *self.0.lock().expect("no panic") = Some(task);
    }

    fn spawn_blocking(&self, _: Box<dyn FnOnce() + Send>) {
        unreachable!("no handler blocks here");
    }
}

/// A handler that is pending once, then reports and answers, or waits for its cancellation.
struct Once {
    waits: bool,
}

impl Service for Once {
    fn call(&self, _: Call, cx: Request) -> Answer {
        let (waits, mut polled) = (self.waits, false);
        Answer::later(async move {
            poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
            if waits {
                cx.cancelled().await;
            } else {
                cx.report(1.0, None, "");
            }
            Ok("{}".to_owned())
        })
    }
}

const REQUEST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"progressToken":1}}}"#;

fn exchange(waits: bool) -> (Exchange<Once>, BoxFuture<()>) {
    let still = Still::default();
    let config = ServerConfig::default();
    let exchange = Exchange::start(Shared::new(Once { waits }), still.ports(), config, REQUEST);
    (exchange, still.task())
}

#[test]
fn an_exchange_hears_of_its_handlers_answer() {
    model(Some(3), || {
        let (mut exchange, task) = exchange(false);
        let handler = spawn(move || block_on(task));
        let mut out = Vec::new();
        let mut messages = 0;
        while block_on(poll_fn(|cx| exchange.poll_message(cx, &mut out))) != Some(true) {
            messages += 1;
        }
        assert_eq!(messages, 1, "the progress, then the answer");
        handler.join().expect("no panic");
    });
}

#[test]
fn a_handler_that_waits_for_its_cancellation_hears_of_it() {
    model(Some(3), || {
        let (exchange, task) = exchange(true);
        let handler = spawn(move || block_on(task));
        drop(exchange);
        handler.join().expect("no panic: it is not left waiting");
    });
}

#[test]
fn an_exchange_is_dropped_while_its_handler_reports_and_answers() {
    model(Some(3), || {
        let (exchange, task) = exchange(false);
        let handler = spawn(move || block_on(task));
        drop(exchange);
        handler.join().expect("no panic, whoever came first");
    });
}
