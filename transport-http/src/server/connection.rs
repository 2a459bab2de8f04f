//! One connection: hyper, a watch for the hang-up that it does not see, and the time that a client may take.
//!
//! A client that ends its input while a response is pending has hung up, whether or not it still reads: on this transport
//! that is how a request is cancelled, and the two cannot be told apart before it is too late. An answer that a handler
//! gives at once is sent all the same.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use steady_core::kernel::Service;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};

use super::body::Body;
use super::config::ServeConfig;
use super::limits::bump;
use super::refuse::Refused;
use super::respond::respond;
use super::service::{HttpService, Responding};
use super::wire::{Look, Wait, Watch, Wire};

/// How often a client is looked at that has sent more than is read ahead.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Serves one connection until it ends, its client is gone, or its time is up. Once the service shuts down it ends with
/// the response that is pending.
pub(super) async fn serve_connection<S: Service>(stream: TcpStream, service: HttpService<S>, config: Arc<ServeConfig>) {
    let wire = Wire::new(stream);
    let dispatch = Dispatch { service, config: Arc::clone(&config), wire: wire.clone() };
    let mut builder = http1::Builder::new();
    // The end of the input, and the time of heads, are watched here.
    builder.half_close(true).header_read_timeout(None).max_buf_size(config.max_head.max(8 << 10));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(wire.clone()), dispatch));
    let mut draining = pin!(config.http.server.shutdown.draining());
    let mut is_closing = false;
    let mut alarm = pin!(sleep_until(Instant::now() + config.head_timeout));
    let mut look_at = None;
    poll_fn(|cx| {
        if !is_closing && draining.as_mut().poll(cx).is_ready() {
            is_closing = true;
            connection.as_mut().graceful_shutdown();
        }
        loop {
            // What hyper could not send or read is the client's affair: it is gone.
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            match wire.look(cx) {
                Look::Gone => return Poll::Ready(()),
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
                return Poll::Ready(());
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
    since.checked_add(patience)
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
        let watch = Watch::new(self.wire.clone());
        if request.uri().path() != &*self.config.path {
            bump(&self.service.shared.limits.counts.refused);
            return Box::pin(std::future::ready(Ok(Refused::path().into_response())));
        }
        respond(Arc::clone(&self.service.shared), request, Some(watch))
    }
}
