//! What the client costs: ours beside a bare hyper client that sends and reads the same bytes, and rmcp's where it is given.
//! Each runs in a process of its own against one server, and tells the CPU that it used.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::json;
use steady_http::client::{Client, Config, Pending, Request};
use tokio::net::TcpStream;

use super::servers::{Once, Running};
use super::{Rows, Size, median};

/// What both do, and how often.
const WORKS: [(&str, &str); 4] = [
    ("echo", "echoes one after the other"),
    ("echo64", "echoes, 64 in flight"),
    ("progress", "reports on one stream"),
    ("cancel", "calls cancelled after a report"),
];
const IN_FLIGHT: usize = 64;
const TEXT: &str = r#"{"text":"hello world, this is an echo"}"#;

/// Operations a second, and CPU microseconds an operation.
type Pass = (f64, f64);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The rows.
pub(super) fn clients(rows: &mut Rows, size: Size) -> io::Result<()> {
    let server = Running::start("serve", false)?;
    for (work, about) in WORKS {
        let count = match work {
            "progress" => size.events as usize,
            "cancel" => size.hang_ups * 10,
            _ => size.echoes / 3,
        };
        let mut passes: [Vec<Pass>; 3] = Default::default();
        for _ in 0..size.passes {
            passes[0].push(pass("ours", &server, work, count)?);
            passes[1].push(pass("hyper", &server, work, count)?);
            passes[2].extend(rmcp(&server, work, count)?);
        }
        let [ours, bare, peer] = passes.map(|passes| {
            let column = |of: fn(&Pass) -> f64| median(passes.iter().map(of).collect());
            (!passes.is_empty()).then(|| (column(|pass| pass.0), column(|pass| pass.1)))
        });
        let (Some(ours), Some(bare)) = (ours, bare) else { return Err(io::Error::other("no pass")) };
        let peer_cpu = peer.map(|peer| peer.1);
        rows.put(&json!({"name": format!("client, {about}, CPU each"), "ours": ours.1, "limit": bare.1,
                         "peer": peer_cpu, "unit": "us"}))?;
        rows.put(&json!({"name": format!("client, {about}"), "ours": ours.0, "limit": bare.0,
                         "peer": peer.map(|peer| peer.0), "unit": "1/s", "more_is_better": true}))?;
    }
    Ok(())
}

/// One process of a client.
fn pass(kind: &str, server: &Running, work: &str, count: usize) -> io::Result<Pass> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["client", kind, &server.address.to_string(), work, &count.to_string()]);
    let done = command.stderr(Stdio::inherit()).output()?;
    let said = String::from_utf8_lossy(&done.stdout);
    let pass = said.trim().split_once(' ').and_then(|(rate, cpu)| Some((rate.parse().ok()?, cpu.parse().ok()?)));
    pass.ok_or_else(|| io::Error::other(format!("the {kind} client says {said:?}")))
}

/// rmcp's client does echoes and progress. Its CPU is known to the hundredth of a second, for all that it did.
fn rmcp(server: &Running, work: &str, count: usize) -> io::Result<Option<Pass>> {
    const WARM_UP: usize = 100;
    let Some(folder) = std::env::var_os("STEADY_BENCH_RMCP") else { return Ok(None) };
    let (url, count_text) = (format!("http://{}/mcp", server.address), count.to_string());
    let (args, done) = match work {
        "echo" => (["echo", "http", &url, "-", &count_text, "1", "1"].to_vec(), count + WARM_UP),
        "echo64" => (["echo", "http", &url, "-", &count_text, "64", "1"].to_vec(), count + WARM_UP),
        "progress" => (["progress", "http", &url, "-", &count_text, "0"].to_vec(), count),
        _ => return Ok(None),
    };
    let (before, start) = (cpu_of_children()?, Instant::now());
    let program = std::path::Path::new(&folder).join("bclient");
    let said =
        Command::new(&program).args(args).output().map_err(|error| super::servers::unstarted(&program, &error))?;
    let (cpu, elapsed) = (cpu_of_children()? - before, start.elapsed());
    if !said.status.success() {
        return Err(io::Error::other(format!("rmcp's client: {}", String::from_utf8_lossy(&said.stderr))));
    }
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let rate = ["rps ", " ev/s"].iter().find_map(|mark| {
        let (before, after) = text.split_once(mark)?;
        let word = if *mark == "rps " { after.split(' ').next() } else { before.rsplit(' ').next() };
        word?.parse().ok()
    });
    Ok(Some((rate.unwrap_or(done as f64 / elapsed.as_secs_f64()), cpu / done as f64)))
}

/// Of the children that have ended, in microseconds.
fn cpu_of_children() -> io::Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
    let ticks = after.split(' ').skip(13).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>();
    Ok(ticks * 10_000.0)
}

/// Of this process, in microseconds.
fn cpu() -> io::Result<f64> {
    let mut nanos = 0.0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += text.split(' ').next().and_then(|first| first.parse::<f64>().ok()).unwrap_or_default();
    }
    Ok(nanos / 1000.0)
}

/// The process of one pass: `client KIND ADDRESS WORK COUNT`.
pub(super) fn client(args: &[String]) -> Result<(), Failure> {
    let [kind, address, work, count] = args else { return Err("client KIND ADDRESS WORK COUNT".into()) };
    let (address, count): (SocketAddr, usize) = (address.parse()?, count.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (rate, cpu) = runtime.block_on(async {
        match kind.as_str() {
            "ours" => ours(address, work, count).await,
            _ => bare(address, work, count).await,
        }
    })?;
    println!("{rate} {cpu}");
    Ok(())
}

/// Runs it once as a warm-up, then measured.
macro_rules! measured {
    ($count:expr, $warm_up:expr, $work:expr) => {{
        $warm_up.await?;
        let (before, start) = (cpu()?, Instant::now());
        $work.await?;
        let elapsed = start.elapsed().as_secs_f64();
        ($count as f64 / elapsed, (cpu()? - before) / $count as f64)
    }};
}

async fn ours(address: SocketAddr, work: &str, count: usize) -> Result<Pass, Failure> {
    let mut config = Config::default();
    config.calls.calls.progress_interval = Duration::ZERO;
    let client = Client::connect(&format!("http://{address}/mcp"), config).await?;
    let client = &client;
    Ok(match work {
        "echo" => measured!(count, echoes(client, 100), echoes(client, count)),
        "echo64" => {
            let each = count.div_ceil(IN_FLIGHT);
            measured!(each * IN_FLIGHT, echoes_at_once(client, 10), echoes_at_once(client, each))
        }
        "progress" => measured!(count, reports(client, 100), reports(client, count)),
        _ => measured!(count, cancels(client, 10), cancels(client, count)),
    })
}

fn tool(name: &str, arguments: &str) -> Request {
    Request::raw("tools/call", format!(r#"{{"name":"{name}","arguments":{arguments}}}"#))
}

async fn echoes(client: &Client, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        client.call(tool("echo", TEXT)).await?;
    }
    Ok(())
}

async fn echoes_at_once(client: &Client, each: usize) -> Result<(), Failure> {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..IN_FLIGHT {
        let client = client.clone();
        tasks.spawn(async move { echoes(&client, each).await });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn reports(client: &Client, count: usize) -> Result<(), Failure> {
    let mut call: Pending = client.call(tool("progress", &format!(r#"{{"n":{count}}}"#)).idle(None).max(None));
    let mut last = 0.0;
    while let Some(report) = call.progress().await {
        last = report.progress;
    }
    call.await?;
    if last == count as f64 { Ok(()) } else { Err(format!("the last report is {last}").into()) }
}

async fn cancels(client: &Client, count: usize) -> Result<(), Failure> {
    for _ in 0..count {
        let mut call = client.call(tool("pwait", "{}"));
        call.progress().await.ok_or("it ended before it reported")?;
        drop(call);
    }
    Ok(())
}

async fn bare(address: SocketAddr, work: &str, count: usize) -> Result<Pass, Failure> {
    Ok(match work {
        "echo" => {
            let mut connection = Bare::open(address).await?;
            measured!(count, connection.echoes(100), connection.echoes(count))
        }
        "echo64" => {
            let mut connections = Vec::new();
            for _ in 0..IN_FLIGHT {
                connections.push(Bare::open(address).await?);
            }
            let each = count.div_ceil(IN_FLIGHT);
            measured!(each * IN_FLIGHT, async { Ok::<_, Failure>(()) }, async {
                let mut tasks = tokio::task::JoinSet::new();
                for mut connection in connections {
                    tasks.spawn(async move { connection.echoes(each).await });
                }
                while let Some(done) = tasks.join_next().await {
                    done??;
                }
                Ok::<_, Failure>(())
            })
        }
        "progress" => {
            let mut connection = Bare::open(address).await?;
            let arguments = format!(r#"{{"n":{count}}}"#);
            measured!(count, connection.echoes(1), connection.whole("progress", &arguments))
        }
        _ => measured!(count, Bare::cancels(address, 10), Bare::cancels(address, count)),
    })
}

/// A connection of hyper's, and nothing around it.
struct Bare {
    sender: SendRequest<Once>,
    host: http::HeaderValue,
}

impl Bare {
    async fn open(address: SocketAddr) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self { sender, host: address.to_string().parse()? })
    }

    /// The bytes that our client sends.
    fn request(&self, tool: &str, arguments: &str) -> http::Request<Once> {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"mcp-steady","version":"0.1.0"}},"io.modelcontextprotocol/clientCapabilities":{{}},"progressToken":1}}}}}}"#
        );
        let mut request = http::Request::new(Once(Some(Bytes::from(body)), true));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static("/mcp");
        let headers = request.headers_mut();
        headers.insert("host", self.host.clone());
        for (name, value) in [
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
        ] {
            headers.insert(name, http::HeaderValue::from_static(value));
        }
        if let Ok(name) = http::HeaderValue::from_str(tool) {
            headers.insert("mcp-name", name);
        }
        request
    }

    async fn send(&mut self, tool: &str, arguments: &str) -> Result<Incoming, Failure> {
        self.sender.ready().await?;
        let request = self.request(tool, arguments);
        Ok(self.sender.send_request(request).await?.into_body())
    }

    /// One request, and its answer to the end.
    async fn whole(&mut self, tool: &str, arguments: &str) -> Result<(), Failure> {
        let mut body = self.send(tool, arguments).await?;
        while frame(&mut body).await?.is_some() {}
        Ok(())
    }

    async fn echoes(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            self.whole("echo", TEXT).await?;
        }
        Ok(())
    }

    async fn cancels(address: SocketAddr, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            let mut connection = Self::open(address).await?;
            let mut body = connection.send("pwait", "{}").await?;
            frame(&mut body).await?.ok_or("it ended before it reported")?;
        }
        Ok(())
    }
}

async fn frame(body: &mut Incoming) -> Result<Option<http_body::Frame<Bytes>>, Failure> {
    Ok(std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await.transpose()?)
}
