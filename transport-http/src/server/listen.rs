//! A server without a framework: it accepts connections, and ends them gracefully.

use std::future::{Future, pending, poll_fn};
use std::io::{self, Write as _};
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use steady_core::kernel::{ServerConfig, Service, Shutdown};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::config::ServeConfig;
use super::connection::serve_connection;
use super::service::HttpService;

/// Connections that may wait to be accepted. The system may have a lower limit.
const QUEUE: u32 = 4096;
/// How long accepting pauses after it failed for want of descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// A server of one endpoint, on sockets of its own.
///
/// ```no_run
/// use steady_http::{ServeConfig, Server, Tools};
///
/// # async fn main_() -> std::io::Result<()> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
/// let config = ServeConfig::default();
/// let shutdown = config.http.server.shutdown.clone(); // shutdown.drain(): listens end with their result, answers get time
/// Server::new(Tools::new("empty", "1.0.0"), config).serve(listener).await
/// # }
/// ```
pub struct Server<S> {
    service: HttpService<S>,
    config: Arc<ServeConfig>,
}

impl<S: Service> Server<S> {
    /// A server of `service` under these settings.
    #[must_use]
    pub fn new(service: impl Into<Arc<S>>, config: ServeConfig) -> Self {
        Self { service: HttpService::new(service, config.http.clone()), config: Arc::new(config) }
    }

    /// The service inside, which counts.
    #[must_use]
    pub fn service(&self) -> HttpService<S> {
        self.service.clone()
    }

    /// Serves until `http.server.shutdown` is thrown, as [`serve_until`](Self::serve_until) does. Dropping the future cancels
    /// what still runs, and throws `http.server.shutdown` ([`cut`](steady_core::kernel::Shutdown::cut)): requests of sessions
    /// outlive their connections and end by it. Needs a tokio runtime with IO and time enabled.
    ///
    /// # Errors
    /// The listener has no address.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        self.serve_until(listener, pending()).await
    }

    /// Serves until `stop` resolves or somebody throws `http.server.shutdown`, which `stop` throws too: no connection is
    /// accepted any more, listens end with their result (rule L4), pending answers have `http.server.shutdown_limit` to
    /// leave, and what still runs then is answered with one error (rule C8), for which there is `http.server.flush`.
    ///
    /// # Errors
    /// The listener has no address.
    pub async fn serve_until(self, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
        let Self { service, config } = self;
        warn_if_open(&config, listener.local_addr()?);
        let ServerConfig { shutdown, shutdown_limit, flush, .. } = &config.http.server;
        let most = u32::try_from(config.max_connections).unwrap_or(u32::MAX).max(1);
        let places = Arc::new(Semaphore::new(most as usize));
        // The last of the connections throws it: none may still be writing what the cut makes of its requests.
        let cut = Arc::new(Cut(shutdown.clone()));
        // Connections are dropped with it: what they serve is cancelled.
        let mut connections = tokio::task::JoinSet::new();
        let (mut stop, mut draining) = (pin!(stop), pin!(shutdown.draining()));
        loop {
            let accepted = {
                let mut accept = pin!(accept(&listener, &places, config.unreachable_after));
                poll_fn(|cx| {
                    while let Poll::Ready(Some(_ended)) = connections.poll_join_next(cx) {}
                    if stop.as_mut().poll(cx).is_ready() || draining.as_mut().poll(cx).is_ready() {
                        return Poll::Ready(None);
                    }
                    accept.as_mut().poll(cx).map(Some)
                })
                .await
            };
            let Some((stream, place)) = accepted else { break };
            let served = serve_connection(stream, service.clone(), Arc::clone(&config));
            let cut = Arc::clone(&cut);
            connections.spawn(async move {
                served.await;
                drop((place, cut));
            });
        }
        drop(listener);
        shutdown.drain();
        let mut ended = pin!(async {
            while connections.join_next().await.is_some() {}
            service.shared.limits.no_handler().await;
        });
        let mut over = pin!(async {
            // Each exchange answers with its error at the same time.
            let _ended_early = timeout(*shutdown_limit, shutdown.cutting()).await;
            sleep(*flush).await;
        });
        poll_fn(|cx| match ended.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => over.as_mut().poll(cx),
        })
        .await;
        Ok(())
    }

    /// Serves until SIGTERM or SIGINT, then shuts down as [`serve_until`](Self::serve_until) does; the second signal ends what
    /// still runs at once. The process belongs to this server: if handlers keep its threads busy beyond the limits, it exits
    /// with 1, and a signal that comes after this has returned ends it. On systems other than Unix no signal is caught.
    ///
    /// # Errors
    /// The listener has no address, or signals cannot be caught.
    pub async fn serve_until_signal(self, listener: TcpListener) -> io::Result<()> {
        #[cfg(unix)]
        let _serving = super::signals::watch(&self.config.http.server)?;
        self.serve(listener).await
    }
}

/// Whatever is left when serving is over hears that it is.
struct Cut(Shutdown);

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.cut();
    }
}

/// The next connection and its place among all.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
    unreachable_after: Duration,
) -> (TcpStream, tokio::sync::OwnedSemaphorePermit) {
    loop {
        let Ok(place) = Arc::clone(places).acquire_owned().await else { pending().await };
        match listener.accept().await {
            Ok((stream, _)) => {
                // Small messages must not wait for each other. A connection that refuses is gone already.
                let _gone = stream.set_nodelay(true).and_then(|()| notice_silence(&stream, unreachable_after));
                return (stream, place);
            }
            Err(error) if is_of_the_connection(&error) => {}
            // No descriptor is left, or no memory: the next attempt would fail at once.
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// Has the system look after a client whose machine may vanish without a word.
#[cfg(target_os = "linux")]
fn notice_silence(stream: &TcpStream, after: Duration) -> io::Result<()> {
    if after.is_zero() {
        return Ok(());
    }
    let socket = socket2::SockRef::from(stream);
    // While nothing is sent; the timeout counts for the probes too. The system knows whole seconds.
    let first = (after / 2).max(Duration::from_secs(1));
    let next = (after / 8).max(Duration::from_secs(1));
    socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(first).with_interval(next))?;
    socket.set_tcp_user_timeout(Some(after))
}

#[cfg(not(target_os = "linux"))]
const fn notice_silence(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
}

/// Whether it is the connection that failed, and not the listener.
fn is_of_the_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Beyond loopback everybody can call, and without names all callers share the keys and tasks of one.
fn warn_if_open(config: &ServeConfig, address: SocketAddr) {
    let named = config.http.authenticate.is_some() || config.http.server.principal.is_some();
    if !address.ip().is_loopback() && !named {
        config.warn.say(&format!(
            "{address} is reachable by others and no caller is authenticated: all share one scope of idempotency keys \
             and tasks; set HttpConfig::authenticate"
        ));
    }
}

/// Serves at `address`, path `/mcp`, with the default settings, until SIGTERM or SIGINT; then it shuts down gracefully and
/// says how the process should exit.
///
/// It owns the runtime: return its value from `main`. Where it serves is said in a line on standard error.
pub fn run_http<S: Service>(service: impl Into<Arc<S>>, address: impl ToSocketAddrs) -> ExitCode {
    run_http_with(service, address, ServeConfig::default())
}

/// Like [`run_http`], with these settings.
pub fn run_http_with<S: Service>(
    service: impl Into<Arc<S>>,
    address: impl ToSocketAddrs,
    config: ServeConfig,
) -> ExitCode {
    match run(Server::new(service, config), address) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _nobody_listens = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run<S: Service>(server: Server<S>, address: impl ToSocketAddrs) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_io().enable_time().build()?;
    // Before it says that it serves: whoever reads that may send a signal.
    #[cfg(unix)]
    let _serving = match server.config.signals {
        true => Some(super::signals::watch(&server.config.http.server)?),
        false => None,
    };
    let served = runtime.block_on(async {
        let listener = bind(address)?;
        let (at, path) = (listener.local_addr()?, &server.config.path);
        let _nobody_listens = writeln!(io::stderr(), "serving http://{at}{path}");
        server.serve(listener).await
    });
    // Does not wait for handlers that block: the process ends with `main`.
    runtime.shutdown_background();
    served
}

/// Listens at the first of these addresses that can be had, with a queue that a burst of clients does not overflow: one that does costs them a second.
///
/// # Errors
/// None of them can be had.
pub fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address to listen at");
    for address in address.to_socket_addrs()? {
        let bound = || {
            let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.set_reuseaddr(cfg!(unix))?;
            socket.bind(address)?;
            socket.listen(QUEUE)
        };
        match bound() {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_looks_after_an_accepted_client() {
        let listener = bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let places = Arc::new(Semaphore::new(2));
        for (after, expected) in [(Duration::from_secs(8), Some((8, 4, 1))), (Duration::ZERO, None)] {
            let _client = TcpStream::connect(address).await.expect("it accepts");
            let (stream, _place) = accept(&listener, &places, after).await;
            let socket = socket2::SockRef::from(&stream);
            assert_eq!(socket.keepalive().expect("known"), expected.is_some());
            let Some((timeout, first, next)) = expected else { continue };
            assert_eq!(socket.tcp_user_timeout().expect("known"), Some(Duration::from_secs(timeout)));
            assert_eq!(socket.tcp_keepalive_time().expect("known"), Duration::from_secs(first));
            assert_eq!(socket.tcp_keepalive_interval().expect("known"), Duration::from_secs(next));
        }
    }
}
