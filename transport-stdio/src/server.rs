//! Serving: over the process's own standard streams, or over any pair of streams.

use std::io::Write;
use std::process::ExitCode;

use steady_core::kernel::{Connection, ConnectionError, ServerConfig, ServerCounters, Service};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::line::LineLink;
use crate::ports::tokio_ports;
use crate::stream;

/// Settings of a stdio server.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct StdioConfig {
    /// Longest line that is accepted, in bytes. A longer one costs itself only. Default 16 MiB.
    pub max_message: usize,
    /// Limits of the connection.
    pub server: ServerConfig,
    /// Whether what the process prints to standard output goes to standard error, while standard output is served; see
    /// `StdoutGuard`. Unix only. Default on: nothing but messages may be there (rule S1), and a library or a child process
    /// that prints is more common than one that knows. Descriptor 0 is the null device meanwhile, so that a child that reads
    /// it takes no message away.
    pub guard_stdout: bool,
    /// Which signals end [`run_stdio_with`] in order. Unix only. Default [`Signals::Terminate`].
    pub signals: Signals,
}

/// Signals that end a server in order: the first lets requests finish up to
/// [`ServerConfig::shutdown_limit`], the second ends them at once. A handler that blocks the thread of the connection is
/// given up when the limits are over, and the process exits with 1. A signal that comes after [`run_stdio_with`] has
/// returned ends the process at once, with 143; one that came before lets the program finish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signals {
    /// None: the process is the program's own affair.
    Ignore,
    /// SIGTERM. A Ctrl-C goes to the host and to the server alike, and the host closes the input when it is ready.
    #[default]
    Terminate,
    /// SIGTERM and SIGINT, for a server that is used from a shell.
    TerminateAndInterrupt,
}

impl Default for StdioConfig {
    fn default() -> Self {
        Self { max_message: 16 << 20, server: ServerConfig::default(), guard_stdout: true, signals: Signals::default() }
    }
}

/// Why serving ended before the client closed the link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StdioError {
    /// The standard streams could not be opened.
    #[error("standard input or output cannot be used: {0}")]
    Streams(#[source] std::io::Error),
    /// The link failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

/// Serves until the end of `reader`, and says what was counted. Needs a tokio runtime with time enabled.
///
/// # Errors
/// [`StdioError::Connection`] if the link breaks, or the client stops reading for the write-stall limit.
pub async fn serve<R, W>(
    service: impl Service,
    reader: R,
    writer: W,
    config: StdioConfig,
) -> Result<ServerCounters, StdioError>
where
    R: AsyncRead + Unpin + Send,
    W: AsyncWrite + Unpin + Send,
{
    let link = LineLink::new(reader, writer, config.max_message);
    Ok(Connection::new(service, link, tokio_ports(), config.server).await?)
}

/// Serves over the process's standard input and output until the end of input. Needs a tokio runtime with IO and time
/// enabled. Nothing else may write to standard output meanwhile.
///
/// # Errors
/// [`StdioError`].
pub async fn serve_stdio(service: impl Service, config: StdioConfig) -> Result<ServerCounters, StdioError> {
    let guard = Guard::install(&config)?;
    serve_guarded(service, &guard, config).await
}

/// The standard streams, kept aside or not.
#[derive(Debug, Default)]
struct Guard {
    #[cfg(unix)]
    stdin: Option<crate::guard::StdinGuard>,
    #[cfg(unix)]
    stdout: Option<crate::StdoutGuard>,
}

impl Guard {
    #[cfg_attr(not(unix), expect(unused_variables, reason = "there is no guard here"))]
    fn install(config: &StdioConfig) -> Result<Self, StdioError> {
        #[cfg(unix)]
        if config.guard_stdout {
            let stdout = crate::StdoutGuard::install().map_err(StdioError::Streams)?;
            let stdin = crate::guard::StdinGuard::install().map_err(StdioError::Streams)?;
            return Ok(Self { stdin: Some(stdin), stdout: Some(stdout) });
        }
        Ok(Self::default())
    }
}

#[cfg_attr(not(unix), expect(unused_variables, reason = "there is no guard here"))]
async fn serve_guarded(
    service: impl Service,
    guard: &Guard,
    config: StdioConfig,
) -> Result<ServerCounters, StdioError> {
    #[cfg(unix)]
    let (reader, writer) =
        (stream::standard_input(guard.stdin.as_ref()), stream::standard_output(guard.stdout.as_ref()));
    #[cfg(not(unix))]
    let (reader, writer) = (stream::standard_input(), stream::standard_output());
    serve(service, reader.map_err(StdioError::Streams)?, writer.map_err(StdioError::Streams)?, config).await
}

/// Serves over standard input and output with the default settings, then says how the process should exit.
///
/// It owns the runtime, so that the process can end although a handler ignores its cancellation or blocks: return its
/// value from `main`.
pub fn run_stdio(service: impl Service) -> ExitCode {
    run_stdio_with(service, StdioConfig::default())
}

/// Like [`run_stdio`], with these settings.
pub fn run_stdio_with(service: impl Service, config: StdioConfig) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("no runtime: {error}")),
    };
    #[cfg(unix)]
    let _serving = match crate::signals::watch(config.signals, &config.server) {
        Ok(serving) => serving,
        Err(error) => return failed(&format!("signals cannot be caught: {error}")),
    };
    let guard = match Guard::install(&config) {
        Ok(guard) => guard,
        Err(error) => return failed(&error.to_string()),
    };
    let served = runtime.block_on(serve_guarded(service, &guard, config));
    // A handler that still runs must not print on the channel, now or later: the process ends with it moved.
    #[cfg(unix)]
    std::mem::forget(guard);
    // Does not wait for blocking handlers: the process ends with `main`.
    runtime.shutdown_background();
    match served {
        Ok(_counters) => ExitCode::SUCCESS,
        Err(error) => failed(&error.to_string()),
    }
}

/// Standard error is where a stdio server may speak to people (rule S1), if somebody still listens there.
fn failed(why: &str) -> ExitCode {
    let _nobody_listens = writeln!(std::io::stderr(), "error: {why}");
    ExitCode::FAILURE
}
