//! Decides how relays and workers learn at once that there is something to do: by notifications on a connection of its own,
//! and by looking now and then if none comes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Socket;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::ledger::{PgLedger, parse};
use super::pool::{Connector, Heard};
use crate::error::LedgerError;

/// How long to wait before connecting again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often it is asked whether the connection is still there.
const PROBE: Duration = Duration::from_secs(15);

/// A connection that listens, and those who wait for what it hears. It connects again by itself, and then everybody looks.
pub struct PgWakes {
    messages: watch::Sender<u64>,
    tasks: watch::Sender<u64>,
    listening: JoinHandle<()>,
}

/// One who waits. It remembers what it has heard of, so nothing is missed between two waits.
pub struct PgWake(watch::Receiver<u64>);

impl PgLedger {
    /// Listens on a connection of its own for messages and tasks of all replicas. `config` is as for [`PgLedger::open`], but
    /// has to lead **directly to the server**: behind a pooler in transaction mode nobody hears anything.
    ///
    /// # Errors
    ///
    /// [`LedgerError::Unencrypted`], and [`LedgerError::Storage`] for a `config` that is none. A server that is not there
    /// is no error: who waits looks now and then anyhow.
    pub fn wakes(&self, config: &str) -> Result<PgWakes, LedgerError> {
        Ok(self.listen(Connector::plain(parse(config)?)?))
    }

    /// As [`PgLedger::wakes`], over TLS: see [`PgLedger::open_tls`].
    ///
    /// # Errors
    ///
    /// As [`PgLedger::wakes`].
    pub fn wakes_tls<T>(&self, config: &str, tls: T) -> Result<PgWakes, LedgerError>
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        Ok(self.listen(Connector::secured(parse(config)?, tls)))
    }

    fn listen(&self, connector: Connector) -> PgWakes {
        let (messages, tasks) = (watch::Sender::new(0), watch::Sender::new(0));
        let told = (messages.clone(), tasks.clone());
        let listening = self.inner.runtime.spawn(async move {
            loop {
                listen_once(&connector, &told).await;
                // Whatever was said meanwhile, nobody heard it.
                told.0.send_modify(|count| *count += 1);
                told.1.send_modify(|count| *count += 1);
                tokio::time::sleep(PAUSE).await;
            }
        });
        PgWakes { messages, tasks, listening }
    }
}

/// Until the connection is gone.
async fn listen_once(connector: &Connector, told: &(watch::Sender<u64>, watch::Sender<u64>)) {
    let (messages, tasks) = told.clone();
    let heard: Heard = Arc::new(move |channel| match channel {
        "ledger_outbox" => messages.send_modify(|count| *count += 1),
        "ledger_task" => tasks.send_modify(|count| *count += 1),
        _ => {}
    });
    let Ok((client, running)) = connector.connect(Some(heard)).await else { return };
    tokio::spawn(running);
    if client.batch_execute("LISTEN ledger_outbox; LISTEN ledger_task").await.is_err() {
        return;
    }
    // What came before the connection listened.
    told.0.send_modify(|count| *count += 1);
    told.1.send_modify(|count| *count += 1);
    loop {
        tokio::time::sleep(PROBE).await;
        // A connection whose other side is gone without a word does not answer, and may never say so.
        let answer = tokio::time::timeout(PROBE, client.batch_execute(""));
        if client.is_closed() || !matches!(answer.await, Ok(Ok(()))) {
            return;
        }
    }
}

impl PgWakes {
    /// Waits for messages of any target.
    #[must_use]
    pub fn messages(&self) -> PgWake {
        PgWake(self.messages.subscribe())
    }

    /// Waits for changes of tasks.
    #[must_use]
    pub fn tasks(&self) -> PgWake {
        PgWake(self.tasks.subscribe())
    }
}

impl PgWake {
    /// Returns once there may be something to do: at once if that was said since the last wait, and after `poll` whether
    /// anything was said or not, as pauses and leases end in silence.
    pub async fn wait(&mut self, poll: Duration) {
        if let Ok(Err(_)) = tokio::time::timeout(poll, self.0.changed()).await {
            // Nobody listens any more.
            tokio::time::sleep(poll).await;
        }
    }
}

impl Drop for PgWakes {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

impl fmt::Debug for PgWakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgWakes").finish_non_exhaustive()
    }
}

impl fmt::Debug for PgWake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgWake").finish_non_exhaustive()
    }
}
