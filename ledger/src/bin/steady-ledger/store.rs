//! Decides where a ledger is that an operator names, and asks it there: in a file, or on PostgreSQL.

use std::error::Error;
use std::path::Path;

use steady_ledger::admin::{Checked, KeyFilter, KeyRow, MessageRow, Overview};
use steady_ledger::{
    AuditEntry, Collected, Executor, Key, Ledger, LedgerError, LiveTask, Opening, Options, Reconciled, Resolved, Scope,
    Secret, TaskError,
};

#[cfg(feature = "postgres")]
use crate::database::Database;

/// A ledger, wherever it is.
pub(crate) enum Store {
    File(Ledger),
    #[cfg(feature = "postgres")]
    Database(Database),
}

/// Whether this names a database, and no file.
pub(crate) fn is_database(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("postgres://") || name.starts_with("postgresql://"))
}

/// Asks the ledger where it is: the same words for both.
macro_rules! ask {
    ($store:expr, $ledger:ident => $work:expr) => {
        match $store {
            Store::File($ledger) => $work,
            #[cfg(feature = "postgres")]
            Store::Database(database) => {
                let $ledger = &database.ledger;
                database.runtime.block_on($work)
            }
        }
    };
}

impl Store {
    pub(crate) fn open(name: &Path, secret: Option<Secret>) -> Result<Self, Box<dyn Error>> {
        if is_database(name) {
            #[cfg(feature = "postgres")]
            return Ok(Self::Database(Database::open(name, secret)?));
            #[cfg(not(feature = "postgres"))]
            return Err("this program was built without the feature `postgres`: build it with that".into());
        }
        open_file(name, secret).map(Self::File)
    }

    pub(crate) fn overview(&self) -> Result<Overview, LedgerError> {
        ask!(self, ledger => ledger.overview())
    }

    pub(crate) fn keys(&self, filter: &KeyFilter, limit: u32) -> Result<Vec<KeyRow>, LedgerError> {
        ask!(self, ledger => ledger.keys(filter, limit))
    }

    pub(crate) fn stuck_messages(&self, limit: u32) -> Result<Vec<MessageRow>, LedgerError> {
        ask!(self, ledger => ledger.stuck_messages(limit))
    }

    pub(crate) fn tasks_in_doubt(&self, limit: u32) -> Result<Vec<LiveTask>, TaskError> {
        ask!(self, ledger => ledger.tasks().in_doubt(None, limit))
    }

    pub(crate) fn reconcile(&self, scope: &Scope, key: &Key) -> Result<Option<Reconciled>, LedgerError> {
        ask!(self, ledger => ledger.reconcile(scope, key))
    }

    pub(crate) fn stored_result(&self, scope: &Scope, key: &Key) -> Result<Option<Vec<u8>>, LedgerError> {
        ask!(self, ledger => ledger.stored_result(scope, key))
    }

    pub(crate) fn audit(&self, scope: &Scope, key: &Key) -> Result<Vec<AuditEntry>, LedgerError> {
        ask!(self, ledger => ledger.audit(scope, key))
    }

    pub(crate) fn upstream_key(&self, scope: &Scope, key: &Key) -> Box<str> {
        match self {
            Self::File(ledger) => ledger.upstream_key(scope, key),
            #[cfg(feature = "postgres")]
            Self::Database(database) => database.ledger.upstream_key(scope, key),
        }
    }

    pub(crate) fn resolve(
        &self,
        scope: &Scope,
        key: &Key,
        resolved: &Resolved<serde_json::Value>,
        actor: &str,
        note: &str,
    ) -> Result<(), LedgerError> {
        ask!(self, ledger => ledger.resolve(scope, key, resolved, actor, note))
    }

    pub(crate) fn collect(&self, limit: u32) -> Result<Collected, LedgerError> {
        ask!(self, ledger => ledger.collect(limit))
    }

    pub(crate) fn expire_leases(&self, limit: u32) -> Result<usize, TaskError> {
        ask!(self, ledger => ledger.tasks().expire_leases(limit))
    }

    pub(crate) fn collect_expired(&self, limit: u32) -> Result<usize, TaskError> {
        ask!(self, ledger => ledger.tasks().collect_expired(limit))
    }

    /// A database reuses what is free by itself.
    pub(crate) fn shrink(&self, pages: u32) -> Result<u64, LedgerError> {
        match self {
            Self::File(ledger) => ledger.shrink(pages),
            #[cfg(feature = "postgres")]
            Self::Database(_) => Ok(0),
        }
    }

    pub(crate) fn check(&self, progress: impl FnMut(u64, u64)) -> Result<Checked, LedgerError> {
        ask!(self, ledger => ledger.check(progress))
    }

    pub(crate) fn backup(&self, to: &Path, progress: impl FnMut(u64, u64)) -> Result<(), Box<dyn Error>> {
        match self {
            Self::File(ledger) => Ok(ledger.backup(to, progress)?),
            #[cfg(feature = "postgres")]
            Self::Database(_) => Err(
                "a database is not copied by this command: use pg_dump, or better a standby and WAL archiving, as a \
                     dump does not know what ran after it"
                    .into(),
            ),
        }
    }
}

/// The ledger of a program, in its file.
pub(crate) fn open_file(file: &Path, secret: Option<Secret>) -> Result<Ledger, Box<dyn Error>> {
    if !file.try_exists().map_err(|error| format!("cannot look at {}: {error}", file.display()))? {
        return Err(format!("{} does not exist: give the path of a ledger", file.display()).into());
    }
    let options = Options { opening: Opening::Existing, executor: Executor::Inline, secret, ..Options::default() };
    let ledger = Ledger::open(file, options);
    ledger.map_err(|error| -> Box<dyn Error> { Box::new(InFile { file: file.display().to_string(), error }) })
}

/// An error with the file that it is about.
#[derive(Debug, thiserror::Error)]
#[error("{file}: {error}")]
struct InFile {
    file: String,
    error: LedgerError,
}
