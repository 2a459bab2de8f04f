//! The example of a client whose server is killed in the middle of a listen and of a task, as its README shows it.
#![cfg(all(feature = "live", unix))]

#[path = "support/example.rs"]
mod example;

use std::process::Command;

/// What it says, on either transport.
const STORY: [&str; 7] = [
    "  told: notifications/resources/updated",
    "  a task: it is being shipped",
    "  the server was killed, and is there again; the last one was sold meanwhile",
    "  the listen is back: something may have been missed, it is read before anything else",
    "  read afresh: 0 left, nothing is ordered",
    "  the task went on without us: shipped",
    "  the same order once more: the same task",
];

#[test]
fn the_example_survives_a_killed_server_in_the_middle_of_a_listen_and_a_task_on_both_transports() {
    let output = Command::new(example::example("survives_restart")).output().expect("it runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    let expected = ["over stdio", "over HTTP"].map(|link| [&[link][..], &STORY].concat().join("\n") + "\n").concat();
    assert_eq!(out, expected);
}
