//! Any pair of streams with the same framing: a Unix socket, TCP, a pipe in memory.

mod support;

use steady_stdio::{Context, Reply, RpcError, Shutdown, Stats, StdioConfig, ToolCall, Tools, serve};
use support::{GUARD, call, cancel};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

async fn wait(_call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    cx.report(1.0, None, "waiting");
    Err(cx.cancelled().await.into())
}

fn tools() -> Tools {
    const ANY: &str = r#"{"type":"object"}"#;
    Tools::new("streams", "0.0.0")
        .tool("echo", "Answers.", ANY, |call, _cx| async move { Ok(Reply::text(call.raw_arguments())) })
        .tool("wait", "Waits.", ANY, wait)
}

/// A client of a server over this pair: a call, progress, a cancellation, and the end of input or a shutdown.
async fn talk<S, C>(server: S, client: C, by_shutdown: bool)
where
    S: AsyncRead + AsyncWrite + Send + 'static,
    C: AsyncRead + AsyncWrite + Unpin,
{
    let (stats, shutdown) = (Stats::new(), Shutdown::new());
    let mut config = StdioConfig::default();
    config.server.stats = stats.clone();
    config.server.shutdown = shutdown.clone();
    let (reader, writer) = tokio::io::split(server);
    let served = tokio::spawn(serve(tools(), Box::pin(reader), Box::pin(writer), config));
    let (reader, mut writer) = tokio::io::split(client);
    let mut lines = BufReader::new(reader).lines();
    let mut ask = async |text: String| {
        writer.write_all((text + "\n").as_bytes()).await.expect("the server reads");
        lines.next_line().await.expect("a link").expect("a line")
    };
    assert!(ask(call(1, "echo", r#"{"a":1}"#)).await.contains(r#"{\"a\":1}"#));
    assert!(ask(call(2, "wait", "{}")).await.contains("waiting"));
    let after = ask(cancel("2") + "\n" + &call(3, "echo", "{}")).await;
    assert!(after.contains("\"id\":3,"), "silence for the cancelled one: {after}");
    let seen = stats.snapshot();
    assert_eq!((seen.requests.started, seen.requests.cancelled), (3, 1), "read while it serves");
    if by_shutdown {
        shutdown.drain();
    } else {
        writer.shutdown().await.expect("closed");
    }
    let counters = served.await.expect("no panic").expect("an end in order");
    assert_eq!((counters.requests.completed, counters.requests.cancelled), (2, 1));
    assert_eq!(lines.next_line().await.expect("a link"), None, "nothing follows");
}

fn run(talks: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(GUARD, talks).await.expect("it does not hang") });
}

#[cfg(unix)]
#[test]
fn a_unix_socket() {
    run(async {
        for by_shutdown in [false, true] {
            let (server, client) = tokio::net::UnixStream::pair().expect("a pair");
            talk(server, client, by_shutdown).await;
        }
    });
}

#[test]
fn tcp() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        for by_shutdown in [false, true] {
            let client =
                tokio::net::TcpStream::connect(listener.local_addr().expect("bound")).await.expect("connected");
            let (server, _) = listener.accept().await.expect("accepted");
            talk(server, client, by_shutdown).await;
        }
    });
}

#[test]
fn a_pipe_in_memory_that_is_smaller_than_a_message() {
    run(async {
        let (server, client) = tokio::io::duplex(16);
        talk(server, client, false).await;
    });
}
