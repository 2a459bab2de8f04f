//! Decides how a ledger is copied while it is used: through SQLite, as one consistent state, and under its name only
//! once it is whole.

use std::fs::{self, File, OpenOptions};
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
    /// reconcile the time since with whoever was affected. It has the ledger's permissions, and its secret.
    ///
    /// It is made as `*.partial` beside its path; one of those stays only if the process is killed.
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
        let partial = self.partial(to)?;
        let done = self.fill(&partial, to, &mut progress);
        let removed = fs::remove_file(&partial).map_err(file(&partial));
        done.and(removed)?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(file(folder))
    }

    /// Makes the file that becomes the copy, for its owner alone, as the copy holds the secret. Its name is its own: two
    /// copies to one path must not write into each other.
    fn partial(&self, to: &Path) -> Result<PathBuf, BackupError> {
        let mut partial = to.to_owned().into_os_string();
        partial.push(format!(".{:016x}.partial", u64::from_be_bytes(self.inner.entropy.bytes()?)));
        let partial = PathBuf::from(partial);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&partial) {
            Ok(_) => Ok(partial),
            Err(source) => Err(BackupError::File { path: partial, source }),
        }
    }

    /// Copies, and gives the copy its name and the ledger's permissions.
    fn fill(&self, partial: &Path, to: &Path, progress: &mut impl FnMut(u64, u64)) -> Result<(), BackupError> {
        self.copy(partial, progress)?;
        // Under a VFS of its own the ledger may not be a file: then the copy stays its owner's.
        if let Ok(ledger) = fs::metadata(&self.site().path) {
            let changed = fs::set_permissions(partial, ledger.permissions());
            changed.map_err(|source| BackupError::File { path: partial.to_owned(), source })?;
        }
        // A link fails if somebody was faster with this name; a rename would replace theirs.
        fs::hard_link(partial, to).map_err(|source| {
            if source.kind() == io::ErrorKind::AlreadyExists {
                return BackupError::Exists(to.to_owned());
            }
            BackupError::File { path: to.to_owned(), source }
        })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;

    #[test]
    fn a_name_that_is_taken_meanwhile_is_left_alone_and_nothing_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path().join("shop.db"), Options::default()).unwrap();
        let files = || fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        let before = files().len();
        let to = dir.path().join("copy.db");
        let race = ledger.backup(&to, |_, _| fs::write(&to, "somebody else's").unwrap());
        assert!(matches!(&race, Err(BackupError::Exists(path)) if *path == to), "{race:?}");
        assert_eq!(fs::read(&to).unwrap(), b"somebody else's");
        assert_eq!(files().len(), before + 1, "{:?}", files());

        let missing = ledger.backup(&dir.path().join("missing/copy.db"), |_, _| {});
        assert!(matches!(missing, Err(BackupError::File { .. })), "{missing:?}");
        let nested = dir.path().join("other.db");
        ledger
            .backup(&nested, |_, _| {
                if !nested.exists() {
                    ledger.backup(&nested, |_, _| {}).unwrap()
                }
            })
            .unwrap_err();
        assert!(Ledger::open(&nested, Options::default()).is_ok(), "the first one to be whole");
        assert!(!files().iter().any(|name| name.to_string_lossy().ends_with("partial")), "{:?}", files());
    }
}
