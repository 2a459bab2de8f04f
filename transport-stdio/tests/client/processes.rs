//! Children that die, hang, multiply, and come again.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use steady_stdio::client::{
    CallError, Client, End, Filter, Ladder, ListenEvent, Refetch, Request, Restart, StartError, Status,
};
use steady_stdio::steady_core::backoff::Backoff;

use super::{example, peer, ping, run, script, seen, spawn, tool};

/// No patience at all, for children that are known to ignore what comes first.
pub(crate) const SHORT: Ladder = Ladder { close: Duration::from_millis(50), terminate: Duration::from_millis(50) };

/// Restarts without pauses.
pub(crate) const AT_ONCE: Restart = Restart {
    crashes: 100,
    within: Duration::from_secs(60),
    backoff: Backoff { base: Duration::from_millis(1), cap: Duration::from_millis(1) },
};

/// The letter of the process's state on Linux: `T` is stopped, `Z` a zombie.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
}

/// Whether the process is there and no zombie.
pub(crate) fn alive(pid: u32) -> bool {
    if cfg!(target_os = "linux") {
        return state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'));
    }
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// Waits until the process is gone, under the guard of the test.
pub(crate) async fn gone(pid: u32) {
    while alive(pid) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn pid(client: &Client) -> u32 {
    client.status().pid.expect("it runs")
}

pub(crate) fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
}

async fn until(client: &Client, what: impl FnMut(&Status) -> bool) -> Status {
    client.watch().wait_for(what).await.expect("it is looked after").clone()
}

#[test]
fn a_stuck_child_is_led_down_the_ladder_although_the_pipe_is_full() {
    run(async {
        let client = spawn(script("trap '' TERM; echo ready >&2; exec sleep 1000").ladder(SHORT)).await;
        let fill = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
        let stuck = client.call(tool("echo", &fill));
        while client.stats().sent.bytes == 0 {
            tokio::task::yield_now().await;
        }
        let child = pid(&client);
        let status = client.shutdown().await;
        assert!(matches!(stuck.await, Err(CallError::Cancelled { .. })));
        assert!(status.last_exit.expect("it ended").contains("signal"), "it never saw the end of its input");
        assert!(!alive(child));
    });
}

#[test]
fn each_step_of_the_ladder_ends_those_that_heed_it() {
    run(async {
        let patient = Ladder { close: super::GUARD, terminate: super::GUARD };
        let heeds_eof = spawn(script("cat >/dev/null; exit 3").ladder(patient)).await;
        assert_eq!(heeds_eof.shutdown().await.last_exit.as_deref(), Some("ended with exit status: 3"));
        let no_close = Ladder { close: Duration::from_millis(20), ..patient };
        let heeds_term = spawn(script("exec sleep 1000").ladder(no_close)).await;
        let exit = heeds_term.shutdown().await.last_exit.expect("it ended");
        assert!(exit.contains("signal: 15"), "{exit}");
        let heeds_nothing = spawn(script("trap '' TERM; echo >&2; while :; do sleep 1000; done").ladder(SHORT)).await;
        let exit = heeds_nothing.shutdown().await.last_exit.expect("it ended");
        assert!(exit.contains("signal"), "{exit}");
    });
}

#[test]
fn a_server_that_flushes_at_the_end_of_its_input_meets_no_broken_pipe() {
    run(async {
        let say = "yes 0123456789 | head -c 1000000";
        let client = spawn(script(&format!("cat >/dev/null; {say} || exit 7; exit 0"))).await;
        assert_eq!(client.shutdown().await.last_exit.as_deref(), Some("ended with exit status: 0"));
    });
}

#[test]
fn a_kill_in_the_middle_fails_every_pending_call_as_unknown_with_the_end_of_standard_error() {
    run(async {
        let client = spawn(peer()).await;
        let mut waiting: Vec<_> = (0..10).map(|_| client.call(tool("wait", "{}"))).collect();
        for call in &mut waiting {
            assert!(call.progress().await.is_some(), "it runs");
        }
        waiting.push(client.call(tool("die", r#"{"text":"my last words"}"#)));
        for call in waiting {
            let error = call.await.expect_err("it is gone");
            let CallError::Unknown { loss, .. } = &error else { panic!("{error}") };
            assert!(loss.what.contains("signal: 9"), "{loss}");
            assert_eq!((&*loss.stderr, loss.generation), ("my last words", 1));
            assert!(error.to_string().contains("my last words"), "{error}");
        }
        let status = client.ended().await;
        assert_eq!((status.pid, status.restarts), (None, 0));
        let closed = client.call(tool("echo", "{}")).await.expect_err("there is no other");
        assert!(matches!(&closed, CallError::Closed(loss) if loss.what.contains("signal: 9")), "{closed}");
        assert_eq!(client.stats().unknown, 11);
    });
}

#[test]
fn the_tail_of_standard_error_is_bounded_and_the_child_is_not_blocked_by_it() {
    run(async {
        let client =
            spawn(script("read line; yes 0123456789 | head -c 3000000 >&2; echo end >&2; exit 1").stderr_tail(100))
                .await;
        let error = client.call(tool("echo", "{}")).await.expect_err("it ends");
        let stderr = &error.loss().expect("it is gone").stderr;
        assert!(stderr.len() <= 100 && stderr.contains("0123456789\n0") && stderr.ends_with("end"), "{stderr:?}");
    });
}

#[test]
fn a_restart_is_a_new_generation_that_is_asked_again_and_no_mutation_is_sent_twice() {
    run(async {
        let client = spawn(peer().restart(AT_ONCE)).await;
        let first = pid(&client);
        for round in 1..=5 {
            let mut waiting = client.call(tool("wait", "{}"));
            assert!(waiting.progress().await.is_some(), "it runs");
            let safe = client.call(tool("echo", r#"{"text":"a read"}"#).safe().attempts(100));
            kill(pid(&client));
            let error = waiting.await.expect_err("it is gone");
            let CallError::Unknown { loss, .. } = &error else { panic!("{error}") };
            assert_eq!(loss.generation, round);
            // It may have been answered before; if not, it was sent again.
            assert_eq!(safe.tool_result().await.expect("an answer").text(), "a read");
            ping(&client).await;
            let seen = seen(&client).await;
            assert!(seen.starts_with("0 started"), "a mutation was sent again: {seen}");
            assert!(client.server().is_some(), "asked again");
            assert_eq!((client.stats().generation, client.status().restarts), (round + 1, round));
        }
        let last = pid(&client);
        assert!(!alive(first) && last != first);
        let status = client.shutdown().await;
        assert!(!alive(last));
        assert_eq!(status.last_exit.as_deref(), Some("ended with exit status: 0"));
    });
}

#[test]
fn a_subscription_is_asked_for_again_after_a_restart() {
    run(async {
        // It acknowledges each listen request that it is sent, tells of a change, and ends when it is told to.
        let text = r#"while read -r line; do case "$line" in
            *subscriptions/listen*) id=${line#*\"id\":}; id=${id%%,*}
                stamp="\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":$id}"
                echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{$stamp}}"
                echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\",\"params\":{$stamp}}";;
            *tools/call*) exit 1;;
        esac; done"#;
        let client = spawn(script(text).restart(AT_ONCE)).await;
        let filter = r#"{"toolsListChanged":true,"promptsListChanged":true}"#;
        let mut listener = client.listen(Filter::parse(filter).expect("a filter")).expect("room");
        for _ in 0..3 {
            // A stream begins with a gap of all that it covers; before it there may be the change that the last one told.
            while listener.next().await != (ListenEvent::Gap { refetch: [Refetch::Tools, Refetch::Prompts].into() }) {
                listener.refetched();
            }
            listener.refetched();
            assert!(matches!(client.call(tool("a", "{}")).await, Err(CallError::Unknown { .. })));
        }
        client.shutdown().await;
        while !matches!(listener.next().await, ListenEvent::Ended(End::Closed)) {}
    });
}

#[test]
fn a_call_that_was_never_sent_goes_to_the_next_child() {
    run(async {
        // The first child never reads; what waits behind the full pipe was not sent.
        let marker = tempfile();
        let text = format!(
            "if [ -e {0} ]; then exec {1}; fi; : >{0}; exec sleep 1000",
            marker.display(),
            example("peer").display()
        );
        let client = spawn(script(&text).restart(AT_ONCE)).await;
        let fill = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
        let half_out = client.call(tool("echo", &fill));
        while client.stats().sent.bytes == 0 || !marker.exists() {
            tokio::task::yield_now().await;
        }
        let behind = client.call(tool("echo", r#"{"text":"behind"}"#));
        kill(pid(&client));
        assert!(matches!(half_out.await, Err(CallError::Unknown { .. })));
        assert_eq!(behind.tool_result().await.expect("an answer").text(), "behind");
        client.shutdown().await;
        std::fs::remove_file(marker).expect("it is there");
    });
}

#[test]
fn the_crash_budget_ends_it_and_says_why() {
    run(async {
        let policy = Restart { crashes: 3, ..AT_ONCE };
        let client = spawn(script("read line; echo no luck >&2; exit 9").restart(policy)).await;
        let mut losses = Vec::new();
        loop {
            let error = client.call(tool("echo", "{}")).await.expect_err("it ends each time");
            let loss = error.loss().expect("it is gone").clone();
            assert!(loss.what.contains("exit status: 9") && loss.stderr == "no luck", "{loss}");
            if matches!(error, CallError::Closed(_)) {
                break;
            }
            losses.push(loss.generation);
        }
        assert_eq!(losses, [1, 2, 3, 4], "the first one and three more");
        assert_eq!(client.ended().await.restarts, 3);
    });
}

#[test]
fn calls_that_wait_for_the_next_child_keep_their_clocks() {
    run(async {
        let policy = Restart { backoff: Backoff { base: super::GUARD * 2, cap: super::GUARD * 2 }, ..AT_ONCE };
        let client = spawn(script("read line; exit 1").restart(policy)).await;
        assert!(matches!(client.call(tool("a", "{}")).await, Err(CallError::Unknown { .. })));
        // Unless the pause drawn is tiny, there is no child now; then this call is never sent.
        let waits = client.call(tool("b", "{}").max(Some(Duration::from_millis(50)))).await;
        assert!(matches!(waits, Err(CallError::MaxTimeout { .. } | CallError::Unknown { .. })), "{waits:?}");
        client.shutdown().await;
    });
}

#[test]
fn a_grandchild_is_killed_with_the_group() {
    run(async {
        // When the server leaves by itself, when it is led down, and when it is killed.
        for way in ["exit", "shutdown", "kill"] {
            let client = spawn(peer()).await;
            let grandchild = client.call(tool("grandchild", "{}")).tool_result().await.expect("an answer").text();
            let grandchild: u32 = grandchild.parse().expect("a pid");
            assert!(alive(grandchild));
            match way {
                "exit" => drop(client.call(tool("exit", r#"{"n":0}"#)).await),
                "shutdown" => drop(client.shutdown().await),
                _ => kill(pid(&client)),
            }
            client.ended().await;
            gone(grandchild).await;
        }
    });
}

#[test]
fn a_child_that_closes_its_output_and_stays_is_ended() {
    run(async {
        let client =
            spawn(script("read line; exec >&-; trap '' TERM; while :; do sleep 1000; done").ladder(SHORT)).await;
        let child = pid(&client);
        let error = client.call(tool("a", "{}")).await.expect_err("it says nothing more");
        assert!(
            matches!(&error, CallError::Unknown { loss, .. } if loss.what.contains("closed its output")),
            "{error}"
        );
        client.ended().await;
        assert!(!alive(child));
    });
}

#[test]
fn an_answer_that_was_written_before_the_end_counts() {
    run(async {
        // More lines than one turn handles, so that the end is there before all of them are read.
        let answer = r#"read line; yes '{}' | head -n 2000; echo '{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"last"}]}}'; exit 1"#;
        for _ in 0..20 {
            let client = spawn(script(answer)).await;
            assert_eq!(client.call(tool("a", "{}")).tool_result().await.expect("it was written").text(), "last");
        }
    });
}

#[test]
fn the_last_handle_ends_the_child() {
    run(async {
        let client = spawn(peer()).await;
        let (child, mut status) = (pid(&client), client.watch());
        let call = client.call(tool("echo", r#"{"text":"still"}"#));
        drop(client);
        assert_eq!(call.tool_result().await.expect("a call keeps it").text(), "still");
        let status = status.wait_for(|status| status.ended).await.expect("it is looked after").clone();
        assert_eq!(status.last_exit.as_deref(), Some("ended with exit status: 0"));
        assert!(!alive(child));
    });
}

#[test]
fn a_runtime_that_is_gone_leaves_no_child() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let text = "trap '' TERM; echo >&2; while :; do sleep 1000; done";
    let client = runtime.block_on(spawn(script(text).ladder(SHORT)));
    let child = pid(&client);
    assert!(alive(child));
    drop(runtime);
    run(gone(child));
    let reaped = rustix::process::Pid::from_raw(i32::try_from(child).expect("a pid")).expect("a pid");
    run(async {
        // Not even a zombie stays.
        while rustix::process::test_kill_process(reaped).is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn a_program_that_is_not_there_is_named() {
    run(async {
        let command = steady_stdio::client::Command::new("/nowhere/to/be/found");
        let error = Client::spawn(command).await.expect_err("it is not there");
        assert!(matches!(&error, StartError::Spawn { program, .. } if program == "/nowhere/to/be/found"), "{error}");
    });
}

#[test]
fn environment_directory_and_arguments_reach_the_child() {
    run(async {
        let text = r#"read line; echo "$0 $COLOUR ${HOME-none} $(pwd)" >&2; exit 1"#;
        let command = script(text).arg("argument").env_clear().env("COLOUR", "green").current_dir("/");
        let error = spawn(command).await.call(Request::raw("a", "{}")).await.expect_err("it ends");
        assert_eq!(error.loss().expect("it is gone").stderr, "argument green none /");
    });
}

#[cfg(target_os = "linux")]
#[test]
fn row_89_a_parent_that_is_killed_takes_its_child_with_it() {
    // The child ignores the end of its input and SIGTERM.
    let stubborn = "trap '' TERM; exec sleep 1000";
    let mut host = std::process::Command::new(example("host"));
    let mut host = host.args(["/bin/sh", "-c", stubborn]).stdout(Stdio::piped()).spawn().expect("the host starts");
    let mut line = String::new();
    BufReader::new(host.stdout.take().expect("piped")).read_line(&mut line).expect("the pid");
    let child: u32 = line.trim().parse().expect("a pid");
    assert!(alive(child));
    host.kill().and_then(|()| host.wait()).expect("a child of ours");
    run(gone(child));
}

#[test]
fn a_child_that_stops_reading_for_good_is_replaced_after_the_write_stall_limit() {
    run(async {
        let command = script("exec sleep 1000").ladder(SHORT).restart(Restart { crashes: 1, ..AT_ONCE });
        let config = steady_stdio::client::ClientConfig { write_stall: Duration::from_millis(50), ..super::unasked() };
        let client = spawn(command.config(config)).await;
        let fill = format!(r#"{{"text":"{}"}}"#, "x".repeat(1 << 20));
        let error = client.call(tool("echo", &fill)).await.expect_err("nobody reads");
        assert!(matches!(&error, CallError::Unknown { loss, .. } if loss.what.contains("has not read")), "{error}");
        until(&client, |status| status.restarts == 1).await;
        client.shutdown().await;
    });
}

/// A name for a file that is not there.
fn tempfile() -> std::path::PathBuf {
    let file = std::env::temp_dir().join(format!("steady-client-{}", std::process::id()));
    let _not_there = std::fs::remove_file(&file);
    file
}
