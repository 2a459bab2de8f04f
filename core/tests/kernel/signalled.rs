//! A process at the signals that ask it to end: it drains, it cuts, and it exits however busy its handlers are.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use steady_core::kernel::{Shutdown, end_at_signals};
use steady_core::time::Instant;

use super::ms;
use super::shutdown::config;
use super::support::{Driven, World};

/// A process that serves under [`config`], and is sent signals.
struct Process {
    world: World,
    signals: Arc<AtomicU32>,
    has_ended: Arc<AtomicBool>,
    shutdown: Shutdown,
    watched: Pin<Box<dyn Future<Output = i32>>>,
}

impl Process {
    fn start() -> Self {
        let (world, (shutdown, config)) = (World::default(), config());
        let (signals, has_ended) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
        let (caught, ended, timer) = (Arc::clone(&signals), Arc::clone(&has_ended), world.ports().timer);
        let watched = Box::pin(async move {
            let poll_signal = move |_: &mut Context<'_>| {
                let Some(less) = caught.load(Ordering::Relaxed).checked_sub(1) else { return Poll::Pending };
                caught.store(less, Ordering::Relaxed);
                Poll::Ready(())
            };
            end_at_signals(poll_signal, &*timer, &config, || ended.load(Ordering::Relaxed)).await
        });
        Self { world, signals, has_ended, shutdown, watched }
    }

    /// What the process exits with now, if it does.
    fn turn(&mut self) -> Option<i32> {
        match self.watched.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(code) => Some(code),
            Poll::Pending => None,
        }
    }

    fn is_cut(&self) -> bool {
        let mut cutting = pin!(self.shutdown.cutting());
        cutting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    fn ends(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    fn signal(&mut self) -> Option<i32> {
        self.signals.fetch_add(1, Ordering::Relaxed);
        self.turn()
    }

    fn at(&mut self, now: Instant) -> Option<i32> {
        self.world.advance(now);
        self.turn()
    }
}

#[test]
fn the_first_signal_drains_and_the_second_cuts() {
    let mut process = Process::start();
    assert_eq!((process.turn(), process.shutdown.is_draining()), (None, false));
    assert_eq!((process.signal(), process.shutdown.is_draining(), process.is_cut()), (None, true, false));
    assert_eq!((process.signal(), process.is_cut()), (None, true));
}

#[test]
fn who_still_serves_after_the_limits_is_ended() {
    let mut process = Process::start();
    assert_eq!(process.signal(), None);
    // 1000 ms to finish, 100 ms for handlers, 500 ms for the output.
    assert_eq!(process.at(ms(1599)), None);
    assert_eq!(process.at(ms(1600)), Some(1));
    let mut process = Process::start();
    assert_eq!((process.signal(), process.signal()), (None, None));
    assert_eq!(process.at(ms(599)), None);
    assert_eq!(process.at(ms(600)), Some(1), "a cut has the time of the answers only");
}

#[test]
fn who_has_ended_in_time_goes_on_until_another_signal() {
    let mut process = Process::start();
    assert_eq!(process.signal(), None);
    process.ends();
    assert_eq!(process.at(ms(1600)), None, "the program may finish");
    assert_eq!((process.signal(), process.is_cut()), (Some(143), false));
    let mut process = Process::start();
    process.ends();
    assert_eq!(process.signal(), Some(143), "serving ended by itself: nothing is left to drain");
    assert!(!process.shutdown.is_draining());
}

#[test]
fn a_second_signal_within_the_limit_ends_a_process_that_serves_no_more() {
    let mut process = Process::start();
    assert_eq!(process.signal(), None);
    process.ends();
    assert_eq!(process.at(ms(200)), None, "the program cleans up, and hangs");
    assert_eq!((process.signal(), process.is_cut()), (Some(143), false));
}

#[test]
fn everybody_who_waits_for_a_stage_hears_of_it() {
    let shutdown = Shutdown::new();
    let (mut draining, mut cutting) = (Driven::new(shutdown.draining()), Driven::new(shutdown.cutting()));
    assert_eq!((draining.turn(), cutting.turn()), (Some(Poll::Pending), Some(Poll::Pending)));
    shutdown.drain();
    assert_eq!((draining.turn(), cutting.turn()), (Some(Poll::Ready(())), Some(Poll::Pending)));
    shutdown.cut();
    assert_eq!(cutting.turn(), Some(Poll::Ready(())), "told of one stage, it hears of the next");
}
