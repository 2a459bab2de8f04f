//! A server in this process on a real socket, one tool for each way a handler can behave, and a raw client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use steady_http::{
    Answer as Answered, Call, Contents, Context, HttpConfig, HttpService, Hub, Reply, Resource, ResourceRead,
    Resources, RpcError, ServeConfig, Server, Service, ToolCall, Tools,
};
use tokio::sync::{oneshot, watch};

pub(crate) use super::texts::{call, listen, post, post_with, request};

/// A hang guard, not a measure: nothing here is expected to take long.
pub(crate) const GUARD: Duration = Duration::from_secs(60);

const ANY: &str = r#"{"type":"object"}"#;
pub(crate) const MIRRORED: &str = r#"{"type":"object","properties":{"value":{"type":"string","x-mcp-header":"Value"},"n":{"type":"integer","x-mcp-header":"N"}}}"#;
/// An object cannot be mirrored into a header.
const BROKEN: &str = r#"{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A"}}}"#;

/// What handlers tell the test, and what the test tells them.
#[derive(Clone)]
struct Wires {
    said: Sender<String>,
    open: watch::Receiver<bool>,
    hub: Hub,
}

impl Wires {
    fn say(&self, what: impl Into<String>) {
        let _test_is_over = self.said.send(what.into());
    }

    async fn opened(&self) {
        let mut open = self.open.clone();
        let _test_is_over = open.wait_for(|open| *open).await;
    }
}

/// Says that a handler's future was dropped.
struct Dropped(Wires);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.say("dropped");
    }
}

#[derive(serde::Deserialize)]
struct Arguments {
    #[serde(default)]
    text: String,
    #[serde(default)]
    bytes: usize,
    #[serde(default)]
    to: u32,
}

async fn flood(call: ToolCall, cx: Context, wires: Wires) -> Result<Reply, RpcError> {
    let text = "x".repeat(call.arguments::<Arguments>()?.bytes);
    wires.say("started");
    for n in 0_u32.. {
        let reported = cx.report_all(n.into(), None, &text);
        match tokio::time::timeout(Duration::from_millis(500), reported).await {
            Ok(Ok(())) => {}
            Ok(Err(cancelled)) => {
                wires.say(format!("{:?}", cancelled.reason));
                return Err(cancelled.into());
            }
            Err(_nobody_reads) => {
                wires.say("blocked");
                wires.say(format!("{:?}", cx.cancelled().await.reason));
                return Err(RpcError::internal("over"));
            }
        }
    }
    Ok(Reply::text("never"))
}

/// Reports a million times without waiting, as fast as it can, then waits for the test.
async fn torrent(call: ToolCall, cx: Context, wires: Wires) -> Result<Reply, RpcError> {
    let text = "x".repeat(call.arguments::<Arguments>()?.bytes);
    wires.say("started");
    for n in 0..1_000_000_u32 {
        cx.report(n.into(), None, &text);
        if n % 1024 == 0 {
            cx.checkpoint().await?;
        }
    }
    wires.say("reported");
    tokio::select! {
        () = wires.opened() => {}
        cancelled = cx.cancelled() => {
            wires.say(format!("{:?}", cancelled.reason));
            return Err(cancelled.into());
        }
    }
    Ok(Reply::text("done"))
}

async fn big(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let Arguments { bytes, to, .. } = call.arguments()?;
    if to > 0 {
        cx.report(1.0, None, "first");
        // Until what was said has left.
        cx.sleep_until(cx.now() + Duration::from_millis(50)).await?;
    }
    Ok(Reply::text(&"y".repeat(bytes)))
}

/// The tools, and one that asks.
pub(crate) struct Fixture(Tools);

impl Service for Fixture {
    fn call(&self, call: Call, cx: Context) -> Answered {
        if call.params.contains(r#""name":"asks""#) {
            return Answered::Ready(Ok(asks(&call.params)));
        }
        self.0.call(call, cx)
    }

    fn input_schema(&self, tool: &str) -> Option<&str> {
        self.0.input_schema(tool)
    }
}

/// Asks for the roots, and answers with them.
fn asks(params: &str) -> String {
    let params: serde_json::Value = serde_json::from_str(params).expect("JSON");
    match params.get("inputResponses") {
        None => {
            r#"{"resultType":"input_required","inputRequests":{"where":{"method":"roots/list","params":{}}}}"#.into()
        }
        Some(given) => format!(r#"{{"resultType":"complete","content":[],"given":{given}}}"#),
    }
}

fn fixture(wires: &Wires) -> Fixture {
    let resources =
        Resources::new().resource(Resource::new("x:{name}", "letters"), |read: ResourceRead, _| async move {
            Ok(["a", "b"].contains(&read.variable("name")).then(|| Contents::text("text/plain", read.variable("name"))))
        });
    Fixture(tools(wires).resources(resources).subscriptions(&wires.hub))
}

fn tools(wires: &Wires) -> Tools {
    let with = |wires: &Wires| wires.clone();
    let tools = Tools::new("fixture", "0.0.0");
    let tools = tools.tool("echo", "Says it again.", ANY, |call, cx| async move {
        let text = call.arguments::<Arguments>()?.text;
        Ok(Reply::text(if text == "who" { cx.principal().unwrap_or("nobody") } else { &text }))
    });
    let own = with(wires);
    let tools = tools.tool("wait", "Waits for its cancellation, in silence.", ANY, move |_, cx| {
        let wires = with(&own);
        async move {
            wires.say("started");
            let cancelled = cx.cancelled().await;
            wires.say(format!("{:?}", cancelled.reason));
            Err(cancelled.into())
        }
    });
    let own = with(wires);
    let tools = tools.tool("says", "Reports once, then waits for its cancellation.", ANY, move |_, cx| {
        let wires = with(&own);
        async move {
            cx.report(1.0, None, "said");
            wires.say("started");
            let cancelled = cx.cancelled().await;
            wires.say(format!("{:?}", cancelled.reason));
            Err(cancelled.into())
        }
    });
    let own = with(wires);
    let tools = tools.tool("gate", "Waits for the test, then answers.", ANY, move |_, cx| {
        let wires = with(&own);
        async move {
            let _dropped = Dropped(with(&wires));
            wires.say("started");
            wires.opened().await;
            wires.say(format!("cancelled: {}", cx.is_cancelled().is_some()));
            Ok(Reply::text("through the gate"))
        }
    });
    let own = with(wires);
    let tools =
        tools.tool("flood", "Reports without end and without loss.", ANY, move |call, cx| flood(call, cx, with(&own)));
    let own = with(wires);
    let tools = tools.tool("torrent", "Reports a million times.", ANY, move |call, cx| torrent(call, cx, with(&own)));
    let tools = tools.tool("count", "Counts without loss.", ANY, |call, cx| async move {
        let to = call.arguments::<Arguments>()?.to;
        for n in 1..=to {
            cx.report_all(n.into(), Some(to.into()), "").await?;
        }
        Ok(Reply::text("counted"))
    });
    let tools = tools.tool("stepwise", "Reports, and answers later.", ANY, |_, cx| async move {
        cx.report(1.0, None, "first");
        // Until what was said has left.
        cx.sleep_until(cx.now() + Duration::from_millis(50)).await?;
        Ok(Reply::text("then"))
    });
    let tools = further(tools, wires);
    let tools = tools.tool("panics", "Panics.", ANY, |_, cx| async move {
        cx.checkpoint().await?;
        panic!("on purpose");
    });
    tools.tool("mirrored", "Has mirrored parameters.", MIRRORED, |_, _cx| async { Ok(Reply::text("mirrored")) })
}

fn further(tools: Tools, wires: &Wires) -> Tools {
    let tools = tools.tool("big", "A long text, after a report if there is something to count to.", ANY, big);
    let own = wires.clone();
    let tools = tools.tool("twice", "Reports, and again once the test says so.", ANY, move |_, cx| {
        let wires = own.clone();
        async move {
            cx.report(1.0, None, "said");
            wires.say("started");
            wires.opened().await;
            cx.report(2.0, None, "said");
            let cancelled = cx.cancelled().await;
            wires.say(format!("{:?}", cancelled.reason));
            Err(cancelled.into())
        }
    });
    tools.tool("broken", "Its schema breaks the rules of mirrored parameters.", BROKEN, |_, _cx| async {
        Ok(Reply::text("never"))
    })
}

/// The defaults, but for this of HTTP.
pub(crate) fn http(change: impl FnOnce(&mut HttpConfig)) -> ServeConfig {
    let mut config = ServeConfig::default();
    change(&mut config.http);
    config
}

/// A running server.
pub(crate) struct Lab {
    pub(crate) address: SocketAddr,
    pub(crate) service: HttpService<Fixture>,
    pub(crate) hub: Hub,
    said: Receiver<String>,
    open: watch::Sender<bool>,
    stop: Option<oneshot::Sender<()>>,
    runtime: Option<tokio::runtime::Runtime>,
    ended: Receiver<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Lab {
    pub(crate) fn start() -> Self {
        Self::with(ServeConfig::default())
    }

    pub(crate) fn with(config: ServeConfig) -> Self {
        Self::run(|wires| {
            let server = Server::new(fixture(wires), config);
            let service = server.service();
            (service, move |listener, stop| async move { server.serve_until(listener, stop).await.expect("served") })
        })
    }

    /// The same service, mounted into axum.
    pub(crate) fn mounted(config: HttpConfig) -> Self {
        Self::run(|wires| {
            let service = HttpService::new(fixture(wires), config);
            let router = axum::Router::new().route_service("/mcp", service.clone());
            (service, move |listener, stop| async move {
                axum::serve(listener, router).with_graceful_shutdown(stop).await.expect("served");
            })
        })
    }

    fn run<F, R>(make: impl FnOnce(&Wires) -> (HttpService<Fixture>, F)) -> Self
    where
        F: FnOnce(tokio::net::TcpListener, std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) -> R,
        R: Future<Output = ()> + Send + 'static,
    {
        let (said_to, said) = mpsc::channel();
        let (open, is_open) = watch::channel(false);
        let hub = Hub::new();
        let (stop, stopped) = oneshot::channel();
        let (ended_to, ended) = mpsc::channel();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let _inside = runtime.enter();
        let (service, serve) = make(&Wires { said: said_to, open: is_open, hub: hub.clone() });
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("bound");
        let served = serve(
            listener,
            Box::pin(async move {
                let _stop = stopped.await;
            }),
        );
        let serving = runtime.spawn(async move {
            served.await;
            let _nobody_waits = ended_to.send(());
        });
        drop(_inside);
        Self { address, service, hub, said, open, stop: Some(stop), runtime: Some(runtime), ended, serving }
    }

    /// The next thing that a handler says.
    pub(crate) fn heard(&self) -> String {
        self.said.recv_timeout(GUARD).expect("a handler says something")
    }

    /// Waits until a handler has said all of `what`, in this order.
    pub(crate) fn hears(&self, what: &[&str]) {
        for what in what {
            assert_eq!(self.heard(), *what);
        }
    }

    pub(crate) fn open_the_gate(&self) {
        self.open.send_replace(true);
    }

    pub(crate) fn connect(&self) -> Peer {
        Peer::connect(self.address)
    }

    /// Asks for a graceful shutdown.
    pub(crate) fn stop(&mut self) {
        let _ = self.stop.take().expect("once").send(());
    }

    /// The server goes without a word, and its connections with it.
    pub(crate) fn vanish(&self) {
        self.serving.abort();
    }

    pub(crate) fn has_ended(&self) {
        self.ended.recv_timeout(GUARD).expect("the server ends");
    }

    /// Waits until the counters are so, under the hang guard.
    pub(crate) fn until(&self, what: impl Fn(&steady_http::HttpCounters) -> bool) {
        let start = std::time::Instant::now();
        while !what(&self.service.counters()) {
            assert!(start.elapsed() < GUARD, "{:?}", self.service.counters());
            std::thread::yield_now();
        }
    }

    /// An answered call on a connection of its own: everything that was in the server's hands before has been handled.
    pub(crate) fn ping(&self) {
        let mut peer = self.connect();
        peer.post(&call(77, "echo", r#"{"text":"pong"}"#));
        assert!(peer.answer().text().contains("pong"));
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A raw client.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    reader: BufReader<TcpStream>,
}

/// The head of a response, and its body if it has a length.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.iter().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim())
    }

    /// The code of the error that it is.
    pub(crate) fn code(&self) -> i64 {
        let body: serde_json::Value = serde_json::from_str(&self.text()).expect("JSON");
        body["error"]["code"].as_i64().unwrap_or_else(|| panic!("an error: {body}"))
    }
}

impl Peer {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).expect("the server accepts"))
    }

    pub(crate) fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(GUARD)).expect("a timeout");
        stream.set_write_timeout(Some(GUARD)).expect("a timeout");
        let reader = BufReader::new(stream.try_clone().expect("a handle"));
        Self { stream, reader }
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    pub(crate) fn post(&mut self, body: &str) {
        self.send(post(body).as_bytes());
    }

    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).expect("open");
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a line");
        line
    }

    pub(crate) fn head(&mut self) -> Answer {
        let first = self.line();
        let status = first.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut head = Vec::new();
        loop {
            let line = self.line();
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_owned());
        }
        Answer { status: status.unwrap_or_else(|| panic!("a status line: {first:?}")), head, body: Vec::new() }
    }

    /// A response with a length.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        let length = answer.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        answer.body = vec![0; length];
        self.reader.read_exact(&mut answer.body).expect("the whole body");
        answer
    }

    /// So many bytes.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.reader.read_exact(&mut bytes).expect("so many");
        bytes
    }

    /// Sends what the server may not read any more.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) {
        let _closed_already = self.stream.write_all(bytes);
    }

    /// The next chunk of a stream, or `None` at its end.
    pub(crate) fn chunk(&mut self) -> Option<String> {
        let size = self.line();
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or_else(|_| panic!("a chunk size: {size:?}"));
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk).expect("the whole chunk");
        chunk.truncate(size);
        (size > 0).then(|| String::from_utf8(chunk).expect("UTF-8"))
    }

    /// The rest of a stream, up to its proper end.
    pub(crate) fn stream_text(&mut self) -> String {
        let mut text = String::new();
        while let Some(chunk) = self.chunk() {
            text.push_str(&chunk);
        }
        text
    }

    /// What is left until the server closes; an error counts as its end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        let _closed_hard = self.reader.read_to_end(&mut rest);
        rest
    }
}
