//! What a client does about a child that is gone: fresh state before anything else, tasks that go on, nothing made twice.

use std::path::Path;
use std::time::Duration;

use steady_stdio::client::{
    CallError, Change, Changes, Client, Command, Filter, Fresh, TaskError, TaskOptions, config,
};
use steady_stdio::steady_core::backoff::Backoff;
use steady_stdio::steady_core::idempotency::Key;

use super::processes::AT_ONCE;
use super::{example, peer, ping, run, script, spawn, tool};

/// A server whose stock, tasks and log are files in `dir`: it acknowledges each listen, tells of a change, reads the record,
/// creates a task once for each key, and dies when a file says so.
fn shop(dir: &Path) -> Command {
    let text = r#"cd DIR; answer() { echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
        while read -r line; do
        id=${line#*\"id\":}; id=${id%%,*}
        stamp="\"_meta\":{\"io.modelcontextprotocol/subscriptionId\":$id}"
        case "$line" in *'"method":"'*) rest=${line#*\"method\":\"}; echo "${rest%%\"*}" >> log;; esac
        case "$line" in
            *subscriptions/listen*)
                echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{$stamp}}"
                echo "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{$stamp,\"uri\":\"stock://widget\"}}";;
            *resources/read*) answer "{\"contents\":[{\"uri\":\"stock://widget\",\"text\":\"$(cat stock)\"}]}";;
            *tasks/get*)
                if [ -e die-while-asked ]; then rm die-while-asked; exit 1; fi
                answer "{\"taskId\":\"t-1\",\"status\":\"completed\",\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"$(head -n 1 task)\"}]}}";;
            *tools/call*ship*)
                # Durable before the answer.
                case "$line" in *order-7*) [ -e task ] || echo shipped > task;; *) echo again >> task;; esac
                if [ -e die-before-reply ]; then rm die-before-reply; exit 1; fi
                answer '{"resultType":"task","taskId":"t-1","status":"working"}';;
            *tools/call*) exit 1;;
        esac; done"#;
    script(&text.replace("DIR", &dir.display().to_string())).restart(AT_ONCE)
}

fn dir(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("steady-{name}-{}", std::process::id()));
    let _not_there = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).expect("a folder");
    dir
}

/// How often the server was asked for this, over all of its lives.
fn asked(dir: &Path, method: &str) -> usize {
    let log = std::fs::read_to_string(dir.join("log")).expect("a log");
    log.lines().filter(|line| *line == method).count()
}

/// Each stream begins with a read of the record, and the change of which the server tells at once comes meanwhile: once more.
async fn read(changes: &mut Changes, left: &str) {
    for _ in 0..2 {
        let gap = changes.next().await;
        assert!(matches!(gap, Change::Gap { .. }), "{gap:?}");
        let Change::Fresh { state: Fresh::One(record), .. } = changes.next().await else { panic!("the record") };
        assert!(record.get().contains(&format!("\"text\":\"{left}\"")), "decided on what holds now: {record:?}");
    }
}

#[test]
fn l5_row_82_subscription_lost_refetch_the_record_then_decide() {
    run(async {
        let dir = dir("decide");
        std::fs::write(dir.join("stock"), "5").expect("written");
        let client = spawn(shop(&dir)).await;
        let filter = Filter::parse(r#"{"resourceSubscriptions":["stock://widget"]}"#).expect("a filter");
        let mut changes = client.changes(filter).expect("room");
        read(&mut changes, "5").await;
        for left in ["3", "0"] {
            // It sells while it dies: nobody is told.
            std::fs::write(dir.join("stock"), left).expect("written");
            assert!(matches!(client.call(tool("die", "{}")).await, Err(CallError::Unknown { .. })));
            read(&mut changes, left).await;
        }
        client.shutdown().await;
        std::fs::remove_dir_all(dir).expect("it is there");
    });
}

#[test]
fn l5_k6_a_lost_reply_finds_the_task_of_its_key_and_makes_none_without() {
    run(async {
        let dir = dir("task");
        let no_pause = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
        let mut settings = config();
        settings.probe = None;
        settings.calls.backoff = no_pause;
        let client = spawn(shop(&dir).config(settings)).await;
        let die = |when: &str| std::fs::write(dir.join(when), "").expect("written");
        let polling = TaskOptions { notifications: false, ..TaskOptions::default() };
        die("die-before-reply");
        let order = tool("ship", "{}").key(Key::parse("order-7").expect("a key"));
        die("die-while-asked");
        let result = client.call_to_end(order, polling, |_| async { None }).await.expect("a result");
        assert_eq!(result.text(), "shipped", "one task, over two children that died");
        assert_eq!((asked(&dir, "tools/call"), asked(&dir, "tasks/get")), (2, 2));
        // Without a key its outcome is unknown, and it is not sent again.
        die("die-before-reply");
        let error = client.call_to_end(tool("ship", "{}"), polling, |_| async { None }).await.expect_err("unknown");
        assert!(matches!(error, TaskError::Call(CallError::Unknown { .. })), "{error}");
        assert_eq!(asked(&dir, "tools/call"), 3);
        // Its id in another process is all that it takes.
        client.shutdown().await;
        let another = spawn(shop(&dir)).await;
        let result = another.task("t-1").finish(polling).await.expect("a result");
        assert!(result.text().starts_with("shipped"), "{}", result.text());
        another.shutdown().await;
        std::fs::remove_dir_all(dir).expect("it is there");
    });
}

#[test]
fn row_79_81_84_85_87_one_of_two_children_is_killed_while_idle_and_the_next_call_is_served() {
    run(async {
        let (client, neighbour): (Client, Client) =
            (spawn(peer().restart(AT_ONCE)).await, spawn(Command::new(example("peer"))).await);
        ping(&client).await;
        super::processes::kill(super::processes::pid(&client));
        client.watch().wait_for(|status| status.restarts == 1).await.expect("it is started again");
        // One new child for everybody, asked for what it is by nobody else.
        let calls: Vec<_> = (0..20).map(|_| client.call(tool("echo", r#"{"text":"pong"}"#))).collect();
        for call in calls {
            assert_eq!(call.tool_result().await.expect("an answer").text(), "pong");
        }
        ping(&neighbour).await;
        assert_eq!((client.status().restarts, neighbour.status().restarts), (1, 0));
        client.shutdown().await;
        neighbour.shutdown().await;
    });
}
