//! The ladder against children that are stopped, and against those that leave the group that it signals.
#![cfg(target_os = "linux")]

use rustix::process::{Pid, Signal, getpgid, kill_process_group};
use steady_stdio::client::{CallError, Client, Ladder};

use super::processes::{SHORT, alive, gone, kill, pid, state};
use super::{GUARD, peer, run, script, spawn, tool};

/// Patience at every step: who ends under it has heeded the step before.
const PATIENT: Ladder = Ladder { close: GUARD, terminate: GUARD };

fn raw(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a pid")).expect("a pid")
}

#[test]
fn a_child_that_is_stopped_is_killed_with_its_group() {
    run(async {
        // It would heed the end of its input, and SIGTERM: stopped, it hears neither.
        let client = spawn(peer().ladder(SHORT)).await;
        let child = pid(&client);
        let grandchild = client.call(tool("grandchild", "{}")).tool_result().await.expect("an answer").text();
        let grandchild = grandchild.parse().expect("a pid");
        kill_process_group(raw(child), Signal::STOP).expect("it runs");
        while state(child) != Some('T') || state(grandchild) != Some('T') {
            tokio::task::yield_now().await;
        }
        let exit = client.shutdown().await.last_exit.expect("it ended");
        assert!(exit.contains("signal: 9"), "{exit}");
        assert_eq!(state(child), None, "no zombie stays");
        gone(grandchild).await;
    });
}

/// A server whose leader has moved to the group of a process of its own; that process.
async fn moved(client: &Client) -> u32 {
    let other = client.call(tool("leave_group", "{}")).tool_result().await.expect("an answer").text();
    let other = other.parse().expect("a pid");
    assert_eq!(getpgid(Some(raw(pid(client)))).expect("it runs"), raw(other), "it left the group");
    other
}

#[test]
fn a_leader_that_left_its_group_meets_the_end_of_its_input_and_is_reaped() {
    run(async {
        let client = spawn(peer().ladder(PATIENT)).await;
        let (child, other) = (pid(&client), moved(&client).await);
        assert_eq!(client.shutdown().await.last_exit.as_deref(), Some("ended with exit status: 0"));
        assert_eq!(state(child), None, "no zombie stays");
        // That one belongs to a group which is none of the client's.
        kill(other);
        gone(other).await;
    });
}

#[test]
fn a_leader_that_left_its_group_and_dies_is_noticed() {
    run(async {
        let client = spawn(peer()).await;
        let (child, other) = (pid(&client), moved(&client).await);
        kill(child);
        assert!(client.ended().await.last_exit.expect("it ended").contains("signal: 9"));
        assert_eq!(state(child), None, "no zombie stays");
        kill(other);
        gone(other).await;
    });
}

#[test]
fn a_process_that_left_the_session_holds_no_call_up_with_the_pipes_that_it_keeps() {
    run(async {
        let left = r#"setsid sleep 1000 & until [ "$(cut -d" " -f6 /proc/$!/stat)" = $! ]; do :; done; echo $! >&2"#;
        let client = spawn(script(&format!("{left}; read line; exit 4"))).await;
        let child = pid(&client);
        let error = client.call(tool("a", "{}")).await.expect_err("it ends");
        let CallError::Unknown { loss, .. } = &error else { panic!("{error}") };
        assert!(loss.what.contains("exit status: 4"), "{loss}");
        let other = loss.stderr.trim().parse().expect("a pid");
        assert!(alive(other), "it has the pipes of the server still");
        client.ended().await;
        assert_eq!(state(child), None, "no zombie stays");
        kill(other);
        gone(other).await;
    });
}
