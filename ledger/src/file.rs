//! Decides whether a file is a ledger that this release may use, and how every connection to it is set up.
//!
//! The file is opened by SQLite only: to open it in any other way and close it again would drop the locks that this
//! process holds on it.

use std::borrow::Cow;
use std::ffi::c_int;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OpenFlags};

use crate::error::LedgerError;
use crate::external::store::sweep;
use crate::guard::{Guard, Speaker, has_ledgers_name};
use crate::mount;
use crate::options::{Clock, Durability, Entropy, Opening};
use crate::schema;
use crate::secret::Secret;
use crate::stats::SharedMeters;
use crate::time::Timekeeper;
use crate::transaction::Transaction;

/// `LDGR`, at a fixed place in the header of every ledger.
const APPLICATION_ID: i64 = 0x4C44_4752;
/// The first SQLite without the reset race of write-ahead logs.
const MIN_SQLITE: i32 = 3_051_003;
/// How many compiled statements a connection keeps.
const STATEMENTS: usize = 128;
/// How long to pause before asking again for what SQLite does not wait for by itself.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// A connection and its guard.
pub(crate) struct Db {
    pub(crate) conn: Connection,
    pub(crate) guard: Arc<Guard>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
}

/// Where a ledger lies, and how long its connections wait.
pub(crate) struct Site {
    pub(crate) path: PathBuf,
    pub(crate) vfs: Option<Cow<'static, str>>,
    pub(crate) busy_timeout: Duration,
    pub(crate) durability: Durability,
    pub(crate) effect_time: Duration,
    pub(crate) meters: SharedMeters,
    pub(crate) opening: Opening,
    pub(crate) network_file_system: bool,
}

/// For how long a program keeps what, in milliseconds. It is written down for tools beside it.
#[derive(Clone, Copy)]
pub(crate) struct Keeping {
    /// See [`Options::retention`](crate::Options::retention).
    pub(crate) retention_ms: i64,
    /// See [`Options::key_horizon`](crate::Options::key_horizon).
    pub(crate) horizon_ms: Option<i64>,
}

/// A connection to a ledger, and what is the same for all of them.
pub(crate) struct Found {
    pub(crate) db: Db,
    pub(crate) secret: Secret,
    pub(crate) clock: Timekeeper,
    pub(crate) keeping: Keeping,
}

/// What is in a file.
enum Content {
    Nothing,
    /// A ledger of this schema, or of an older one.
    Ledger {
        schema: i64,
    },
}

impl Site {
    /// Makes the file a ledger if it is new, brings the application's tables into it, and returns a connection to it
    /// with its secret and its time. A file that is to be left as it is keeps what it was last told to keep.
    pub(crate) fn found(
        &self,
        secret: Option<&Secret>,
        entropy: &Entropy,
        schema: &str,
        clock: Clock,
        keeping: Keeping,
    ) -> Result<Found, LedgerError> {
        check_sqlite(rusqlite::version_number())?;
        // What a VFS of the deployment's own does with the path is not known.
        if !self.network_file_system && self.vfs.is_none() {
            mount::check(&self.path)?;
        }
        if self.opening == Opening::Existing {
            return self.existing(secret, clock);
        }
        let mut conn = self.open(OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE)?;
        if let Content::Nothing = look(&conn)? {
            conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        }
        self.use_wal(&conn)?;
        self.configure(&conn)?;
        let guard = Guard::install(&mut conn, self.effect_time)?;
        self.watch_log(&mut conn)?;
        let db = Db { conn, guard };
        let (secret, clock) = initialise(&db, secret, entropy, schema, clock, keeping)?;
        Ok(Found { db, secret, clock, keeping })
    }

    /// A connection to a ledger that is left as it is.
    fn existing(&self, secret: Option<&Secret>, clock: Clock) -> Result<Found, LedgerError> {
        let db = self.connect(Access::Write)?;
        match look(&db.conn)? {
            Content::Ledger { schema: schema::NEWEST } => {}
            Content::Ledger { schema: found } => {
                return Err(LedgerError::OlderSchema { found, known: schema::NEWEST });
            }
            Content::Nothing => return Err(LedgerError::ForeignFile),
        }
        let secret = read_secret(&db.conn, secret)?;
        let clock = Timekeeper::new(clock, &db.conn)?;
        let keeping = Keeping::read(&db.conn)?;
        Ok(Found { db, secret, clock, keeping })
    }

    /// Another connection to a file that is a ledger.
    pub(crate) fn connect(&self, access: Access) -> Result<Db, LedgerError> {
        let mut conn = self.open(match access {
            Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
            Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        })?;
        let Content::Ledger { schema } = look(&conn)? else { return Err(LedgerError::ForeignFile) };
        self.configure(&conn)?;
        let guard = Guard::install(&mut conn, self.effect_time)?;
        if access == Access::Write {
            self.watch_log(&mut conn)?;
        }
        let db = Db { conn, guard };
        // A file of an older schema is not touched, and not answered from.
        if access == Access::Write && schema == schema::NEWEST {
            let transaction = Transaction::begin(&db)?;
            sync_log(&db.conn, schema)?;
            transaction.commit().map_err(|failure| failure.nothing_committed())?;
        }
        Ok(db)
    }

    fn open(&self, flags: OpenFlags) -> Result<Connection, LedgerError> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let conn = match &self.vfs {
            None => Connection::open_with_flags(&self.path, flags)?,
            Some(vfs) => Connection::open_with_flags_and_vfs(&self.path, flags, &**vfs)?,
        };
        conn.busy_timeout(self.busy_timeout)?;
        Ok(conn)
    }

    /// The settings that a connection has to make by itself. The first is the durability of what is acknowledged.
    fn configure(&self, conn: &Connection) -> rusqlite::Result<()> {
        conn.execute_batch(match self.durability {
            Durability::Full => "PRAGMA synchronous = FULL",
            Durability::ProcessCrash => "PRAGMA synchronous = NORMAL",
        })?;
        conn.execute_batch(
            "PRAGMA fullfsync = ON;
             PRAGMA checkpoint_fullfsync = ON;
             PRAGMA foreign_keys = ON;
             PRAGMA trusted_schema = OFF;
             PRAGMA cell_size_check = ON;
             PRAGMA mmap_size = 0;
             PRAGMA temp_store = MEMORY;
             PRAGMA secure_delete = ON;
             PRAGMA journal_size_limit = 67108864;",
        )?;
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        // Plans do not depend on parameters. Else SQLite compiles a kept statement anew whenever its parameters change.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        conn.set_prepared_statement_cache_capacity(STATEMENTS);
        Ok(())
    }

    /// Counts the pages of the log after each commit. This takes the place of SQLite's own way to move the log into the
    /// database, which is the writer's affair: see `writer::upkeep`.
    fn watch_log(&self, conn: &mut Connection) -> rusqlite::Result<()> {
        let page_size = conn.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        self.meters.page_size.set(u32::into(page_size));
        let meters = Arc::clone(&self.meters);
        conn.wal_hook(Some(move |_: &mut Wal, pages: c_int| {
            meters.wal_pages.set(u64::try_from(pages).unwrap_or(0));
            Ok(())
        }))
    }

    /// Switches to a write-ahead log. SQLite does not wait for others here, as it could wait for ever.
    fn use_wal(&self, conn: &Connection) -> Result<(), LedgerError> {
        let until = Instant::now() + self.busy_timeout;
        loop {
            let mode = conn.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
            match mode.map_err(LedgerError::from) {
                Ok(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
                Ok(mode) => return Err(LedgerError::NoWal { mode: mode.into() }),
                Err(LedgerError::Busy { .. }) if Instant::now() < until => thread::sleep(RETRY_PAUSE),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Refuses a SQLite that loses commits.
fn check_sqlite(version: i32) -> Result<(), LedgerError> {
    if version < MIN_SQLITE { Err(LedgerError::OldSqlite { version }) } else { Ok(()) }
}

/// Looks at a file outside of a transaction: in one snapshot, as another process may be creating it.
fn look(conn: &Connection) -> Result<Content, LedgerError> {
    let snapshot = conn.unchecked_transaction()?;
    let content = content(conn)?;
    snapshot.finish()?;
    Ok(content)
}

/// Tells a ledger from an empty file and from everything else, which is refused. Changes nothing.
fn content(conn: &Connection) -> Result<Content, LedgerError> {
    let number = |sql| conn.query_row(sql, [], |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let schema = number("PRAGMA user_version")?;
    let objects = number("SELECT count(*) FROM sqlite_schema")?;
    match (application, schema, objects) {
        (APPLICATION_ID, found, _) if found > schema::NEWEST => {
            Err(LedgerError::NewerSchema { found, known: schema::NEWEST })
        }
        (APPLICATION_ID, schema @ 1.., _) => Ok(Content::Ledger { schema }),
        (0, 0, 0) => Ok(Content::Nothing),
        (..) => Err(LedgerError::ForeignFile),
    }
}

/// Creates what is missing, in one transaction, so that a crash leaves either nothing or a ledger.
fn initialise(
    db: &Db,
    configured: Option<&Secret>,
    entropy: &Entropy,
    schema: &str,
    clock: Clock,
    keeping: Keeping,
) -> Result<(Secret, Timekeeper), LedgerError> {
    if has_ledgers_name(schema) {
        return Err(LedgerError::Forbidden);
    }
    let transaction = Transaction::begin(db)?;
    // Another process may have been here since the first look.
    let found = match content(&db.conn)? {
        Content::Nothing => 0,
        Content::Ledger { schema } => schema,
    };
    schema::migrate(&db.conn, found)?;
    sync_log(&db.conn, schema::NEWEST)?;
    if found == 0 {
        let (secret, kept) = match configured {
            Some(secret) => (secret.clone(), None),
            None => {
                let secret = Secret::new(entropy.bytes()?);
                (secret.clone(), Some(secret))
            }
        };
        db.conn.execute(
            "INSERT INTO ledger_meta(id, secret, secret_check, created_ms, latest_ms) VALUES (1, ?1, ?2, ?3, ?3)",
            (kept.as_ref().map(Secret::bytes), secret.check(), clock.now().unix_millis()),
        )?;
        db.conn.pragma_update(None, "application_id", APPLICATION_ID)?;
    }
    let secret = read_secret(&db.conn, configured)?;
    keeping.write(&db.conn)?;
    let clock = Timekeeper::new(clock, &db.conn)?;
    // Whatever an earlier process left unsaid is in doubt as soon as its lease is over.
    sweep(&db.conn, clock.tick(&db.conn)?)?;
    let own = schema::objects(&db.conn)?;
    {
        let _speaking = db.guard.speak(Speaker::Schema);
        db.conn.execute_batch(schema)?;
    }
    // SQLite asks the guard about the old name of what is renamed only.
    if schema::objects(&db.conn)? != own {
        return Err(LedgerError::Forbidden);
    }
    transaction.commit().map_err(|failure| failure.nothing_committed())?;
    Ok((secret, clock))
}

/// Makes the commit of the current transaction sync the log, for which it has to write something.
///
/// A process that died, or a connection that was given up, can have left a commit in the log that was never synced.
/// SQLite finds it there and shows it; answered from, it must survive a power cut.
fn sync_log(conn: &Connection, schema: i64) -> rusqlite::Result<()> {
    conn.pragma_update(None, "user_version", schema)
}

impl Keeping {
    fn write(self, conn: &Connection) -> rusqlite::Result<()> {
        let update = "UPDATE ledger_meta SET retention_ms = ?1, horizon_ms = ?2
                      WHERE id = 1 AND (retention_ms <> ?1 OR horizon_ms IS NOT ?2)";
        conn.execute(update, (self.retention_ms, self.horizon_ms)).map(drop)
    }

    fn read(conn: &Connection) -> rusqlite::Result<Self> {
        conn.query_row("SELECT retention_ms, horizon_ms FROM ledger_meta WHERE id = 1", [], |row| {
            Ok(Self { retention_ms: row.get(0)?, horizon_ms: row.get(1)? })
        })
    }
}

fn read_secret(conn: &Connection, configured: Option<&Secret>) -> Result<Secret, LedgerError> {
    let row = "SELECT secret, secret_check FROM ledger_meta WHERE id = 1";
    let (kept, check) =
        conn.query_row(row, [], |row| Ok((row.get::<_, Option<[u8; 32]>>(0)?, row.get::<_, [u8; 32]>(1)?)))?;
    let secret = configured.cloned().or_else(|| kept.map(Secret::new)).ok_or(LedgerError::WrongSecret)?;
    if secret.check() == check { Ok(secret) } else { Err(LedgerError::WrongSecret) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sqlite_that_loses_commits_is_refused() {
        for version in [0, 3_007_000, 3_050_004, 3_051_002] {
            let refused = check_sqlite(version);
            assert!(
                matches!(refused, Err(LedgerError::OldSqlite { version: found }) if found == version),
                "{refused:?}"
            );
        }
        for version in [3_051_003, 3_052_000, 4_000_000] {
            assert!(check_sqlite(version).is_ok(), "{version}");
        }
    }
}
