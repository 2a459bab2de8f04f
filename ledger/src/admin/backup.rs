//! Decides how a ledger is copied while it is used: through SQLite, as one consistent state, and under its name only
//! once it is whole.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use thiserror::Error;

use crate::error::LedgerError;
use crate::file::Access;
use crate::ledger::Ledger;

/// Why there is no backup. Nothing is left at its path.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is a file already.
    #[error("{} exists: name a new file, an old backup is not overwritten", .0.display())]
    Exists(PathBuf),
    /// The target cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The ledger cannot be read, or SQLite cannot write the copy.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The copy is damaged.
    #[error("the copy is damaged ({0}): try again, on another disk")]
    Damaged(String),
}

/// Pages copied before other connections get their turn.
const PAGES: i32 = 1000;
/// How long to wait for a connection that holds the file.
const PAUSE: Duration = Duration::from_millis(5);
/// How many such waits in a row are enough.
const MAX_BUSY: u32 = 1000;

impl Ledger {
    /// Copies the ledger to a new file, while it is used. `progress` hears how many pages are done, of how many.
    ///
    /// The copy holds every call that was acknowledged before this one began. **It does not know what came after it**:
    /// a key that ran later would run again on a restored copy, so restore only what nothing was acknowledged after, or
    /// reconcile the time since with whoever was affected.
    ///
    /// # Errors
    ///
    /// [`BackupError`]; the path is then as it was.
    pub fn backup(&self, to: &Path, mut progress: impl FnMut(u64, u64)) -> Result<(), BackupError> {
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| BackupError::File { path, source }
        };
        if to.try_exists().map_err(file(to))? {
            return Err(BackupError::Exists(to.to_owned()));
        }
        let mut partial = to.to_owned().into_os_string();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        // Of a backup that was cut off.
        if partial.try_exists().map_err(file(&partial))? {
            fs::remove_file(&partial).map_err(file(&partial))?;
        }
        let copied = self.copy(&partial, &mut progress);
        if let Err(error) = copied {
            drop(fs::remove_file(&partial));
            return Err(error);
        }
        // A link fails if somebody was faster with this name; a rename would replace theirs.
        fs::hard_link(&partial, to).map_err(file(to))?;
        fs::remove_file(&partial).map_err(file(&partial))?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(file(folder))
    }

    fn copy(&self, partial: &Path, progress: &mut impl FnMut(u64, u64)) -> Result<(), BackupError> {
        let from = self.site().connect(Access::Read)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut to = Connection::open_with_flags(partial, flags).map_err(LedgerError::from)?;
        // One snapshot for all of it: otherwise every write of another process would start the copy anew.
        let snapshot = from.conn.unchecked_transaction().map_err(LedgerError::from)?;
        from.conn.query_row("SELECT id FROM ledger_meta", [], |_| Ok(())).map_err(LedgerError::from)?;
        {
            let mut busy = 0;
            let backup = Backup::new(&from.conn, &mut to).map_err(LedgerError::from)?;
            loop {
                let step = backup.step(PAGES).map_err(LedgerError::from)?;
                let pages = backup.progress();
                let all = u64::try_from(pages.pagecount).unwrap_or(0);
                progress(all.saturating_sub(u64::try_from(pages.remaining).unwrap_or(0)), all);
                match step {
                    StepResult::Done => break,
                    StepResult::More => busy = 0,
                    // Somebody else uses the new file.
                    _ if busy < MAX_BUSY => {
                        busy += 1;
                        std::thread::sleep(PAUSE);
                    }
                    StepResult::Busy | StepResult::Locked | _ => {
                        return Err(LedgerError::Busy { operation: None }.into());
                    }
                }
            }
        }
        snapshot.finish().map_err(LedgerError::from)?;
        let verdict = to.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        let verdict = verdict.map_err(LedgerError::from)?;
        if verdict != "ok" {
            return Err(BackupError::Damaged(verdict));
        }
        to.close().map_err(|(_, error)| LedgerError::from(error))?;
        File::open(partial)
            .and_then(|file| file.sync_all())
            .map_err(|source| BackupError::File { path: partial.to_owned(), source })
    }
}
