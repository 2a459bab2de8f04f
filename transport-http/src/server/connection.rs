//! One connection: hyper, a watch for the hang-up that it does not see, and the time that a client may take.
//!
//! A client that ends its input while a response is pending has hung up, whether or not it still reads: on this transport
//! that is how a request is cancelled, and the two cannot be told apart before it is too late. An answer that a handler
//! gives at once is sent all the same.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use steady_core::kernel::Service;
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::body::Body;
use super::config::ServeConfig;
use super::handed::{End, Stream};
use super::refuse::Refused;
use super::respond::respond;
use super::service::{HttpService, Responding};
use super::unread::{linger, refuse_unread};
use super::watch::Watch;
use super::wire::{Look, Wait, Wire};
use crate::clock::later;

/// How often a client is looked at that has sent more than is read ahead.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Serves one connection until it ends, its client is gone, or its time is up. Once the service shuts down it ends with
/// the response that is pending.
pub(super) async fn serve_connection<S: Service>(stream: TcpStream, service: HttpService<S>, config: Arc<ServeConfig>) {
    let wire = Wire::new(stream);
    #[cfg(feature = "http2")]
    match is_http2(&wire, &config).await {
        // In a box of its own: connections of HTTP/1.1 need not be as large.
        Some(true) => return Box::pin(super::http2::serve(wire, service, config)).await,
        Some(false) => {}
        None => return,
    }
    let _cleared = Cleared(wire.clone());
    let mut socket = Socket::new(wire.clone(), service, Arc::clone(&config));
    let mut draining = pin!(config.http.server.shutdown.draining());
    let mut alarm = pin!(sleep(config.head_timeout));
    let mut look_at = None;
    let is_unread = poll_fn(|cx| {
        if !socket.is_closing && draining.as_mut().poll(cx).is_ready() {
            socket.close();
        }
        loop {
            if let Poll::Ready(is_unread) = socket.poll(cx) {
                return Poll::Ready(is_unread);
            }
            match wire.look(cx) {
                Look::Gone => return Poll::Ready(false),
                Look::Wanted => continue,
                Look::There => look_at = None,
                Look::Full => {
                    look_at.get_or_insert_with(|| Instant::now() + LOOK_AGAIN);
                }
            }
            let now = Instant::now();
            let up_at = patience_ends(&wire, &config, now);
            let Some(due) = [up_at, look_at].into_iter().flatten().min() else { return Poll::Pending };
            if up_at.is_some_and(|at| at <= now) {
                return Poll::Ready(false);
            }
            if due <= now {
                look_at = None;
                continue;
            }
            // The alarm is moved only when it would ring too late; when it rings too early, it is set again.
            if due < alarm.deadline() || alarm.is_elapsed() {
                alarm.as_mut().reset(due);
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await;
    if is_unread {
        Box::pin(linger(&wire)).await;
    }
}

/// The socket, and who has it.
struct Socket<S: Service> {
    served: Served<S>,
    wire: Wire,
    service: HttpService<S>,
    config: Arc<ServeConfig>,
    is_closing: bool,
}

enum Served<S: Service> {
    /// hyper, for requests and for answers in one piece. In a box, which a stream does without.
    Hyper(Box<http1::Connection<TokioIo<Wire>, Dispatch<S>>>),
    /// A stream, without hyper.
    Stream(Stream),
}

impl<S: Service> Socket<S> {
    fn new(wire: Wire, service: HttpService<S>, config: Arc<ServeConfig>) -> Self {
        Self { served: Self::hyper(&wire, &service, &config), wire, service, config, is_closing: false }
    }

    /// hyper, on a connection that is between two requests.
    fn hyper(wire: &Wire, service: &HttpService<S>, config: &Arc<ServeConfig>) -> Served<S> {
        let dispatch = Dispatch { service: service.clone(), config: Arc::clone(config), wire: wire.clone() };
        let mut builder = http1::Builder::new();
        // The end of the input, and the time of heads, are watched here.
        builder.half_close(true).header_read_timeout(None).max_buf_size(config.max_head.max(8 << 10));
        Served::Hyper(Box::new(builder.serve_connection(TokioIo::new(wire.clone()), dispatch)))
    }

    /// The connection ends with the response that is pending.
    fn close(&mut self) {
        self.is_closing = true;
        if let Served::Hyper(connection) = &mut self.served {
            Pin::new(&mut **connection).graceful_shutdown();
        }
    }

    /// Serves until the connection is over; whether something may have come that nobody read. What hyper, or a stream, could
    /// not send or read is the client's affair: it is gone.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        loop {
            match &mut self.served {
                Served::Hyper(connection) => {
                    if let Poll::Ready(end) = Pin::new(&mut **connection).poll(cx) {
                        // An error: it was no request, as hyper has told the client.
                        return Poll::Ready(end.is_err() || self.wire.is_unread());
                    }
                    let Some(handed) = self.wire.take_handed() else { return Poll::Pending };
                    let stream = Served::Stream(Stream::new(handed));
                    if let Served::Hyper(connection) = mem::replace(&mut self.served, stream) {
                        self.wire.unread(&connection.into_parts().read_buf);
                    }
                }
                Served::Stream(stream) => match ready!(stream.poll(cx, &mut self.wire)) {
                    End::Reusable if !self.is_closing => {
                        self.served = Self::hyper(&self.wire, &self.service, &self.config);
                    }
                    End::Reusable | End::Close => {
                        let _sent_or_gone = Pin::new(&mut self.wire).poll_shutdown(cx);
                        return Poll::Ready(false);
                    }
                    End::Gone => return Poll::Ready(false),
                },
            }
        }
    }
}

/// A stream that was left for a connection that has ended is dropped with it.
struct Cleared(Wire);

impl Drop for Cleared {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Whether the client speaks HTTP/2; `None`: its time, or the server's, is up before that is
/// clear.
#[cfg(feature = "http2")]
async fn is_http2(wire: &Wire, config: &ServeConfig) -> Option<bool> {
    let mut alarm = None;
    let mut draining = pin!(config.http.server.shutdown.draining());
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(is_http2) = wire.poll_is_http2(cx) {
                return Poll::Ready(Some(is_http2));
            }
            if draining.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            let now = Instant::now();
            let Some(at) = patience_ends(wire, config, now).filter(|at| now < *at) else { return Poll::Ready(None) };
            let alarm = alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
            if alarm.deadline() != at {
                alarm.as_mut().reset(at);
            }
            if alarm.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// When the client's time is up, if nothing happens.
fn patience_ends(wire: &Wire, config: &ServeConfig, now: Instant) -> Option<Instant> {
    let (wait, since) = wire.waits(now);
    let patience = match wait {
        Wait::Stalled => config.write_stall,
        Wait::Head => config.head_timeout,
        Wait::Idle => config.idle_timeout,
        Wait::Request => return None,
    };
    Some(later(since, patience))
}

/// What hyper calls.
struct Dispatch<S> {
    service: HttpService<S>,
    config: Arc<ServeConfig>,
    wire: Wire,
}

impl<S: Service> hyper::service::Service<Request<Incoming>> for Dispatch<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Responding;

    fn call(&self, request: Request<Incoming>) -> Responding {
        answer(&self.service, &self.config, request, Watch::new(self.wire.clone()))
    }
}

/// Answers a request, or says that nothing is served at its path.
pub(super) fn answer<S: Service>(
    service: &HttpService<S>,
    config: &ServeConfig,
    request: Request<Incoming>,
    watch: Watch,
) -> Responding {
    if request.uri().path() != &*config.path {
        let (parts, body) = request.into_parts();
        return refuse_unread(&service.shared.limits, Refused::path(), &parts, body, Some(watch));
    }
    respond(Arc::clone(&service.shared), request, Some(watch))
}
