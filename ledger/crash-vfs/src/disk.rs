//! Decides what is remembered of the calls, and who is asked before each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::vfs;

/// What SQLite asks of the file layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a test names each")]
pub enum Call {
    /// Open a file.
    Open,
    /// Read from a file.
    Read,
    /// Write to a file.
    Write,
    /// Cut a file to a size.
    Truncate,
    /// Make durable what was written to a file.
    Sync,
    /// Take a lock on the database file.
    Lock,
    /// Take a lock in the shared memory of the write-ahead log.
    ShmLock,
    /// Give back a lock in the shared memory.
    ShmUnlock,
    /// Map the shared memory.
    ShmMap,
    /// Delete a file.
    Delete,
    /// Wait for a lock that others hold.
    Sleep,
}

/// Which file of a database is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a database has these")]
pub enum Kind {
    /// The database itself.
    Database,
    /// Its write-ahead log.
    Wal,
    /// A rollback journal, or a temporary file.
    Other,
}

/// A call, before it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a test names both")]
pub struct Asked {
    /// What SQLite asks for.
    pub call: Call,
    /// Of which file.
    pub file: Kind,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a call is done, not done, or fails")]
pub enum Answer {
    /// It is done.
    Do,
    /// It is not done, and reported as done.
    Pretend,
    /// It is not done, and fails with this code of SQLite.
    Fail(i32),
}

/// What happened, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "images are computed from all of them")]
pub enum Event {
    /// A file, by its name without a folder, got these bytes at this place.
    Write {
        /// The name of the file.
        file: Arc<str>,
        /// Where, in bytes from its start.
        at: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// A file was cut to, or filled up with zeros to, this size.
    Truncate {
        /// The name of the file.
        file: Arc<str>,
        /// Its new size in bytes.
        size: u64,
    },
    /// All of a file was made durable.
    Sync {
        /// The name of the file.
        file: Arc<str>,
    },
    /// A sync failed: what was written since the last one is lost, though the file still shows it.
    LostSync {
        /// The name of the file.
        file: Arc<str>,
    },
    /// A file was deleted.
    Delete {
        /// The name of the file.
        file: Arc<str>,
        /// Whether that was made durable.
        synced: bool,
    },
    /// The test noted something.
    Note(u64),
}

type Hook = dyn Fn(Asked) -> Answer + Send + Sync;

/// A registered file layer.
///
/// It stays registered for the life of the process, as SQLite gives no way to know when the last file is closed.
#[derive(Clone, Copy)]
pub struct Disk {
    state: &'static State,
}

pub(crate) struct State {
    name: String,
    recording: AtomicBool,
    log: Mutex<Vec<Event>>,
    hook: Mutex<Option<Arc<Hook>>>,
}

impl Disk {
    /// Registers a file layer under a name that no other one has. It records nothing, and has no hook.
    ///
    /// # Panics
    ///
    /// If SQLite has no file layer of its own, or refuses this one.
    #[must_use]
    pub fn register(name: &str) -> Self {
        let state = State {
            name: name.to_owned(),
            recording: AtomicBool::new(false),
            log: Mutex::default(),
            hook: Mutex::default(),
        };
        let disk = Self { state: Box::leak(Box::new(state)) };
        vfs::register(disk, name);
        disk
    }

    /// The name that SQLite knows it by.
    #[must_use]
    pub fn name(self) -> &'static str {
        &self.state.name
    }

    /// Starts to record. The files must be new.
    pub fn record(self) {
        self.state.recording.store(true, Ordering::SeqCst);
    }

    /// Ends the recording, and returns it.
    #[must_use]
    pub fn recorded(self) -> Vec<Event> {
        self.state.recording.store(false, Ordering::SeqCst);
        std::mem::take(&mut *lock(&self.state.log))
    }

    /// Puts a note among the events, if they are recorded.
    pub fn note(self, note: u64) {
        self.push(|| Event::Note(note));
    }

    /// Asks this hook before each call from now on. It may block; SQLite's thread then waits where it is.
    pub fn ask(self, hook: impl Fn(Asked) -> Answer + Send + Sync + 'static) {
        *lock(&self.state.hook) = Some(Arc::new(hook));
    }

    /// Asks nobody any more.
    pub fn ask_nobody(self) {
        *lock(&self.state.hook) = None;
    }

    pub(crate) fn answer(self, call: Call, file: Kind) -> Answer {
        // Not under the lock: a hook may block for ever.
        let hook = lock(&self.state.hook).clone();
        hook.map_or(Answer::Do, |hook| hook(Asked { call, file }))
    }

    pub(crate) fn push(self, event: impl FnOnce() -> Event) {
        if self.state.recording.load(Ordering::SeqCst) {
            lock(&self.state.log).push(event());
        }
    }
}

/// Nothing in here can be left half changed by a panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("name", &self.state.name).finish_non_exhaustive()
    }
}
