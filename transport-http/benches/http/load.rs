//! How much a server gets done.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::json;

use super::client::{Connection, Tally, call};
use super::servers::Running;
use super::{Rows, Size, median};

const CONNECTIONS: usize = 64;

/// Requests a second, and CPU microseconds a request.
type Pass = (f64, f64);

fn pass(server: &Running, requests: usize, end: &'static [u8]) -> io::Result<Pass> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let request = call("echo", r#"{"text":"hello"}"#);
    let (each, address) = (requests.div_ceil(CONNECTIONS), server.address);
    runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = Connection::open(address).await?;
            connection.round_trip(&request, end).await?;
            connections.push(connection);
        }
        let (cpu, start) = (server.cpu()?, Instant::now());
        let mut tasks = tokio::task::JoinSet::new();
        for mut connection in connections {
            let request = request.clone();
            tasks.spawn(async move {
                for _ in 0..each {
                    connection.round_trip(&request, end).await?;
                }
                Ok::<_, io::Error>(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.map_err(io::Error::other)??;
        }
        let count = (each * CONNECTIONS) as f64;
        Ok((count / start.elapsed().as_secs_f64(), (server.cpu()? - cpu) / count))
    })
}

/// Medians of the passes, which the servers took in turns.
fn passes(size: Size, streams: bool) -> io::Result<Vec<Option<Pass>>> {
    let end: &[u8] = if streams { b"\r\n0\r\n\r\n" } else { b"}}" };
    let servers =
        [Some(Running::start("serve", streams)?), Some(Running::start("bare", streams)?), Running::peer(streams)?];
    let mut measured: Vec<Vec<Pass>> = vec![Vec::new(); servers.len()];
    for _ in 0..size.passes {
        for (server, measured) in servers.iter().zip(&mut measured) {
            if let Some(server) = server {
                measured.push(pass(server, size.echoes, end)?);
            }
        }
    }
    let middle = |passes: &Vec<Pass>| {
        let column = |of: fn(&Pass) -> f64| median(passes.iter().map(of).collect());
        (!passes.is_empty()).then(|| (column(|pass| pass.0), column(|pass| pass.1)))
    };
    Ok(measured.iter().map(middle).collect())
}

pub(super) fn echo(rows: &mut Rows, size: Size) -> io::Result<()> {
    for (kind, streams, share) in [("JSON", false, None), ("SSE", true, Some(0.6))] {
        let [ours, bare, peer] = passes(size, streams)?[..] else { return Err(io::Error::other("three servers")) };
        let (Some(ours), Some(bare)) = (ours, bare) else { return Err(io::Error::other("no pass")) };
        let name = format!("{kind} echo, {CONNECTIONS} connections");
        if let Some(share) = share {
            rows.put(&json!({"name": format!("{name}, share of bare hyper"), "ours": ours.0, "limit": bare.0,
                             "aim": share, "unit": "1/s", "more_is_better": true}))?;
        } else {
            rows.put(&json!({"name": format!("{name}, CPU above bare hyper"), "ours": ours.1 - bare.1, "limit": 3.5,
                             "aim": 1.0, "unit": "us"}))?;
            rows.put(&json!({"name": format!("{name}, bare hyper"), "ours": ours.0, "limit": bare.0, "unit": "1/s",
                             "more_is_better": true}))?;
        }
        rows.put(&json!({"name": format!("{name}, CPU each"), "ours": ours.1, "limit": bare.1,
                         "peer": peer.map(|peer| peer.1), "unit": "us"}))?;
        if let Some(peer) = peer {
            rows.put(&json!({"name": format!("{name}, rmcp"), "ours": ours.0, "peer": peer.0, "aim": 4.0,
                             "unit": "1/s", "more_is_better": true}))?;
        }
    }
    Ok(())
}

/// Events a second of a handler that waits for room, and CPU microseconds of the server for each. All of them must come. The
/// client blocks in its reads, as one that took part in the work of a runtime would leave the server half of two processors.
fn events(server: &Running, events: u32) -> io::Result<Pass> {
    let mut tally = Tally::new(b"notifications/progress", b"\r\n0\r\n\r\n");
    let mut stream = TcpStream::connect(server.address)?;
    let (cpu, start) = (server.cpu()?, Instant::now());
    stream.write_all(&call("progress", &format!(r#"{{"n":{events}}}"#)))?;
    let mut read = Vec::new();
    while !tally.look(&mut read) {
        let had = read.len();
        read.resize(had + (64 << 10), 0);
        let came = stream.read(&mut read[had..])?;
        read.truncate(had + came);
        if came == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let count = f64::from(events);
    if tally.count as f64 != count {
        return Err(io::Error::other(format!("{} of {events} events came", tally.count)));
    }
    Ok((count / start.elapsed().as_secs_f64(), (server.cpu()? - cpu) / count))
}

pub(super) fn progress(rows: &mut Rows, size: Size) -> io::Result<()> {
    let (ours, peer) = (Running::start("serve", false)?, Running::peer(true)?);
    let (mut of_ours, mut of_peer) = (Vec::new(), Vec::new());
    for _ in 0..size.passes {
        of_ours.push(events(&ours, size.events)?);
        if let Some(peer) = &peer {
            of_peer.push(events(peer, size.events)?);
        }
    }
    let middle = |passes: &[Pass], column: fn(&Pass) -> f64| median(passes.iter().map(column).collect());
    let of_peer = peer.map(|_| of_peer);
    let name = "progress over SSE, none lost";
    rows.put(&json!({"name": name, "ours": middle(&of_ours, |pass| pass.0),
                     "peer": of_peer.as_ref().map(|passes| middle(passes, |pass| pass.0)), "aim": 8.0, "unit": "1/s",
                     "more_is_better": true}))?;
    rows.put(&json!({"name": format!("{name}, CPU each"), "ours": middle(&of_ours, |pass| pass.1),
                     "peer": of_peer.as_ref().map(|passes| middle(passes, |pass| pass.1)), "unit": "us"}))
}
