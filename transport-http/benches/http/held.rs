//! What open streams and slow clients hold, and how soon a hang-up is heard.

use std::io;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::json;
use steady_http::{RpcError, ServeConfig, Server, Tools};

use super::client::{Connection, call, post};
use super::servers::Running;
use super::{Rows, Size};

fn client() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

/// The memory of the server once it has settled, in KiB.
async fn settled(server: &Running) -> io::Result<f64> {
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.resident()
}

/// Clients that ask for a million reports of 200 bytes each, and read none of them.
struct Slow(Vec<Connection>);

impl Slow {
    async fn open(server: &Running, streams: usize, reports: u32) -> io::Result<Self> {
        let mut slow = Vec::with_capacity(streams);
        for _ in 0..streams {
            let mut connection = Connection::open(server.address).await?;
            connection.send(&call("torrent", &format!(r#"{{"n":{reports},"msg_len":200}}"#))).await?;
            slow.push(connection);
        }
        Ok(Self(slow))
    }

    /// The most memory that the server had, in KiB, until the handlers have used no CPU for a while: they have reported all.
    async fn most(&self, server: &Running) -> io::Result<f64> {
        let (mut most, mut cpu) = (0.0_f64, server.cpu()?);
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            most = most.max(server.resident()?);
            let now = server.cpu()?;
            if now - cpu < 100.0 {
                return Ok(most);
            }
            cpu = now;
        }
    }

    /// Reads on, up to the result.
    async fn end(self) -> io::Result<()> {
        for mut slow in self.0 {
            slow.until(b"\"sent\"").await?;
        }
        Ok(())
    }
}

/// What a stream holds whose client does not read. A first one, which ends before, takes what all of them share: the pages of
/// the code that streams, for one.
pub(super) fn slow_reader(rows: &mut Rows, size: Size) -> io::Result<()> {
    let server = Running::start("serve", false)?;
    let reports = size.events * 10;
    let (first, each) = client()?.block_on(async {
        let mut warm = Connection::open(server.address).await?;
        warm.round_trip(&call("echo", "{}"), b"}}").await?;
        let before = settled(&server).await?;
        let slow = Slow::open(&server, 1, reports).await?;
        let first = slow.most(&server).await? - before;
        slow.end().await?;
        let before = settled(&server).await?;
        let slow = Slow::open(&server, size.slow, reports).await?;
        let each = (slow.most(&server).await? - before) / size.slow as f64;
        slow.end().await?;
        Ok::<_, io::Error>((first, each))
    })?;
    let name = "slow reader, 1 M reports of 200 bytes";
    rows.put(&json!({"name": format!("{name}, memory of a stream"), "ours": each.max(1.0), "limit": 64.0, "aim": 1.0,
                     "unit": "KiB"}))?;
    rows.put(&json!({"name": format!("{name}, the first, with the code that it loads"), "ours": first, "unit": "KiB"}))
}

/// Opens `count` connections with this request, each up to its first event.
async fn open(server: &Running, count: usize, request: &[u8], mark: &[u8]) -> io::Result<Vec<Connection>> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count {
        let mut connection = Connection::open(server.address).await?;
        connection.send(request).await?;
        connection.until(mark).await?;
        held.push(connection);
    }
    Ok(held)
}

fn listen() -> Vec<u8> {
    post("subscriptions/listen", None, r#""notifications":{"toolsListChanged":true},"#)
}

/// What one open stream holds.
pub(super) fn each(rows: &mut Rows, size: Size) -> io::Result<()> {
    for (name, request, mark, limit) in [
        ("open listen stream, memory", listen(), &b"acknowledged"[..], 8.0),
        ("call in flight with progress, memory", call("pwait", "{}"), b"notifications/progress", 12.0),
    ] {
        let server = Running::start("serve", false)?;
        let held = client()?.block_on(async {
            drop(open(&server, 10, &request, mark).await?);
            let before = settled(&server).await?;
            let _held = open(&server, size.held, &request, mark).await?;
            Ok::<_, io::Error>((settled(&server).await? - before) / size.held as f64)
        })?;
        rows.put(&json!({"name": name, "ours": held, "limit": limit, "aim": 1.0, "unit": "KiB"}))?;
    }
    Ok(())
}

/// As many open streams as a large server has.
pub(super) fn many(rows: &mut Rows, size: Size) -> io::Result<()> {
    let server = Running::start("serve", false)?;
    let total = client()?.block_on(async {
        let _held = open(&server, size.streams, &listen(), b"acknowledged").await?;
        let mut other = Connection::open(server.address).await?;
        other.round_trip(&call("echo", "{}"), b"}}").await?;
        settled(&server).await
    })?;
    let name = format!("{} open streams, memory in all", size.streams);
    rows.put(&json!({"name": name, "ours": total / 1024.0, "unit": "MiB"}))
}

/// A stream whose client reads nothing, and whose socket is full: it watches many long names, which were published until
/// more had been said than any buffer holds.
async fn stuck(server: &Running, other: &mut Connection) -> io::Result<Connection> {
    let names: Vec<String> = (0..900).map(|n| format!("x:{n}-{}", "x".repeat(4000))).collect();
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": names});
    let mut stuck = Connection::open_narrow(server.address).await?;
    stuck.send(&post("subscriptions/listen", None, &format!("\"notifications\":{filter},"))).await?;
    stuck.until(b"acknowledged").await?;
    for _ in 0..20 {
        other.round_trip(&call("fill", "{}"), b"}}").await?;
        // What can leave has left.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(stuck)
}

/// One publication to as many open streams as a large server has, while another client is stuck: how long until the last of
/// them has it, and what that costs the server.
pub(super) fn published(rows: &mut Rows, size: Size) -> io::Result<()> {
    let server = Running::start("serve", false)?;
    let (mut took, mut cpu) = (Vec::new(), Vec::new());
    client()?.block_on(async {
        let mut other = Connection::open(server.address).await?;
        let mut held = open(&server, size.streams, &listen(), b"acknowledged").await?;
        let _stuck = stuck(&server, &mut other).await?;
        for _ in 0..size.passes {
            let before = server.cpu()?;
            let start = Instant::now();
            other.send(&call("change", "{}")).await?;
            for connection in &mut held {
                connection.until(b"list_changed").await?;
                connection.forget();
            }
            took.push(start.elapsed().as_secs_f64() * 1e3);
            other.until(b"}}").await?;
            cpu.push((server.cpu()? - before) / 1e3);
        }
        Ok::<_, io::Error>(())
    })?;
    let name = format!("one publication to {} streams, one of them stuck", size.streams);
    let all = format!("{name}, the last of the others");
    rows.put(&json!({"name": all, "ours": super::median(took), "limit": 200.0, "aim": 1.0, "unit": "ms"}))?;
    rows.put(&json!({"name": format!("{name}, CPU of the server"), "ours": super::median(cpu), "unit": "ms"}))
}

/// From the client's close to the handler's knowledge of it.
pub(super) fn hang_ups(rows: &mut Rows, size: Size) -> io::Result<()> {
    let (told_to, told) = mpsc::channel::<Option<Instant>>();
    let say = told_to.clone();
    let tools = Tools::new("bench", "0.0.0").tool("pwait", "Waits.", r#"{"type":"object"}"#, move |_call, cx| {
        let say = say.clone();
        async move {
            cx.report(1.0, None, "");
            let _measured = say.send(None);
            let cancelled = cx.cancelled().await;
            let _measured = say.send(Some(Instant::now()));
            Err::<steady_http::Reply, _>(RpcError::from(cancelled))
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let address = {
        let _inside = runtime.enter();
        let listener = steady_http::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        runtime.spawn(Server::new(tools, ServeConfig::default()).serve(listener));
        address
    };
    let mut took = Vec::new();
    let heard = || told.recv_timeout(Duration::from_secs(30)).map_err(io::Error::other);
    for _ in 0..size.hang_ups {
        let mut stream = std::net::TcpStream::connect(address)?;
        io::Write::write_all(&mut stream, &call("pwait", "{}"))?;
        heard()?;
        // The first event is read, so that the close is no reset.
        let mut first = [0; 4096];
        io::Read::read(&mut stream, &mut first)?;
        let start = Instant::now();
        drop(stream);
        if let Some(at) = heard()? {
            took.push(at.saturating_duration_since(start).as_secs_f64() * 1e6);
        }
    }
    drop(told_to);
    runtime.shutdown_background();
    took.sort_by(f64::total_cmp);
    for (name, part, limit) in [("p50", 50, 70.0), ("p99", 99, 300.0)] {
        let at = took.get(took.len() * part / 100).copied().unwrap_or(f64::NAN);
        let name = format!("disconnect to the handler's token, {name}");
        rows.put(&json!({"name": name, "ours": at, "limit": limit, "aim": 1.0, "unit": "us"}))?;
    }
    Ok(())
}
