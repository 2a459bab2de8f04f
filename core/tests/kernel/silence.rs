//! After an accepted cancellation: nothing more for that request (rule C3), whatever waits and whoever completes.

use std::future::pending;

use steady_core::kernel::{Answer, ServerConfig};

use super::{Door, Log, Server, cancel, give_up, ok, request};

/// `many` reports three values at once, then one each time it is let go on; `echo` answers at once.
fn server(door: &Door, log: &Log) -> Server {
    let (door, log) = (door.clone(), log.clone());
    Server::new(ServerConfig::default(), move |call, cx| {
        if &*call.method == "echo" {
            return Answer::Ready(ok());
        }
        let (door, log) = (door.clone(), log.clone());
        Answer::later(async move {
            assert!(cx.report(1.0, Some(10.0), "one"));
            for value in [2.0, 3.0] {
                if cx.report_all(value, Some(10.0), "kept").await.is_err() {
                    return Err(give_up());
                }
            }
            let end = cx.cancelled();
            let passed = door.passed();
            passed.await;
            let late = cx.report(4.0, None, "late");
            log.note(format!("late report {late}, cancelled {}", cx.is_cancelled().is_some()));
            drop(end);
            ok()
        })
    })
}

#[test]
fn nothing_follows_a_cancellation_although_messages_were_staged_for_a_stuck_link() {
    let (door, log) = (Door::default(), Log::default());
    let mut server = server(&door, &log);
    server.world.allow(Some(0));
    server.send(request(1, "many"));
    server.send(request(2, "many"));
    // The first line of request 1 is half out when it is cancelled.
    server.world.allow(Some(20));
    server.run();
    server.send(cancel(1));
    server.send(request("after", "echo"));
    server.world.allow(None);
    let received = server.received();
    assert_eq!(
        received,
        ["1 progress 1", "2 progress 1", "2 progress 2", "2 progress 3", "\"after\" ok"],
        "the half line is finished, its others are gone, the other request's stay"
    );
    door.open();
    assert_eq!(server.received(), ["2 progress 4", "2 ok"], "the completion is dropped");
    let mut notes = log.take();
    notes.sort();
    assert_eq!(notes, ["late report false, cancelled true", "late report true, cancelled false"]);
    assert_eq!(server.counters().requests.cancelled, 1);
}

#[test]
fn a_line_that_was_not_begun_does_not_leave() {
    let mut server = server(&Door::default(), &Log::default());
    server.world.allow(Some(0));
    server.send(request(1, "many"));
    server.send(cancel(1));
    server.send(request(2, "echo"));
    server.world.allow(None);
    assert_eq!(server.received(), ["2 ok"]);
}

#[test]
fn the_end_of_a_line_is_the_end_of_a_message() {
    let mut server = server(&Door::default(), &Log::default());
    server.world.allow(Some(0));
    server.send(request(1, "many"));
    server.send(request(2, "echo"));
    // Exactly one line is out: the next one of the same request has not begun.
    let line = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"total":10,"message":"one"}}"#;
    server.world.allow(Some(line.len() + 1));
    server.run();
    assert_eq!(server.received(), ["1 progress 1"]);
    server.send(cancel(1));
    server.world.allow(None);
    assert_eq!(server.received(), ["2 ok"]);
}

#[test]
fn an_id_is_free_after_its_cancellation_and_the_old_handler_does_not_answer_the_new_request() {
    let (old_door, new_door) = (Door::default(), Door::default());
    let doors = std::sync::Mutex::new(vec![new_door.clone(), old_door.clone()]);
    let mut server = Server::new(ServerConfig::default(), move |_, cx| {
        let door = doors.lock().expect("no panic").pop().expect("two requests");
        Answer::later(async move {
            door.passed().await;
            cx.report(1.0, None, "");
            ok()
        })
    });
    server.send(request(1, "work"));
    server.send(cancel(1));
    server.send(request(1, "work"));
    old_door.open();
    assert_eq!(server.received(), Vec::<String>::new(), "the old handler has completed");
    new_door.open();
    assert_eq!(server.received(), ["1 progress 1", "1 ok"], "once, by the new one");
    assert_eq!(server.counters().requests.started, 2);
}

#[test]
fn a_cancellation_leaves_the_others_alone() {
    let mut server = Server::new(ServerConfig::default(), |call, cx| match &*call.method {
        "echo" => Answer::Ready(ok()),
        _ => Answer::later(async move {
            cx.cancelled().await;
            pending().await
        }),
    });
    for id in 0..20 {
        server.send(request(id, "wait"));
    }
    server.send(cancel(7));
    server.send(request("x", "echo"));
    assert_eq!(server.received(), ["\"x\" ok"]);
    assert_eq!(server.counters().requests.cancelled, 1, "rule C6");
    assert_eq!(server.world.running(), 20, "the handler of 7 has its grace period");
}
