//! Child processes of the older revisions: one that ends on the probe, and what is kept of its era over restarts.

use std::path::{Path, PathBuf};

use steady_stdio::client::{CallError, Client, Command, StartError};

use super::processes::AT_ONCE;
use super::{run, spawn, tool};

/// A server of 2025-11-25 that ends when it reads what it does not know, and keeps a log of what it reads in `dir`. As soon
/// as there is a file `modern`, it speaks the modern revision only.
fn legacy(dir: &Path) -> Command {
    let text = r#"cd DIR; echo start >> log
        answer() { echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
        while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        method=${line#*\"method\":\"}; method=${method%%\"*}; echo "$method" >> log
        case $line in *'"die"'*) exit 1;; esac
        if [ -e modern ]; then case $method in
            server/discover) answer '{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}';;
            tools/call) answer '{"resultType":"complete","content":[{"type":"text","text":"modern"}]}';;
            *) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"unknown method\"}}";;
        esac; continue; fi
        case $method in
            initialize) answer '{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"old","version":"1"}}';;
            notifications/*) ;;
            tools/call) answer '{"content":[{"type":"text","text":"old"}]}';;
            *) exit 3;;
        esac; done"#;
    Command::new("/bin/sh").args(["-c", &text.replace("DIR", &dir.display().to_string())])
}

fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("steady-eras-{name}-{}", std::process::id()));
    let _not_there = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("a folder");
    dir
}

/// What all processes read, without the calls of tools.
fn log(dir: &Path) -> String {
    let log = std::fs::read_to_string(dir.join("log")).expect("a log");
    log.lines().filter(|line| *line != "tools/call").collect::<Vec<_>>().join(" ")
}

async fn says(client: &Client) -> String {
    client.call(tool("echo", "{}")).tool_result().await.expect("an answer").text()
}

#[test]
fn a_server_that_ends_on_the_probe_is_started_again_for_a_handshake() {
    run(async {
        let dir = dir("probe");
        // Nothing is restarted here otherwise.
        let client = spawn(legacy(&dir)).await;
        assert_eq!(says(&client).await, "old");
        let once = "start server/discover start initialize notifications/initialized";
        assert_eq!((log(&dir).as_str(), client.status().restarts), (once, 1));
        // From now on its end is one.
        assert!(matches!(client.call(tool("die", "{}")).await, Err(CallError::Unknown { .. })));
        let end = client.call(tool("echo", "{}")).await;
        assert!(matches!(end, Err(CallError::Closed(_))), "{end:?}");
        assert_eq!(log(&dir), once);
        client.shutdown().await;
        std::fs::remove_dir_all(dir).expect("it is there");
    });
}

#[test]
fn the_era_holds_for_the_next_child_until_one_refuses_the_handshake() {
    run(async {
        let dir = dir("cache");
        let client = spawn(legacy(&dir).restart(AT_ONCE)).await;
        for _ in 0..2 {
            assert!(matches!(client.call(tool("die", "{}")).await, Err(CallError::Unknown { .. })));
            assert_eq!(says(&client).await, "old");
        }
        let handshake = " start initialize notifications/initialized";
        let before = format!("start server/discover{}", handshake.repeat(3));
        assert_eq!(log(&dir), before, "it is probed once, and never again");
        // The next child is another program.
        std::fs::write(dir.join("modern"), "").expect("written");
        assert!(matches!(client.call(tool("die", "{}")).await, Err(CallError::Unknown { .. })));
        assert_eq!(says(&client).await, "modern");
        assert!(log(&dir).ends_with("start server/discover"), "{}", log(&dir));
        client.shutdown().await;
        std::fs::remove_dir_all(dir).expect("it is there");
    });
}

#[test]
fn a_server_that_ends_whatever_it_is_asked_is_started_twice_and_no_more() {
    run(async {
        let dir = dir("broken");
        let text = "cd DIR; echo start >> log; read -r line; echo 'no configuration' >&2; exit 4";
        let broken = Command::new("/bin/sh").args(["-c", &text.replace("DIR", &dir.display().to_string())]);
        let error = Client::spawn(broken.restart(AT_ONCE)).await.expect_err("it never serves");
        let StartError::Lost(loss) = &error else { panic!("{error}") };
        assert!(loss.what.contains("exit status: 4") && loss.stderr.contains("no configuration"), "{loss:?}");
        assert_eq!(log(&dir), "start start");
        std::fs::remove_dir_all(dir).expect("it is there");
    });
}
