//! Decides which SQL is allowed on a connection, by who is speaking: the ledger, an effect, or the schema option.
//!
//! SQLite asks when it compiles a statement. The answer for an effect is a list of what it may do, not of what it may
//! not: read and write rows of the application's tables, and call functions.

use std::cell::Cell;
use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// The ledger itself.
    Ledger = 0,
    /// An effect, or a read of the application.
    Effect = 1,
    /// The schema option.
    Schema = 2,
}

/// The state that a connection and its authorizer share. One thread uses a connection at a time.
#[derive(Default)]
pub(crate) struct Guard {
    speaker: AtomicU8,
    denied: AtomicBool,
    clock: TimeLimit,
}

impl Guard {
    /// Puts a guard on a connection. It stays for good: to take it off would recompile every cached statement.
    pub(crate) fn install(conn: &mut Connection, effect_time: Duration) -> rusqlite::Result<Arc<Self>> {
        let guard = Arc::new(Self { clock: TimeLimit::new(effect_time), ..Self::default() });
        let asked = Arc::clone(&guard);
        conn.authorizer(Some(move |context: AuthContext<'_>| asked.answer(&context)))?;
        let asked = Arc::clone(&guard);
        conn.progress_handler(STEPS, Some(move || asked.clock.is_over()))?;
        Ok(guard)
    }

    /// Lets `speaker` speak until the value that is returned is dropped.
    pub(crate) fn speak(&self, speaker: Speaker) -> Speaking<'_> {
        self.denied.store(false, Ordering::Relaxed);
        self.speaker.store(speaker as u8, Ordering::Relaxed);
        Speaking(self)
    }

    /// Whether something was denied since the last [`Guard::speak`].
    pub(crate) fn has_denied(&self) -> bool {
        self.denied.load(Ordering::Relaxed)
    }

    /// Limits the time of SQL until the value that is returned is dropped.
    pub(crate) fn limit_time(&self) -> Limited<'_> {
        self.clock.start();
        Limited(&self.clock)
    }

    /// Whether SQL was interrupted since the last [`Guard::limit_time`].
    pub(crate) fn is_out_of_time(&self) -> bool {
        self.clock.was_over.load(Ordering::Relaxed)
    }

    fn answer(&self, context: &AuthContext<'_>) -> Authorization {
        let speaker = self.speaker.load(Ordering::Relaxed);
        let allowed = if speaker == Speaker::Ledger as u8 {
            true
        } else if speaker == Speaker::Effect as u8 {
            may_effect(&context.action)
        } else {
            may_schema(&context.action)
        };
        if allowed {
            return Authorization::Allow;
        }
        self.denied.store(true, Ordering::Relaxed);
        Authorization::Deny
    }
}

/// SQLite asks every so many steps of its machine whether to go on: some 10 µs apart.
const STEPS: std::ffi::c_int = 2000;

/// How long SQL may run. Times are in nanoseconds since the connection was opened; 0 is no limit.
struct TimeLimit {
    opened: Instant,
    limit: Duration,
    until: AtomicU64,
    was_over: AtomicBool,
}

impl TimeLimit {
    fn new(limit: Duration) -> Self {
        Self { opened: Instant::now(), limit, until: AtomicU64::new(0), was_over: AtomicBool::new(false) }
    }

    fn start(&self) {
        let until = self.opened.elapsed().saturating_add(self.limit);
        self.was_over.store(false, Ordering::Relaxed);
        self.until.store(u64::try_from(until.as_nanos()).unwrap_or(u64::MAX).max(1), Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        let over = until != 0 && self.opened.elapsed().as_nanos() > u128::from(until);
        if over {
            self.was_over.store(true, Ordering::Relaxed);
        }
        over
    }
}

impl Default for TimeLimit {
    fn default() -> Self {
        Self::new(Duration::MAX)
    }
}

/// SQL has a limited time.
pub(crate) struct Limited<'a>(&'a TimeLimit);

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        self.0.until.store(0, Ordering::Relaxed);
    }
}

/// Someone other than the ledger speaks.
pub(crate) struct Speaking<'a>(&'a Guard);

impl Drop for Speaking<'_> {
    fn drop(&mut self) {
        self.0.speaker.store(Speaker::Ledger as u8, Ordering::Relaxed);
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "what is not listed is denied, also what SQLite adds later")]
fn may_effect(action: &AuthAction<'_>) -> bool {
    match action {
        AuthAction::Select | AuthAction::Recursive | AuthAction::Function { .. } => true,
        AuthAction::Read { table_name, .. } => !is_ledgers(table_name),
        AuthAction::Pragma { pragma_name, pragma_value } => is_of_tables(pragma_name, *pragma_value),
        AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. } => !is_ledgers(table_name) && !is_sqlites(table_name),
        _ => false,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the schema of the application is its own affair")]
fn may_schema(action: &AuthAction<'_>) -> bool {
    match action {
        AuthAction::Transaction { .. }
        | AuthAction::Savepoint { .. }
        | AuthAction::Attach { .. }
        | AuthAction::Detach { .. }
        // What is temporary hides tables of the same name from this connection, and is gone with it.
        | AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempIndex { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateTempView { .. }
        | AuthAction::Unknown { .. } => false,
        AuthAction::Pragma { pragma_name, pragma_value } => is_of_tables(pragma_name, *pragma_value),
        AuthAction::CreateView { view_name } => !is_ledgers(view_name),
        AuthAction::Read { table_name, .. }
        // Without a name it is asked about each table, so also about the ledger's, whose plans must not change.
        | AuthAction::Analyze { table_name }
        | AuthAction::Insert { table_name }
        | AuthAction::Delete { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::CreateTable { table_name }
        | AuthAction::DropTable { table_name }
        | AuthAction::AlterTable { table_name, .. }
        | AuthAction::CreateTrigger { table_name, .. }
        | AuthAction::CreateIndex { table_name, .. }
        | AuthAction::CreateVtable { table_name, .. }
        | AuthAction::DropIndex { table_name, .. }
        | AuthAction::DropTrigger { table_name, .. } => !is_ledgers(table_name),
        _ => true,
    }
}

/// Whether it is a question that SQLite's own kinds of tables ask when they are used: FTS5 whether another connection has
/// written, R-Tree how large a page is. Each has one without a value, which changes nothing.
fn is_of_tables(pragma: &str, value: Option<&str>) -> bool {
    value.is_none() && ["data_version", "page_size"].iter().any(|known| pragma.eq_ignore_ascii_case(known))
}

/// What the names of the ledger's tables start with.
const PREFIX: &str = "ledger_";

/// Whether the table is one of the ledger's. SQLite compares names without case.
fn is_ledgers(table: &str) -> bool {
    has_prefix(table, PREFIX)
}

/// Whether SQL names anything of the ledger's, as every statement of the ledger itself does.
pub(crate) fn names_ledger(sql: &str) -> bool {
    sql.as_bytes().windows(PREFIX.len()).any(|part| part.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

/// Whether a word of this SQL starts as the names of the ledger's tables do. Some of what binds a table to another, such
/// as `REFERENCES`, SQLite asks nobody about.
pub(crate) fn has_ledgers_name(sql: &str) -> bool {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..);
    let bytes = sql.as_bytes();
    (0..bytes.len()).any(|at| {
        let (before, rest) = bytes.split_at(at);
        let part = rest.get(..PREFIX.len());
        part.is_some_and(|part| part.eq_ignore_ascii_case(PREFIX.as_bytes())) && !before.last().is_some_and(is_of_word)
    })
}

fn is_sqlites(table: &str) -> bool {
    has_prefix(table, "sqlite_")
}

fn has_prefix(table: &str, prefix: &str) -> bool {
    table.as_bytes().get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}

thread_local! {
    /// Whether this thread runs an application's closure for a ledger.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// An application's closure runs on this thread until the value is dropped.
pub(crate) struct Inside {
    before: bool,
}

impl Inside {
    pub(crate) fn enter() -> Self {
        Self { before: INSIDE.replace(true) }
    }

    /// Whether a closure runs on this thread. A ledger that it called would wait for itself, or work outside of its
    /// transaction.
    pub(crate) fn is_here() -> bool {
        INSIDE.get()
    }
}

/// Runs code of the application that has no say in what happens here, such as a destructor or a waker. It may panic, and a
/// ledger that it calls is [`Reentrant`](crate::LedgerError::Reentrant).
pub(crate) fn quietly(work: impl FnOnce()) {
    let _inside = Inside::enter();
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(work)) {
        // Its destructor could panic too.
        mem::forget(payload);
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(self.before);
    }
}
