//! What a server's answers cost in writes: what waits leaves together, what comes alone does not wait.

mod support;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use steady_stdio::{Reply, StdioConfig, Tools, serve};
use support::{GUARD, call};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

/// Takes everything and keeps each write by itself.
#[derive(Clone, Default)]
struct Recorder {
    writes: Arc<Mutex<Vec<String>>>,
    written: Arc<Notify>,
}

impl AsyncWrite for Recorder {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        self.writes.lock().expect("no panic").push(text);
        self.written.notify_one();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Recorder {
    /// How many lines each write had.
    fn lines(&self) -> Vec<usize> {
        self.writes.lock().expect("no panic").iter().map(|text| text.lines().count()).collect()
    }
}

async fn answer(reader: impl AsyncRead + Send + Unpin, writer: Recorder) {
    const ANY: &str = r#"{"type":"object"}"#;
    let echo = |call: steady_stdio::ToolCall, _cx| async move { Ok(Reply::text(call.raw_arguments())) };
    let tools = Tools::new("batching", "0.0.0").tool("echo", "Answers.", ANY, echo);
    serve(tools, reader, writer, StdioConfig::default()).await.expect("an end in order");
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(GUARD, test).await.expect("it does not hang") });
}

#[test]
fn answers_that_wait_together_leave_in_one_write() {
    run(async {
        let recorder = Recorder::default();
        let asked: String = (0..32).map(|id| call(id, "echo", "{}") + "\n").collect();
        answer(asked.as_bytes(), recorder.clone()).await;
        assert_eq!(recorder.lines(), [32]);
    });
}

#[test]
fn a_lone_answer_leaves_at_once() {
    run(async {
        let recorder = Recorder::default();
        let (mut client, server) = tokio::io::duplex(1 << 16);
        let served = tokio::spawn(answer(server, recorder.clone()));
        for id in 0..3 {
            client.write_all((call(id, "echo", "{}") + "\n").as_bytes()).await.expect("it reads");
            // The client says nothing more until the answer is there: it would wait for ever for a second one.
            recorder.written.notified().await;
        }
        assert_eq!(recorder.lines(), [1, 1, 1]);
        drop(client);
        served.await.expect("no panic");
    });
}
