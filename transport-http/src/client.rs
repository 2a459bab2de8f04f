//! The client: every request is a POST of its own, and its response stream is what carries progress, answer and
//! cancellation.
//!
//! ```no_run
//! # async fn demo() -> Result<(), Box<dyn std::error::Error>> {
//! use steady_http::client::{Client, Config, Request};
//!
//! let client = Client::connect("http://127.0.0.1:8080/mcp", Config::default()).await?;
//! let mut call = client.call(Request::raw("tools/call", r#"{"name":"count","arguments":{"to":5}}"#));
//! while let Some(report) = call.progress().await {
//!     eprintln!("{} of {:?}", report.progress, report.total);
//! }
//! println!("{}", call.tool_result().await?.text());
//! # Ok(())
//! # }
//! ```
//!
//! | what happens | what follows |
//! |---|---|
//! | a call is dropped, or cancelled | it ends here at once, its response stream is closed, before headers too; nothing is POSTed (rule C1) |
//! | no progress for 30 s, or 5 minutes in all | the same; comments reset neither clock (rules T1 and T3) |
//! | a stream ends without its answer | the outcome is unknown, at once; sent again only as the call's contract allows (rule H7) |
//! | the connection could not be made, or a forward proxy refused the tunnel | the call was never sent |
//! | a forward proxy is named by [`Proxy`], by default the environment's | it is asked; for loopback only if it was named for this client |
//! | 401 | the hook for headers is asked again, once |
//! | -32020 for a tool | `tools/list` is read afresh, and the call is sent once more |
//! | -32022 that names the revision spoken here | the call is sent once more |
//! | another status without a message of the protocol | 408, 425, 429 and 5xx: unknown, as nothing in them proves that it did not run; the rest: refused |
//!
//! A server that speaks only 2025-11-25, 2025-06-18 or 2025-03-26 is spoken to in its own revision, unless
//! [`ClientConfig::eras`] forbids it. What differs there:
//!
//! | what happens | what follows |
//! |---|---|
//! | `server/discover` is answered by a 4xx that is no error of the modern revision | `initialize`; the era holds as long as the client |
//! | a call is dropped, cancelled, or out of time | `notifications/cancelled` is POSTed: a hang-up says nothing to such a server |
//! | the server asks for a sample, a form, the roots | the call's own callback is asked, as for a modern server |
//! | a request of the session is answered 404, which names the session | one `initialize` for all calls; the one that was answered so never ran, and is sent again |
//! | a request is answered 404 without a word of sessions | a `ping` in the session: if that is answered so too, the same, and DELETE of the old one; otherwise this one call is refused |
//! | the stream of notifications breaks, or the session is lost | it is opened again, and every listen is told what to refetch |
//! | the stream is refused with 401 or 403 five times in a row | every listen is told to refetch, once; it is asked for again with other headers of authorisation, or in another session |
//! | the client ends | DELETE of the session |
//!
//! A message on a stream that belongs to another request is counted as bad and goes nowhere: no answer, progress or
//! notice can reach a call by way of a foreign stream. An HTTP status and a redirect are never followed elsewhere.

mod answer;
mod config;
mod dial;
mod endpoint;
mod exchange;
mod idle;
mod link;
mod pool;
mod proxy;
mod schemas;
mod session;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tunnel;

use std::future::poll_fn;
use std::hash::{BuildHasher, Hasher};

use steady_core::backoff::Jitter;
use steady_core::kernel::EraLink;
use steady_core::kernel::client::{Driver, Turn};
use steady_core::subscription;
use tokio::sync::{oneshot, watch};

use endpoint::Endpoint;
use link::HttpLink;
use session::SessionSlot;

pub use crate::clock::Clock;
pub use config::{Authorize, Config, HeaderLines, Rejected};
pub use endpoint::{BadUrl, Traffic};
pub use proxy::{Proxy, ProxyServer};
pub use steady_core::kernel::client::{
    CallError, Called, Caller, Canceller, Change, Changes, ClientConfig, ClientStats, Discovered, Fresh, InputAsked,
    Item, LinkLoss, ListenEvent, Listener, Notice, Pending, Raw, Report, Request, TaskError, TaskHandle, TaskOptions,
    TaskView, ToolInfo, ToolResult,
};
pub use steady_core::mrtr::Kind;
pub use steady_core::subscription::{End, Filter, Refetch};

/// A client of one endpoint. Clones share it; it derefs to the [`Caller`] that starts calls.
#[derive(Clone, Debug)]
pub struct Client {
    caller: Caller,
    endpoint: std::sync::Arc<Endpoint>,
    ended: watch::Receiver<bool>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address cannot be used.
    #[error(transparent)]
    Url(#[from] BadUrl),
    /// No request can be built with the settings.
    #[error("the settings of the client cannot be used: {0}")]
    Settings(CallError),
    /// The server did not answer `server/discover` as it must (rule M8).
    #[error("the server did not come up: {0}")]
    Lost(LinkLoss),
}

impl Client {
    /// A client of the endpoint at `url`, which is asked for `server/discover` first unless
    /// [`ClientConfig::probe`] is off. Needs a tokio runtime with IO and time enabled.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub async fn connect(url: &str, config: Config) -> Result<Self, ConnectError> {
        let (calls, timer, eras) = (config.calls.clone(), config.clock.timer(), config.calls.eras);
        let endpoint = std::sync::Arc::new(Endpoint::new(url, config)?);
        let (mut driver, caller) = Driver::new(calls, timer, jitter()).map_err(ConnectError::Settings)?;
        let session = SessionSlot::default();
        let link = HttpLink::new(std::sync::Arc::clone(&endpoint), SessionSlot::clone(&session));
        driver.attach(EraLink::over_streams(link, eras));
        let (over, ended) = watch::channel(false);
        let (ready, started) = oneshot::channel();
        drop(tokio::spawn(drive(driver, session, ready, over)));
        match started.await {
            Ok(Ok(())) => Ok(Self { caller, endpoint, ended }),
            Ok(Err(loss)) => Err(ConnectError::Lost(loss)),
            Err(_) => Err(ConnectError::Lost(LinkLoss { what: "its task is gone".to_owned(), ..LinkLoss::default() })),
        }
    }

    /// Subscribes to what `filter` names. After a loss of its stream it is asked for again, and the reader is told what to
    /// refetch.
    ///
    /// # Errors
    /// [`CallError::Full`] or [`CallError::Closed`].
    pub fn listen(&self, filter: Filter) -> Result<Listener, CallError> {
        self.caller.listen(filter, subscription::Config::default(), jitter())
    }

    /// What went over the network.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        self.endpoint.traffic()
    }

    /// Ends the client: calls in flight are cancelled, later ones refused, all streams closed.
    pub async fn shutdown(&self) {
        self.caller.close();
        // Its task may be gone with its runtime.
        let mut ended = self.ended.clone();
        let _over_or_gone = ended.wait_for(|ended| *ended).await;
    }
}

impl std::ops::Deref for Client {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        &self.caller
    }
}

/// The task of a client: it says when calls go out, and runs until nobody uses the client.
async fn drive(
    mut driver: Driver<EraLink<HttpLink>>,
    session: SessionSlot,
    ready: oneshot::Sender<Result<(), LinkLoss>>,
    over: watch::Sender<bool>,
) {
    let mut ready = Some(ready);
    let turn = poll_fn(|cx| {
        let turn = driver.poll(cx);
        if driver.is_up()
            && let Some(ready) = ready.take()
        {
            let _nobody_waits = ready.send(Ok(()));
        }
        turn
    });
    let what = match turn.await {
        Turn::Done => "the client was closed".to_owned(),
        Turn::Lost(end) => end.to_string(),
    };
    // Streams are closed with the link.
    drop(driver.take_link());
    driver.detach(what.clone(), String::new(), false);
    if let Some(ready) = ready {
        let loss = LinkLoss { what, stderr: String::new(), generation: driver.generation() };
        let _nobody_waits = ready.send(Err(loss));
    }
    if let Some(session) = session.get() {
        session.end().await;
    }
    over.send_replace(true);
}

/// Picks that differ between processes and clients. The standard library seeds its hashers from the operating system.
fn jitter() -> Jitter {
    let bits = || std::hash::RandomState::new().build_hasher().finish();
    Jitter::random(((u128::from(bits()) << 64) | u128::from(bits())).to_le_bytes())
}
