//! The task of one client: it starts, says when the link carries calls, and ends.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use steady_core::kernel::client::{CallError, Driver, LinkLoss, Turn};
use steady_core::kernel::{EraLink, Link};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{oneshot, watch};

use super::Status;
use crate::line::LineLink;

/// Why a client could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The program could not be started.
    #[error("the server {program:?} cannot be started: {error}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// No request can be built with the settings.
    #[error("the settings of the client cannot be used: {0}")]
    Settings(CallError),
    /// The link ended before the server had answered.
    #[error("the server did not come up: {0}")]
    Lost(LinkLoss),
}

pub(super) type Ready = Option<oneshot::Sender<Result<(), LinkLoss>>>;

/// Tells the one who waits for the start that the link carries calls.
fn tell_ready<L: Link>(driver: &Driver<L>, ready: &mut Ready) {
    if driver.is_up()
        && let Some(ready) = ready.take()
    {
        let _nobody_waits = ready.send(Ok(()));
    }
}

/// Polls the loop, and tells the one who waits for the start.
pub(super) fn poll_driver<L: Link>(driver: &mut Driver<L>, ready: &mut Ready, cx: &mut Context<'_>) -> Poll<Turn> {
    let turn = driver.poll(cx);
    tell_ready(driver, ready);
    turn
}

/// Waits until the first link carries calls.
pub(super) async fn started(ready: oneshot::Receiver<Result<(), LinkLoss>>) -> Result<(), StartError> {
    match ready.await {
        Ok(started) => started.map_err(StartError::Lost),
        Err(_) => Err(StartError::Lost(LinkLoss { what: "its task is gone".to_owned(), ..LinkLoss::default() })),
    }
}

/// Runs a client that has one link.
pub(super) async fn attach<R, W>(
    mut driver: Driver<EraLink<LineLink<R, W>>>,
    status: watch::Sender<Status>,
) -> Result<(), StartError>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (ready, watched) = oneshot::channel();
    drop(tokio::spawn(async move {
        let mut ready = Some(ready);
        let what = match poll_fn(|cx| poll_driver(&mut driver, &mut ready, cx)).await {
            Turn::Done => "the client was closed".to_owned(),
            Turn::Lost(end) => end.to_string(),
        };
        let loss = LinkLoss { what: what.clone(), stderr: String::new(), generation: driver.generation() };
        driver.detach(what, String::new(), false);
        if let Some(ready) = ready.take() {
            let _nobody_waits = ready.send(Err(loss.clone()));
        }
        status.send_modify(|status| {
            status.last_loss = Some(Arc::new(loss));
            status.ended = true;
        });
    }));
    started(watched).await
}
