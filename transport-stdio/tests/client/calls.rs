//! Calls, their progress, their cancellation, and their limits.

use steady_stdio::client::CallError;

use super::{fixture, ping, run, spawn, tool};

#[test]
fn discover_list_call_and_shut_down() {
    run(async {
        let client = spawn(fixture()).await;
        assert_eq!(client.server().expect("it was asked").supported_versions, ["2026-07-28"]);
        assert_eq!(client.discover().await.expect("an answer").supported_versions, ["2026-07-28"]);
        let tools = client.list_tools().await.expect("an answer");
        assert!(tools.iter().any(|tool| tool.name == "echo"), "{tools:?}");
        ping(&client).await;
        let Err(CallError::Peer(error)) = client.call(tool("no such tool", "{}")).await else { panic!("refused") };
        assert_eq!(error.code, -32602);
        let status = client.shutdown().await;
        assert_eq!((status.ended, status.pid), (true, None));
        assert_eq!(status.last_exit.as_deref(), Some("ended with exit status: 0"));
        assert!(matches!(client.call(tool("echo", "{}")).await, Err(CallError::Closed(_))));
    });
}
