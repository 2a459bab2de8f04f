//! Public reports of clients that break, by their row in the project's list of field reports: the smallest sequence of
//! each, and the right outcome.

use std::time::Duration;

use steady_stdio::client::{CallError, Client, StartError};
use steady_stdio::steady_core::backoff::Backoff;

use super::processes::{AT_ONCE, SHORT, alive, gone, kill, pid};
use super::raw::{Raw, answer};
use super::{peer, ping, run, script, seen, spawn, tool, unasked};

#[test]
fn row_28_a_cancelled_command_leaves_no_process_of_its_group_behind() {
    run(async {
        let client = spawn(peer().ladder(SHORT)).await;
        let grandchild = client.call(tool("grandchild", "{}")).tool_result().await.expect("an answer").text();
        drop(client.call(tool("wait", "{}")));
        ping(&client).await;
        client.shutdown().await;
        gone(grandchild.parse().expect("a pid")).await;
    });
}

#[test]
fn row_29_a_local_timeout_tells_the_server() {
    run(async {
        let (client, mut raw) = Raw::attach(unasked(), 1 << 20).await;
        let call = client.call(tool("slow", "{}").idle(Some(Duration::from_millis(20))));
        let id = raw.request();
        let error = call.await.expect_err("nobody answers");
        assert!(matches!(error, CallError::IdleTimeout { .. }), "{error}");
        let heard = raw.heard();
        assert_eq!(heard["method"], "notifications/cancelled");
        assert_eq!(heard["params"], serde_json::json!({"requestId": id, "reason": "idle timeout"}));
    });
}

#[test]
fn row_30_an_aborted_await_tells_the_server() {
    run(async {
        let (client, mut raw) = Raw::attach(unasked(), 1 << 20).await;
        let theirs = client.clone();
        let task = tokio::spawn(async move { theirs.call(tool("slow", "{}").idle(None).max(None)).await });
        let id = raw.request();
        task.abort();
        assert!(task.await.is_err_and(|error| error.is_cancelled()));
        let heard = raw.heard();
        assert_eq!((&heard["method"], &heard["params"]["requestId"]), (&"notifications/cancelled".into(), &id.into()));
    });
}

#[test]
fn row_32_cancelling_one_call_keeps_the_process_and_its_other_calls() {
    run(async {
        let client = spawn(peer()).await;
        let before = pid(&client);
        let (mut one, mut other) = (client.call(tool("wait", "{}")), client.call(tool("wait", "{}")));
        assert!(one.progress().await.is_some() && other.progress().await.is_some(), "both run");
        one.cancel("Esc");
        assert!(matches!(one.await, Err(CallError::Cancelled { .. })));
        while !seen(&client).await.starts_with("2 started, 1 cancelled") {}
        assert_eq!((pid(&client), client.stats().in_flight), (before, 1));
    });
}

#[test]
fn row_33_a_cancellation_that_kills_the_server_costs_no_later_call_and_is_not_replayed() {
    run(async {
        // It dies of the cancellation, as some servers do; the next one is well.
        let server = super::example("peer");
        let marker = std::env::temp_dir().join(format!("steady-row-33-{}", std::process::id()));
        let _not_there = std::fs::remove_file(&marker);
        let text = format!(
            "if [ -e {0} ]; then exec {1}; fi; : >{0}; read request; read cancellation; exit 1",
            marker.display(),
            server.display()
        );
        let client = spawn(script(&text).restart(AT_ONCE)).await;
        let call = client.call(tool("wait", "{}"));
        while client.stats().sent.messages == 0 {
            tokio::task::yield_now().await;
        }
        call.cancel("Esc");
        assert!(matches!(call.await, Err(CallError::Cancelled { .. })));
        client.watch().wait_for(|status| status.restarts == 1).await.expect("it is started again");
        assert!(seen(&client).await.starts_with("0 started"), "the cancelled call was replayed");
        client.shutdown().await;
        std::fs::remove_file(marker).expect("it is there");
    });
}

#[test]
fn row_50_a_server_that_exits_inside_of_a_handler_leaves_no_caller_waiting() {
    run(async {
        let client = spawn(peer()).await;
        let (waiting, exits) = (client.call(tool("wait", "{}")), client.call(tool("exit", r#"{"n":3,"text":"bye"}"#)));
        for call in [waiting, exits] {
            let error = call.await.expect_err("it is gone");
            let CallError::Unknown { loss, .. } = &error else { panic!("{error}") };
            assert!(loss.what.contains("exit status: 3") && loss.stderr == "bye", "{loss}");
        }
    });
}

#[test]
fn row_52_a_killed_child_leaves_no_caller_waiting() {
    run(async {
        let client = spawn(peer()).await;
        let call = client.call(tool("die", "{}"));
        let error = call.await.expect_err("it is gone");
        assert!(matches!(&error, CallError::Unknown { loss, .. } if loss.what.contains("signal: 9")), "{error}");
    });
}

#[test]
fn row_54_a_child_that_dies_in_start_up_says_why_at_once() {
    run(async {
        let command = script("echo \"ImportError: no module named 'left_pad'\" >&2; exit 1");
        let command = command.config(steady_stdio::client::config());
        let error = Client::spawn(command).await.expect_err("it does not come up");
        let StartError::Lost(loss) = &error else { panic!("{error}") };
        assert!(loss.what.contains("exit status: 1") && loss.stderr.contains("left_pad"), "{loss}");
    });
}

#[test]
fn row_55_a_crash_with_two_calls_in_flight_ends_both_and_the_client_knows_that_it_is_alone() {
    run(async {
        let client = spawn(peer()).await;
        let (mut one, mut other) = (client.call(tool("wait", "{}")), client.call(tool("wait", "{}")));
        assert!(one.progress().await.is_some() && other.progress().await.is_some(), "both run");
        kill(pid(&client));
        assert!(matches!(one.await, Err(CallError::Unknown { .. })));
        assert!(matches!(other.await, Err(CallError::Unknown { .. })));
        let status = client.ended().await;
        assert_eq!(status.pid, None, "nobody looks connected");
        assert!(status.last_exit.expect("it ended").contains("signal: 9"));
    });
}

#[test]
fn row_57_a_server_that_falls_silent_ends_in_the_idle_limit_and_a_late_answer_is_ignored() {
    run(async {
        let (client, mut raw) = Raw::attach(unasked(), 1 << 20).await;
        let call = client.call(tool("read", "{}").safe().idle(Some(Duration::from_millis(20))));
        let id = raw.request();
        assert!(matches!(call.await, Err(CallError::IdleTimeout { .. })));
        assert_eq!(raw.heard()["method"], "notifications/cancelled");
        raw.answer(id, "half an hour later");
        raw.round_trip(&client).await;
        assert_eq!(client.stats().calls.late_answers, 1);
    });
}

#[test]
fn row_58_after_a_restart_of_the_server_the_next_call_is_served() {
    run(async {
        let client = spawn(peer().restart(AT_ONCE)).await;
        kill(pid(&client));
        client.watch().wait_for(|status| status.restarts == 1).await.expect("it is started again");
        ping(&client).await;
    });
}

#[test]
fn row_60_a_call_on_a_child_that_was_replaced_ends_with_that_child() {
    run(async {
        // Long pauses: the call must not wait for the next child.
        let pauses = Backoff { base: super::GUARD * 9, cap: super::GUARD * 9 };
        let client = spawn(peer().restart(steady_stdio::client::Restart { backoff: pauses, ..AT_ONCE })).await;
        let mut call = client.call(tool("wait", "{}"));
        assert!(call.progress().await.is_some(), "it runs");
        kill(pid(&client));
        let error = call.await.expect_err("its child is gone");
        assert_eq!(error.loss().expect("that is why").generation, 1);
    });
}

#[test]
fn row_62_a_slow_call_keeps_nobody_else_waiting() {
    run(async {
        let client = spawn(peer()).await;
        let mut slow = client.call(tool("wait", "{}"));
        assert!(slow.progress().await.is_some(), "it runs");
        ping(&client).await;
        assert_eq!(client.stats().in_flight, 1);
    });
}

#[test]
fn row_88_restarts_leave_no_process_behind() {
    run(async {
        let client = spawn(peer().restart(AT_ONCE)).await;
        let mut children = Vec::new();
        for round in 1..=10 {
            children.push(pid(&client));
            let grandchild = client.call(tool("grandchild", "{}")).tool_result().await.expect("an answer").text();
            children.push(grandchild.parse().expect("a pid"));
            kill(pid(&client));
            client.watch().wait_for(|status| status.restarts == round).await.expect("it is started again");
        }
        let last = pid(&client);
        for child in children {
            gone(child).await;
        }
        client.shutdown().await;
        assert!(!alive(last));
    });
}

#[test]
fn row_92_and_93_a_child_that_ignores_the_end_of_its_input_does_not_survive_its_client() {
    run(async {
        let text = "trap '' TERM; echo >&2; while :; do sleep 1000; done";
        for dropped in [false, true] {
            let client = spawn(script(text).ladder(SHORT)).await;
            let child = pid(&client);
            if dropped {
                drop(client);
            } else {
                client.shutdown().await;
            }
            gone(child).await;
        }
    });
}

#[test]
fn row_94_a_server_that_was_replaced_in_the_middle_is_told_by_its_generation() {
    run(async {
        let client = spawn(peer().restart(AT_ONCE)).await;
        let first = pid(&client);
        for _ in 0..3 {
            ping(&client).await;
        }
        kill(first);
        client.watch().wait_for(|status| status.restarts == 1).await.expect("it is started again");
        assert!(seen(&client).await.ends_with(&format!("pid {}", pid(&client))));
        assert_eq!((client.stats().generation, alive(first)), (2, false));
        assert!(client.status().last_loss.expect("it was lost").what.contains("signal: 9"));
    });
}

#[test]
fn row_95_lines_of_a_log_on_standard_output_are_counted_and_cost_nothing_else() {
    run(async {
        let (client, mut raw) = Raw::attach(unasked(), 1 << 20).await;
        raw.say("Server listening on stdio...");
        raw.say("");
        raw.say("2026-07-28T10:00:00Z INFO {\"request\": 1}");
        raw.round_trip(&client).await;
        let stats = client.stats();
        assert_eq!(stats.bad_messages, 2);
        assert!(stats.last_bad.expect("a sample").contains("INFO"));
    });
}

#[test]
fn row_96_garbage_is_never_answered() {
    run(async {
        let (client, mut raw) = Raw::attach(unasked(), 1 << 20).await;
        for garbage in [
            "garbage",
            r#"{"jsonrpc":"2.0","error":{"code":-32700,"message":"your garbage"}}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}"#,
            r#"{"jsonrpc":"2.0","id":"ping","method":"ping"}"#,
            "[]",
        ] {
            raw.say(garbage);
        }
        // What the client says next is its own request, and nothing before it.
        raw.round_trip(&client).await;
        assert_eq!(client.stats().bad_messages, 5);
    });
}

#[test]
fn row_97_and_98_a_byte_order_mark_and_a_truncated_line_cost_themselves_only() {
    run(async {
        let (client, mut raw) = Raw::attach(unasked(), 1 << 20).await;
        let call = client.call(tool("a", "{}"));
        let id = raw.request();
        raw.say_bytes(b"\xef\xbb\xbf\n\xff\xfe not UTF-8\n");
        raw.say(r#"{"jsonrpc":"2.0","id":1,"result":"#);
        raw.say(r#"{"params": "#);
        raw.say(&answer(id, "fine"));
        assert_eq!(call.tool_result().await.expect("an answer").text(), "fine");
        assert_eq!(client.stats().bad_messages, 4);
    });
}

#[test]
fn row_100_and_102_a_huge_answer_fails_its_own_call_and_the_session_lives() {
    run(async {
        let client = spawn(peer()).await;
        for size in [17 << 20, 62 << 20] {
            let error = client.call(tool("big", &format!(r#"{{"n":{size}}}"#))).await.expect_err("it is too long");
            assert!(matches!(error, CallError::AnswerTooLong), "{error}");
            ping(&client).await;
        }
        // One that fits.
        let fits = client.call(tool("big", r#"{"n":8000000}"#)).tool_result().await.expect("an answer");
        assert_eq!((fits.text().len(), client.stats().too_long), (8_000_000, 2));
    });
}
