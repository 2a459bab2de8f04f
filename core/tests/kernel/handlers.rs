//! What becomes of handlers: panics, cancellation with grace, sections that cannot be cancelled, deadlines, the end.

use std::future::pending;
use std::time::Duration;

use steady_core::coordinator;
use steady_core::deadline::{Clock, Limits};
use steady_core::kernel::{Answer, CancelReason, ServerConfig};

use super::support::{Drops, Frame};
use super::{Door, Log, Server, cancel, ms, ok, request};

const GRACE: Duration = Duration::from_millis(1000);

fn config() -> ServerConfig {
    ServerConfig { grace: GRACE, ..ServerConfig::default() }
}

fn limited(idle: u64, maximum: u64) -> ServerConfig {
    let limits = Limits { idle: Some(Duration::from_millis(idle)), maximum: Some(Duration::from_millis(maximum)) };
    ServerConfig { requests: coordinator::Config { limits, ..coordinator::Config::default() }, ..config() }
}

#[test]
fn a_panic_is_an_answer_and_the_connection_lives() {
    let door = Door::default();
    let passed = door.clone();
    let mut server = Server::new(config(), move |call, _| match &*call.method {
        "at once" => panic!("in the call itself"),
        "inline" => Answer::later(async { panic!("at the first poll") }),
        "later" => {
            let passed = passed.passed();
            Answer::later(async move {
                passed.await;
                panic!("in the executor")
            })
        }
        "blocking" => Answer::blocking(|| panic!("on a thread")),
        _ => Answer::Ready(ok()),
    });
    for (id, method) in ["at once", "inline", "later", "blocking"].into_iter().enumerate() {
        server.send(request(id, method));
    }
    assert_eq!(server.received(), ["0 error -32603", "1 error -32603"]);
    door.open();
    assert_eq!(server.received(), ["2 error -32603"]);
    server.world.run_jobs();
    server.send(request(4, "echo"));
    assert_eq!(server.received(), ["3 error -32603", "4 ok"]);
    assert_eq!(server.world.running(), 0);
}

#[test]
fn a_handler_that_ignores_its_cancellation_is_dropped_after_its_grace_period() {
    let drops = Drops::default();
    let held = drops.clone();
    let mut server = Server::new(config(), move |_, _| {
        let guard = held.guard();
        Answer::later(async move {
            let _guard = guard;
            pending().await
        })
    });
    server.send(request(1, "never"));
    server.at(ms(500));
    server.send(cancel(1));
    server.at(ms(1499));
    assert_eq!(drops.count(), 0, "within its grace period");
    server.at(ms(1500));
    assert_eq!((drops.count(), server.world.running()), (1, 0));
    assert_eq!(server.received(), Vec::<String>::new());
}

#[test]
fn a_section_that_cannot_be_cancelled_ends_first_and_the_grace_period_starts_there() {
    let (drops, door, log) = (Drops::default(), Door::default(), Log::default());
    let (held, passed, noted) = (drops.clone(), door.clone(), log.clone());
    let mut server = Server::new(config(), move |_, cx| {
        let (guard, passed, log) = (held.guard(), passed.passed(), noted.clone());
        Answer::later(async move {
            let _guard = guard;
            cx.uncancellable(passed).await;
            log.note(format!("section over, cancelled {}", cx.is_cancelled().is_some()));
            pending().await
        })
    });
    server.send(request(1, "commit"));
    server.send(cancel(1));
    server.at(ms(60_000));
    assert_eq!((drops.count(), log.take()), (0, vec![]), "not dropped inside of the section, however long it takes");
    door.open();
    server.run();
    assert_eq!(log.take(), ["section over, cancelled true"]);
    server.at(ms(60_999));
    assert_eq!(drops.count(), 0, "its grace period starts at the end of the section");
    server.at(ms(61_000));
    assert_eq!(drops.count(), 1);
    assert_eq!(server.received(), Vec::<String>::new(), "and all that in silence");
}

#[test]
fn a_section_that_begins_after_the_cancellation_puts_the_drop_off_and_does_not_prevent_it() {
    // The first section is open at the cancellation or not; the second one spans the end of the grace period.
    for first_is_open in [false, true] {
        let (drops, work, commit) = (Drops::default(), Door::default(), Door::default());
        let (held, worked, committed) = (drops.clone(), work.clone(), commit.clone());
        let mut server = Server::new(config(), move |_, cx| {
            let (guard, worked, committed) = (held.guard(), worked.passed(), committed.passed());
            Answer::later(async move {
                let _guard = guard;
                if first_is_open {
                    cx.uncancellable(worked).await;
                } else {
                    worked.await;
                }
                cx.uncancellable(committed).await;
                pending().await
            })
        });
        server.send(request(1, "commit"));
        server.send(cancel(1));
        server.at(ms(900));
        work.open();
        server.run();
        server.at(ms(60_000));
        assert_eq!(drops.count(), 0, "not dropped inside of the section");
        commit.open();
        server.run();
        assert_eq!((drops.count(), server.world.running()), (1, 0), "its time was over: {first_is_open}");
        assert_eq!(server.received(), Vec::<String>::new());
    }
}

#[test]
fn a_blocking_job_that_is_dropped_unrun_is_answered() {
    let drops = Drops::default();
    let held = drops.clone();
    let mut server = Server::new(config(), move |call, _| {
        let guard = held.guard();
        let bomb = match &*call.method {
            "bomb" => Some(Bomb),
            _ => None,
        };
        Answer::blocking(move || {
            let _held = (&guard, &bomb);
            ok()
        })
    });
    server.send(request(1, "work"));
    server.send(request(2, "bomb"));
    server.send(request(3, "work"));
    server.send(cancel(3));
    server.world.drop_jobs();
    assert_eq!(server.received(), ["1 error -32603", "2 error -32603"]);
    assert_eq!(drops.count(), 3);
    // One that nobody waits for is not run, and does no harm either.
    server.send(request(4, "bomb"));
    server.send(cancel(4));
    server.world.run_jobs();
    assert_eq!(server.received(), Vec::<String>::new());
    server.send(request(5, "work"));
    server.world.run_jobs();
    assert_eq!(server.received(), ["5 ok"]);
    assert_eq!(drops.count(), 5);
}

/// Its destructor panics.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

#[test]
fn a_completion_of_a_section_after_the_cancellation_is_silent() {
    let door = Door::default();
    let passed = door.clone();
    let mut server = Server::new(config(), move |_, cx| {
        let passed = passed.passed();
        Answer::later(async move {
            cx.uncancellable(passed).await;
            ok()
        })
    });
    server.send(request(1, "commit"));
    server.send(cancel(1));
    door.open();
    assert_eq!((server.received(), server.world.running()), (vec![], 0));
}

#[test]
fn the_servers_own_deadline_answers_one_error_and_the_late_completion_is_dropped() {
    let (door, log) = (Door::default(), Log::default());
    let (passed, noted) = (door.clone(), log.clone());
    let mut server = Server::new(limited(500, 2000), move |_, cx| {
        let (passed, log) = (passed.passed(), noted.clone());
        Answer::later(async move {
            let reason = cx.cancelled().await.reason;
            assert_eq!(reason, CancelReason::Deadline(Clock::Idle));
            log.note("told");
            passed.await;
            ok()
        })
    });
    server.send(request(1, "slow"));
    server.at(ms(499));
    assert_eq!(server.received(), Vec::<String>::new());
    server.at(ms(500));
    assert_eq!(server.received(), ["1 error -31002"], "rule C8");
    assert_eq!(log.take(), ["told"]);
    door.open();
    server.at(ms(2000));
    assert_eq!(server.received(), Vec::<String>::new());
    assert_eq!(server.counters().requests.timed_out(), 1);
}

#[test]
fn statement_05_through_the_kernel_progress_resets_the_idle_clock_never_the_maximum() {
    let mut server = Server::new(limited(500, 2000), |_, cx| {
        Answer::later(async move {
            for (step, at) in [400, 800, 1200, 1600, 1999].into_iter().enumerate() {
                if cx.sleep_until(ms(at)).await.is_err() {
                    return ok();
                }
                cx.report((step + 1) as f64, None, "");
            }
            pending().await
        })
    });
    server.send(request(1, "slow"));
    for at in [400, 800, 1200, 1500, 1600, 1999] {
        server.at(ms(at));
    }
    let progress = server.received();
    assert_eq!(progress.len(), 5, "{progress:?}");
    server.at(ms(2000));
    assert_eq!(server.received(), ["1 error -31002"]);
}

#[test]
fn the_end_of_input_cancels_the_handlers_and_the_drain_time_ends_the_connection() {
    let log = Log::default();
    let noted = log.clone();
    let mut server = Server::new(config(), move |call, cx| {
        let log = noted.clone();
        match &*call.method {
            "polite" => Answer::later(async move {
                log.note(format!("{:?}", cx.cancelled().await.reason));
                ok()
            }),
            _ => Answer::later(pending()),
        }
    });
    server.send(request(1, "polite"));
    server.send(request(2, "never"));
    server.at(ms(100));
    server.world.feed(Frame::Closed);
    server.run();
    assert_eq!(log.take(), ["Disconnected"]);
    assert!(server.ended.is_none(), "a handler has not ended");
    server.at(ms(199));
    assert!(server.ended.is_none());
    server.at(ms(200));
    assert!(matches!(server.ended, Some(Ok(()))), "by the drain time, whatever a handler does");
    assert_eq!(server.received(), Vec::<String>::new());
}

#[test]
fn the_end_of_input_lets_answers_leave_and_ends_at_once_when_all_is_done() {
    let mut server = Server::new(config(), |_, _| Answer::Ready(ok()));
    for id in 0..3 {
        server.world.send(request(id, "echo"));
    }
    server.world.feed(Frame::Closed);
    assert_eq!(server.received(), ["0 ok", "1 ok", "2 ok"]);
    assert!(matches!(server.ended, Some(Ok(()))));
}

#[test]
fn a_broken_link_ends_the_connection_and_its_handlers() {
    let log = Log::default();
    let noted = log.clone();
    let mut server = Server::new(config(), move |_, cx| {
        let log = noted.clone();
        Answer::later(async move {
            log.note(format!("{:?}", cx.cancelled().await.reason));
            ok()
        })
    });
    server.send(request(1, "wait"));
    server.world.feed(Frame::Failed);
    server.run();
    assert!(matches!(server.ended, Some(Err(_))));
    assert_eq!(log.take(), ["Disconnected"]);
}
