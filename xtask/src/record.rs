//! Recorders: a relay in front of a server's socket, a program between a client and the server that it starts, and one that
//! starts a client with such a relay. They write what each side sends to a file of its own, byte by byte as it came.

use crate::error::Error;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Stand between a client and its server, and record what both say
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The command is a client, and its last argument is the URL of its server
    #[arg(long)]
    http: bool,
    /// The files begin with this
    prefix: PathBuf,
    /// The server, or with --http the client
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<String>,
}

/// Runs the server between two pipes, or the client in front of a relay; its exit code is ours.
pub(crate) fn run(options: &Options) -> Result<ExitCode, Error> {
    let Some((program, args)) = options.command.split_first() else { return Ok(ExitCode::FAILURE) };
    if options.http {
        return run_client(&options.prefix, program, args);
    }
    let prefix = format!("{}-{}.stdio", options.prefix.display(), std::process::id());
    let (mut asked, mut said) = files(&prefix)?;
    let spawned = Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|why| Error::Spawn { program: program.clone(), why: why.to_string() })?;
    if let Some(mut to) = child.stdin.take() {
        // Ends with the input, which closes the server's.
        thread::spawn(move || copy(&mut io::stdin(), &mut to, &mut asked));
    }
    if let Some(mut from) = child.stdout.take() {
        copy(&mut from, &mut io::stdout(), &mut said);
    }
    let status = child.wait().map_err(|why| Error::check(format!("{program}: {why}")))?;
    Ok(exit_code(status))
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

fn run_client(prefix: &Path, program: &str, args: &[String]) -> Result<ExitCode, Error> {
    let no_url = || Error::check("the last argument is to be http://HOST:PORT/PATH");
    let (url, args) = args.split_last().ok_or_else(no_url)?;
    let rest = url.strip_prefix("http://").ok_or_else(no_url)?;
    let (server, path) = rest.split_once('/').unwrap_or((rest, ""));
    let relay = Relay::start(server, Some(&prefix.with_extension(std::process::id().to_string())))?;
    let url = format!("http://{}/{path}", relay.address);
    let status = Command::new(program).args(args).arg(url).status();
    let status = status.map_err(|why| Error::Spawn { program: program.to_string(), why: why.to_string() })?;
    Ok(exit_code(status))
}

fn files(prefix: &str) -> Result<(File, File), Error> {
    let create = |side: &str| {
        let path = format!("{prefix}.{side}");
        File::create(&path).map_err(Error::file(path))
    };
    Ok((create("client")?, create("server")?))
}

/// Copies as it comes, to the file first: a peer that is killed by what it reads must not be ahead of the record.
fn copy(from: &mut impl Read, to: &mut impl Write, file: &mut impl Write) {
    let mut bytes = [0; 1 << 14];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let passed =
            file.write_all(&bytes[..read]).and_then(|()| to.write_all(&bytes[..read])).and_then(|()| to.flush());
        if passed.is_err() {
            break;
        }
    }
}

/// Listens in front of a server until it is dropped.
pub(crate) struct Relay {
    /// Where it listens: `127.0.0.1:PORT`.
    pub(crate) address: String,
    server: Arc<Mutex<String>>,
    over: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Relay {
    /// The files of the n-th connection begin with `PREFIX-n`; without a prefix nothing is written.
    pub(crate) fn start(server: &str, prefix: Option<&Path>) -> Result<Self, Error> {
        let failed = |why: io::Error| Error::check(format!("no relay: {why}"));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        let over = Arc::new(AtomicBool::new(false));
        let server = Arc::new(Mutex::new(server.to_string()));
        let (is_over, current, prefix) = (Arc::clone(&over), Arc::clone(&server), prefix.map(Path::to_path_buf));
        let accepting = thread::spawn(move || {
            let mut pairs = Vec::new();
            for n in 0.. {
                let Ok((client, _)) = listener.accept() else { break };
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
                let server = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let prefix = prefix.as_ref().map(|prefix| format!("{}-{n}.http", prefix.display()));
                pairs.push(thread::spawn(move || {
                    // A server that is gone is a connection that ends at once.
                    let _gone = pass(&client, &server, prefix.as_deref());
                    let _closed = client.shutdown(Shutdown::Both);
                }));
            }
            // The records are whole once this has ended.
            pairs.into_iter().for_each(|pair| drop(pair.join()));
        });
        Ok(Self { address, server, over, accepting: Some(accepting) })
    }

    /// From now on connections lead to this server.
    pub(crate) fn lead_to(&self, server: &str) {
        *self.server.lock().unwrap_or_else(PoisonError::into_inner) = server.to_string();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _woken = TcpStream::connect(&self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ended = accepting.join();
        }
    }
}

/// Passes both directions on until one of them has ended; the end of either side is the end of both.
fn pass(client: &TcpStream, server: &str, prefix: Option<&str>) -> Result<(), Error> {
    let failed = |why: io::Error| Error::check(why.to_string());
    let (mut asked, mut said): (Box<dyn Write + Send>, Box<dyn Write>) = match prefix {
        None => (Box::new(io::sink()), Box::new(io::sink())),
        Some(prefix) => files(prefix).map(|(asked, said)| (Box::new(asked) as _, Box::new(said) as _))?,
    };
    let server = TcpStream::connect(server).map_err(failed)?;
    client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).map_err(failed)?;
    thread::scope(|scope| {
        scope.spawn(|| {
            copy(&mut &*client, &mut &server, &mut asked);
            let _closed = server.shutdown(Shutdown::Both);
        });
        copy(&mut &server, &mut &*client, &mut said);
        let _closed = client.shutdown(Shutdown::Both);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::Relay;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_relay_passes_on_and_keeps_what_it_saw() {
        let folder = std::env::temp_dir().join(format!("steady-relay-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(&listener.local_addr().unwrap().to_string(), Some(&folder.join("r"))).unwrap();
        let mut client = TcpStream::connect(&relay.address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(b"ask").unwrap();
        let mut asked = [0; 3];
        server.read_exact(&mut asked).unwrap();
        server.write_all(b"say").unwrap();
        drop(server);
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        drop((client, relay));
        let kept = |side: &str| std::fs::read_to_string(folder.join(format!("r-0.http.{side}"))).unwrap();
        assert_eq!((asked, said.as_str()), (*b"ask", "say"));
        assert_eq!((kept("client"), kept("server")), ("ask".to_string(), "say".to_string()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_relay_is_led_to_the_next_server() {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let second = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Relay::start(&first.local_addr().unwrap().to_string(), None).unwrap();
        let client = TcpStream::connect(&relay.address).unwrap();
        drop(first.accept().unwrap());
        assert_eq!((&client).read(&mut [0]).unwrap(), 0, "the end of a server is the end of its client");
        relay.lead_to(&second.local_addr().unwrap().to_string());
        let client = TcpStream::connect(&relay.address).unwrap();
        (&client).write_all(b"?").unwrap();
        let mut asked = [0; 1];
        second.accept().unwrap().0.read_exact(&mut asked).unwrap();
        assert_eq!(asked, *b"?");
    }
}
