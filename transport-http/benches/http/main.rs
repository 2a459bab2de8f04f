//! Calls over HTTP on loopback, against a bare hyper that answers the same bytes, and against rmcp where it is given.
//!
//! The program starts itself as the server (`serve`) and as bare hyper (`bare`); `STEADY_BENCH_RMCP` names the folder with
//! the peer's `bserver`. The servers take turns in each pass, and the CPU is that of the server's process, so that it does
//! not matter what the client costs. Then the clients, each a process too. Each row is a JSON line in the file that
//! `STEADY_BENCH_ROWS` names, or on standard output. `--test` makes one small pass of each; `published` and `slow` measure
//! those rows alone.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

mod client;
mod clients;
mod held;
mod load;
mod servers;

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;

/// How much is measured.
#[derive(Clone, Copy)]
struct Size {
    passes: usize,
    echoes: usize,
    events: u32,
    held: usize,
    streams: usize,
    hang_ups: usize,
    slow: usize,
}

const WHOLE: Size =
    Size { passes: 5, echoes: 60_000, events: 100_000, held: 1000, streams: 10_000, hang_ups: 300, slow: 8 };
const TEST: Size = Size { passes: 1, echoes: 500, events: 500, held: 20, streams: 50, hang_ups: 5, slow: 2 };

/// Where rows go.
struct Rows(Box<dyn Write>);

impl Rows {
    fn open() -> io::Result<Self> {
        Ok(Self(match std::env::var_os("STEADY_BENCH_ROWS") {
            Some(path) => Box::new(File::options().append(true).create(true).open(path)?),
            None => Box::new(io::stdout()),
        }))
    }

    fn put(&mut self, row: &serde_json::Value) -> io::Result<()> {
        writeln!(self.0, "{row}")
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn measure(size: Size) -> io::Result<()> {
    let mut rows = Rows::open()?;
    load::echo(&mut rows, size)?;
    load::progress(&mut rows, size)?;
    held::slow_reader(&mut rows, size)?;
    held::each(&mut rows, size)?;
    held::many(&mut rows, size)?;
    held::published(&mut rows, size)?;
    held::hang_ups(&mut rows, size)?;
    clients::clients(&mut rows, size)
}

/// Each of ten thousand streams is a descriptor, here and in the server, and many systems begin with a limit of 1024.
fn raise_the_limit_of_descriptors() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        let _as_it_was = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

fn main() -> ExitCode {
    raise_the_limit_of_descriptors();
    let mode = std::env::args().nth(1).unwrap_or_default();
    let done = match mode.as_str() {
        "serve" => servers::serve(),
        "bare" => servers::bare(),
        "published" => Rows::open().and_then(|mut rows| held::published(&mut rows, WHOLE)),
        "slow" => Rows::open().and_then(|mut rows| held::slow_reader(&mut rows, WHOLE)),
        "client" => clients::client(&std::env::args().skip(2).collect::<Vec<_>>()).map_err(io::Error::other),
        _ => measure(if std::env::args().any(|argument| argument == "--test") { TEST } else { WHOLE }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
