//! The rows: what each measures, of one server at a time.

use std::io;
use std::time::Instant;

use crate::measure::{Program, Server, median, nanos, quantile};

/// What one run of a case gave.
pub(crate) struct Run {
    /// Operations a second.
    pub(crate) rate: f64,
    /// Server CPU for one operation, in microseconds.
    pub(crate) cpu: f64,
}

const TEXT: &str = r#"{"text":"hello world, this is an echo"}"#;

/// Runs the work on a fresh server, which has answered some calls before.
fn run(program: &Program, operations: u32, work: impl FnOnce(&mut Server) -> io::Result<()>) -> io::Result<Run> {
    let mut server = Server::start(program)?;
    for _ in 0..200 {
        server.round_trip(1, "echo", TEXT, false)?;
    }
    let (start, before) = (Instant::now(), server.cpu()?);
    work(&mut server)?;
    let (took, used) = (start.elapsed().as_secs_f64(), server.cpu()? - before);
    server.end()?;
    Ok(Run { rate: f64::from(operations) / took, cpu: used / 1000.0 / f64::from(operations) })
}

/// Calls with so many in flight.
pub(crate) fn echo(program: &Program, calls: u32, in_flight: u32) -> io::Result<Run> {
    run(program, calls, |server| {
        let (mut sent, mut answered) = (0, 0);
        while answered < calls {
            while sent < calls && sent - answered < in_flight {
                sent += 1;
                server.call(u64::from(sent), "echo", TEXT, false)?;
            }
            server.read()?;
            answered += 1;
        }
        Ok(())
    })
}

/// One call that reports so often, without loss.
pub(crate) fn progress(program: &Program, reports: u32) -> io::Result<Run> {
    run(program, reports, |server| {
        server.call(7, "progress", &format!("{{\"n\":{reports}}}"), true)?;
        let mut lines = 0;
        while server.read()?.contains("notifications/progress") {
            lines += 1;
        }
        if lines == reports { Ok(()) } else { Err(io::Error::other(format!("{lines} of {reports} reports"))) }
    })
}

/// From the write of a cancellation to the moment the handler hears of it: median and 99th percentile, in microseconds.
pub(crate) fn cancel(program: &Program, calls: u64) -> io::Result<(f64, f64)> {
    let mut server = Server::start(program)?;
    let mut waited = Vec::new();
    for key in 0..calls {
        server.call(10 + key, "wait", &format!("{{\"key\":{key}}}"), false)?;
        while stats(&mut server)?.0 <= key {}
        let start = nanos();
        server.cancel(10 + key)?;
        let fired = loop {
            if let Some((_, at)) = stats(&mut server)?.1.into_iter().find(|(fired, _)| *fired == key) {
                break at;
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
        waited.push(fired.saturating_sub(start) as f64 / 1000.0);
    }
    server.end()?;
    Ok((quantile(&mut waited, 0.5), quantile(&mut waited, 0.99)))
}

/// How many calls wait or have waited, and which were told to stop, when.
fn stats(server: &mut Server) -> io::Result<(u64, Vec<(u64, u64)>)> {
    #[derive(serde::Deserialize)]
    struct Stats {
        started: u64,
        fired: Vec<(u64, u64)>,
    }
    let line = server.round_trip(1, "stats", "{}", false)?;
    let answer: serde_json::Value = serde_json::from_str(line)?;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
    let Stats { started, fired } = serde_json::from_str(text)?;
    Ok((started, fired))
}

/// From the end of input to the exit, in milliseconds, with a handler that ignores its cancellation.
pub(crate) fn end_of_input(program: &Program, passes: usize) -> io::Result<f64> {
    let mut took = Vec::new();
    for _ in 0..passes {
        let mut server = Server::start(program)?;
        server.round_trip(1, "ignore", "{}", true)?;
        took.push(server.end()?.as_secs_f64() * 1000.0);
    }
    Ok(median(took))
}
