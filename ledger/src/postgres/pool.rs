//! Decides how many connections there are, which of them are good enough, and who waits for one.

use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, NoTls, Socket};

use super::drive::Running;
use super::wire::{Wire, args};
use crate::error::LedgerError;

type Connected = Pin<Box<dyn Future<Output = Result<(Client, Running), tokio_postgres::Error>> + Send>>;

/// What is called with the channel of each notification.
pub(super) type Heard = Arc<dyn Fn(&str) + Send + Sync>;

/// How one connects, whatever secures the connection.
pub(super) struct Connector {
    connect: Box<dyn Fn(Option<Heard>) -> Connected + Send + Sync>,
}

impl Connector {
    /// Without encryption: see [`PgLedger::open`](crate::PgLedger::open) for where that is refused.
    pub(super) fn plain(config: Config) -> Result<Self, LedgerError> {
        let is_near = |host: &Host| match host {
            Host::Tcp(name) => matches!(&**name, "localhost" | "127.0.0.1" | "::1"),
            #[cfg(unix)]
            Host::Unix(_) => true,
        };
        let said_so = config.get_ssl_mode() == SslMode::Disable;
        let near = config.get_hosts().iter().all(is_near) && config.get_hostaddrs().iter().all(|ip| ip.is_loopback());
        if said_so || near { Ok(Self::new(config, NoTls)) } else { Err(LedgerError::Unencrypted) }
    }

    /// Over TLS. A server that cannot is refused, not talked to without it.
    pub(super) fn secured<T>(mut config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        if config.get_ssl_mode() == SslMode::Prefer
            && config.get_hosts().iter().all(|host| matches!(host, Host::Tcp(_)))
        {
            config.ssl_mode(SslMode::Require);
        }
        Self::new(config, tls)
    }

    fn new<T>(mut config: Config, tls: T) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_application_name().is_none() {
            config.application_name("mcp-steady-ledger");
        }
        let connect = move |heard: Option<Heard>| -> Connected {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, mut connection) = config.connect(tls).await?;
                // It ends with its client, or with the server: then the client says so.
                let running = async move {
                    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                        if let (AsyncMessage::Notification(told), Some(heard)) = (&message, &heard) {
                            heard(told.channel());
                        }
                    }
                };
                Ok((client, Box::pin(running) as Running))
            })
        };
        Self { connect: Box::new(connect) }
    }

    /// A client, and what has to run for it.
    pub(super) async fn connect(&self, heard: Option<Heard>) -> Result<(Client, Running), tokio_postgres::Error> {
        (self.connect)(heard).await
    }
}

/// What keeps acknowledged commits, and what it has to be.
const DURABLE: [(&str, &[&str]); 3] =
    [("fsync", &["on"]), ("full_page_writes", &["on"]), ("synchronous_commit", &["on", "remote_apply"])];

/// The connections of a ledger.
pub(crate) struct Pool {
    connector: Connector,
    places: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Arc<Wire>>>>,
    prepared: bool,
    patience: Duration,
}

impl Pool {
    pub(super) fn new(connector: Connector, places: u32, prepared: bool, patience: Duration) -> Self {
        let places = Arc::new(Semaphore::new(places as usize));
        Self { connector, places, idle: Arc::default(), prepared, patience }
    }

    /// A connection, once there is a place.
    pub(super) async fn get(&self) -> Result<Conn, LedgerError> {
        let mut conn = self.place().await?;
        let idle = conn.idle();
        conn.wire = Some(match idle {
            Some(wire) => wire,
            None => self.connect().await?,
        });
        Ok(conn)
    }

    /// A connection that nobody has used yet.
    pub(super) async fn fresh(&self) -> Result<Conn, LedgerError> {
        let mut conn = self.place().await?;
        conn.wire = Some(self.connect().await?);
        Ok(conn)
    }

    /// Another connection in the place of this one.
    pub(super) async fn anew(&self, mut conn: Conn) -> Result<Conn, LedgerError> {
        conn.wire = None;
        conn.wire = Some(self.connect().await?);
        Ok(conn)
    }

    async fn place(&self) -> Result<Conn, LedgerError> {
        let place = tokio::time::timeout(self.patience, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.map_err(|_| LedgerError::Busy { operation: None })?;
        let place = place.map_err(|_| LedgerError::Closed)?;
        Ok(Conn { wire: None, idle: Arc::clone(&self.idle), _place: place })
    }

    async fn connect(&self) -> Result<Arc<Wire>, LedgerError> {
        let client = tokio::time::timeout(self.patience, self.connector.connect(None)).await;
        let (client, running) = client.map_err(|_| LedgerError::Storage("the database does not answer".into()))??;
        let wire = Wire::new(client, running, self.prepared);
        check(&wire).await?;
        Ok(Arc::new(wire))
    }

    /// Nobody gets a connection any more.
    pub(super) fn close(&self) {
        self.places.close();
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn idle(&self) -> usize {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Refuses a server that is not the primary, or that can forget what it has acknowledged.
async fn check(wire: &Wire) -> Result<(), LedgerError> {
    let row = wire.first("SELECT pg_is_in_recovery()", args![]).await?;
    if row.is_none_or(|row| row.get::<_, bool>(0)) {
        return Err(LedgerError::NotPrimary);
    }
    let sql = "SELECT name, setting FROM pg_settings WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit')";
    for row in wire.rows(sql, args![]).await? {
        let (name, found): (String, String) = (row.get(0), row.get(1));
        let good = DURABLE.iter().find(|(known, _)| *known == name).is_some_and(|(_, good)| good.contains(&&*found));
        if !good {
            return Err(LedgerError::NotDurable { setting: name.into(), found: found.into() });
        }
    }
    Ok(())
}

/// A connection in use. It goes back only by [`Conn::put_back`]: dropped in the middle of something it is closed, and the
/// database rolls back what was not committed.
pub(crate) struct Conn {
    wire: Option<Arc<Wire>>,
    idle: Arc<Mutex<Vec<Arc<Wire>>>>,
    _place: OwnedSemaphorePermit,
}

impl Conn {
    fn idle(&self) -> Option<Arc<Wire>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(wire) = idle.pop() {
            if !wire.is_closed() {
                return Some(wire);
            }
        }
        None
    }

    /// The same connection, for an effect.
    pub(super) fn share(&self) -> Arc<Wire> {
        // Every connection that the pool hands out has one.
        Arc::clone(self.wire.as_ref().unwrap_or_else(|| unreachable!("a connection without its wire")))
    }

    /// No transaction is open: the next caller may have it.
    pub(super) fn put_back(mut self) {
        if let Some(wire) = self.wire.take()
            && !wire.is_closed()
        {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(wire);
        }
    }
}

impl Deref for Conn {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        // Every connection that the pool hands out has one.
        self.wire.as_ref().unwrap_or_else(|| unreachable!("a connection without its wire"))
    }
}
