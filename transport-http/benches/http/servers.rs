//! The servers that are measured, each as a process of its own.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper_util::rt::TokioIo;
use steady_http::{Hub, Reply, Resources, ServeConfig, Server, Tools};

const ANY: &str = r#"{"type":"object"}"#;

#[derive(serde::Deserialize)]
struct Arguments {
    #[serde(default)]
    text: String,
    #[serde(default)]
    n: u32,
    #[serde(default)]
    msg_len: usize,
}

/// The tools that are measured, and listens for their changes.
fn bench() -> Tools {
    let hub = Hub::new();
    let (change, fill) = (hub.clone(), hub.clone());
    Tools::new("bench", "0.0.0")
        .tool("echo", "Echoes.", ANY, |call, _cx| async move { Ok(Reply::text(&call.arguments::<Arguments>()?.text)) })
        .tool("progress", "Reports without loss.", ANY, |call, cx| async move {
            let Arguments { n, msg_len, .. } = call.arguments()?;
            let text = "x".repeat(msg_len);
            for i in 1..=n {
                cx.report_all(i.into(), Some(n.into()), &text).await?;
            }
            Ok(Reply::text("sent"))
        })
        .tool("torrent", "Reports as fast as it can, without waiting.", ANY, |call, cx| async move {
            let Arguments { n, msg_len, .. } = call.arguments()?;
            let text = "x".repeat(msg_len);
            for i in 1..=n {
                cx.report(i.into(), Some(n.into()), &text);
                if i % 1024 == 0 {
                    cx.checkpoint().await?;
                }
            }
            Ok(Reply::text("sent"))
        })
        .tool("wait", "Waits until it is cancelled.", ANY, |_call, cx| async move { Err(cx.cancelled().await.into()) })
        .tool("pwait", "Reports once, then waits until it is cancelled.", ANY, |_call, cx| async move {
            cx.report(1.0, None, "");
            Err(cx.cancelled().await.into())
        })
        .tool("change", "Says that the list of tools has changed.", ANY, move |_call, _cx| {
            change.tools_changed();
            async { Ok(Reply::text("changed")) }
        })
        .tool("fill", "Says that every watched resource has changed.", ANY, move |_call, _cx| {
            fill.resources_updated(|_| true);
            async { Ok(Reply::text("filled")) }
        })
        .resources(Resources::new())
        .subscriptions(&hub)
}

/// Says where a server listens, for whoever started it.
fn say(address: SocketAddr) {
    use std::io::Write as _;
    let _nobody_listens = writeln!(io::stderr(), "serving http://{address}/mcp");
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    let one = std::env::var("STEADY_BENCH_RUNTIME").is_ok_and(|runtime| runtime == "one");
    let mut builder =
        if one { tokio::runtime::Builder::new_current_thread() } else { tokio::runtime::Builder::new_multi_thread() };
    builder.enable_all().build()
}

/// Ours. With `STEADY_BENCH_STREAM` every answer is a stream.
pub(crate) fn serve() -> io::Result<()> {
    let mut config = ServeConfig::default();
    config.http.always_stream = std::env::var_os("STEADY_BENCH_STREAM").is_some();
    config.http.server.requests.in_flight = 20_000;
    config.http.max_listens = 20_000;
    config.write_stall = Duration::from_secs(3600);
    runtime()?.block_on(async {
        let listener = steady_http::bind("127.0.0.1:0")?;
        say(listener.local_addr()?);
        Server::new(bench(), config).serve(listener).await
    })
}

/// What to say when a program of the peer's harness does not start.
pub(crate) fn unstarted(program: &Path, error: &io::Error) -> io::Error {
    io::Error::other(format!("{}: {error}; build all programs of the harness", program.display()))
}

/// One frame that is the whole body, of a known length or not.
pub(crate) struct Once(pub(crate) Option<Bytes>, pub(crate) bool);

impl Body for Once {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        match (&self.0, self.1) {
            (Some(bytes), true) => http_body::SizeHint::with_exact(bytes.len() as u64),
            _ => http_body::SizeHint::default(),
        }
    }
}

/// hyper alone: it reads the body and answers the bytes that our `echo` answers, as one object or as a stream.
pub(crate) fn bare() -> io::Result<()> {
    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","content":[{"type":"text","text":"hello"}],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"0.0.0"}}}}"#;
    let streams = std::env::var_os("STEADY_BENCH_STREAM").is_some();
    let event = format!("data: {ANSWER}\n\n");
    let (kind, text) = if streams { ("text/event-stream", event) } else { ("application/json", ANSWER.to_owned()) };
    let text = Bytes::from(text);
    runtime()?.block_on(async move {
        let listener = steady_http::bind("127.0.0.1:0")?;
        say(listener.local_addr()?);
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let text = text.clone();
            let service = hyper::service::service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let text = text.clone();
                async move {
                    let mut body = request.into_body();
                    while std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_some() {}
                    let mut response = http::Response::new(Once(Some(text), !streams));
                    response.headers_mut().insert("content-type", http::HeaderValue::from_static(kind));
                    Ok::<_, Infallible>(response)
                }
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service));
        }
    })
}

/// A running server, and where to find it.
pub(crate) struct Running {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Running {
    /// This program in this mode.
    pub(crate) fn start(mode: &str, streams: bool) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(mode);
        if streams {
            command.env("STEADY_BENCH_STREAM", "1");
        }
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let mut line = String::new();
        BufReader::new(child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?).read_line(&mut line)?;
        let address = line.trim().trim_start_matches("serving http://").trim_end_matches("/mcp");
        let address = address.parse().map_err(|_| io::Error::other(format!("the server says {line:?}")))?;
        Ok(Self { child, address })
    }

    /// The peer's server, if its folder is given.
    pub(crate) fn peer(streams: bool) -> io::Result<Option<Self>> {
        let Some(folder) = std::env::var_os("STEADY_BENCH_RMCP") else { return Ok(None) };
        let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let program = Path::new(&folder).join("bserver");
        let mut command = Command::new(&program);
        command.args(["http", &free.port().to_string(), if streams { "sse" } else { "json" }]).env("NODELAY", "1");
        let child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn();
        let running = Self { child: child.map_err(|error| unstarted(&program, &error))?, address: free };
        let start = std::time::Instant::now();
        while std::net::TcpStream::connect(free).is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(io::Error::other("the peer's server does not start"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Some(running))
    }

    /// CPU that the process has used so far, in microseconds.
    pub(crate) fn cpu(&self) -> io::Result<f64> {
        let mut nanos = 0.0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
            nanos += text.split(' ').next().and_then(|first| first.parse::<f64>().ok()).unwrap_or_default();
        }
        Ok(nanos / 1000.0)
    }

    /// Memory that it has now, in KiB.
    pub(crate) fn resident(&self) -> io::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let value = line.and_then(|line| line.split_whitespace().next()).and_then(|value| value.parse().ok());
        value.ok_or_else(|| io::Error::other("no VmRSS"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone = self.child.kill().and_then(|()| self.child.wait());
    }
}
