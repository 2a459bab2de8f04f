//! A server in a process of its own, which can be killed: this program again, with the one test that wants it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use steady_http::{Reply, ServeConfig, Server, Tools};

/// Set in the process that serves.
const SERVES: &str = "STEADY_TEST_SERVES";

/// Gone when it is dropped.
pub(crate) struct Process {
    child: Child,
    pub(crate) url: String,
}

impl Process {
    /// Starts this test again as a server, at this address.
    pub(crate) fn start(test: &str, address: &str) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut child = Command::new(program)
            .args(["--exact", test, "--nocapture"])
            .env(SERVES, address)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let url = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("serving ").map(str::to_owned));
        Self { child, url: url.expect("where it serves") }
    }

    /// `kill -9`, and the process is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("it ran");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone_already = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Whether this process is the server of a test; then this ends with a kill.
pub(crate) fn is_server() -> bool {
    let Ok(address) = std::env::var(SERVES) else { return false };
    let any = r#"{"type":"object"}"#;
    let tools = Tools::new("fixture", "0.0.0")
        .tool("wait", "Reports once and waits.", any, |_, cx| async move {
            cx.report(1.0, None, "it runs");
            Err(cx.cancelled().await.into())
        })
        .tool("echo", "Answers.", any, |_, _| async { Ok(Reply::text("here")) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listener = steady_http::bind(&address).expect("the port is free");
        let address = listener.local_addr().expect("bound");
        writeln!(std::io::stderr(), "serving http://{address}/mcp").expect("somebody listens");
        Server::new(tools, ServeConfig::default()).serve(listener).await.expect("it serves");
    });
    true
}
