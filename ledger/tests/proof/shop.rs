//! The work that the proofs do: numbered calls, whose number says what their effect is like.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use steady_crash_vfs::Disk;
use steady_ledger::{
    Begun, Body, EffectError, EffectTx, Executed, External, Key, Ledger, LedgerError, Message, Options, Outbox,
    Progress, Report, Request, Scope, Secret, Snapshot, Target, TaskError, TaskLimits, TaskSpec, rusqlite,
};

/// A row of `effect` for every run of an effect: nothing here keeps a second one from being seen.
pub(crate) const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL) STRICT;
    INSERT OR IGNORE INTO account VALUES (1, 0);
    CREATE TABLE IF NOT EXISTS effect(id INTEGER PRIMARY KEY, key TEXT NOT NULL, pad TEXT NOT NULL, message INTEGER NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS effect_key ON effect(key);
    CREATE TABLE IF NOT EXISTS page(key TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS walk_in(id INTEGER PRIMARY KEY) STRICT;
";

/// What a call answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Receipt {
    /// The row of the effect; none if the business refused.
    pub(crate) effect: Option<i64>,
    /// Makes results, and rows, of many sizes.
    pad: String,
}

impl Receipt {
    /// What the call of this number answers. Some results, and rows, need overflow pages.
    pub(crate) fn new(number: u64, effect: Option<i64>) -> Self {
        let size = number * 37 % 300 + number % 11 / 10 * 6000;
        Self { effect, pad: "x".repeat(usize::try_from(size).unwrap()) }
    }
}

/// What a call leaves for the post: nothing, a letter, or a letter behind others.
fn message(number: u64) -> Option<Message> {
    let letter = Message::new("post", number.to_string());
    match number % 4 {
        1 => Some(letter),
        2 => Some(letter.ordering_key(format!("line-{}", number % 3))),
        _ => None,
    }
}

/// What the callers of a ledger, and those that it sends to, know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A call began, and was answered with the row of its effect.
    Begun(u64),
    Done(u64, Option<i64>),
    /// A call failed for certain.
    Absent(u64),
    /// A call without a key.
    WalkInBegun,
    WalkInDone,
    WalkInAbsent,
    /// A letter is on its way, and was reported as delivered.
    Posted(u64),
    Delivered(u64),
    /// Money is on its way, and was reported as paid.
    Wired(u64),
    Paid(u64),
    /// A task was made, its one step was stored, and it was finished.
    Made(u64),
    Stepped(u64),
    Finished(u64),
}

/// Somebody who works with a ledger.
pub(crate) trait Voice: Sync {
    /// Says what it knows, at once.
    fn say(&self, news: News);
    /// Comes to a point.
    fn pass(&self, _point: &'static str) {}
}

/// No attempt is over before the end of a test.
const LEASE: Duration = Duration::from_secs(60 * 60);

/// The post, of which nobody knows whether it recognises a letter.
pub(crate) fn post(ledger: &Ledger) -> Outbox {
    ledger.outbox(Target::new("post"))
}

/// Sends some letters. Returns how many.
pub(crate) fn carry(ledger: &Ledger, voice: &dyn Voice) -> Result<usize, LedgerError> {
    let letters = post(ledger).claim(4, LEASE)?;
    for letter in &letters {
        let number = number_of(letter.payload());
        voice.say(News::Posted(number));
        voice.pass("after the message is sent");
        letter.report(Report::Delivered)?;
        voice.say(News::Delivered(number));
    }
    Ok(letters.len())
}

/// The call that left a letter.
pub(crate) fn number_of(payload: &[u8]) -> u64 {
    str::from_utf8(payload).unwrap().parse().unwrap()
}

pub(crate) fn wire_scope() -> Scope {
    Scope::new("tenant-1", "wire")
}

/// Asks for the right to wire money.
pub(crate) fn begin_wire(ledger: &Ledger, number: u64) -> Result<Begun<u64>, LedgerError> {
    ledger.begin(&Request::new(&wire_scope(), &key(number), r#"{"amount":"12.00"}"#), &External::new(LEASE))
}

/// Wires money, unless that was done.
pub(crate) fn wire(ledger: &Ledger, number: u64, voice: &dyn Voice) -> Result<(), LedgerError> {
    let Begun::Send(attempt) = begin_wire(ledger, number)? else { return Ok(()) };
    voice.say(News::Wired(number));
    voice.pass("after the send");
    attempt.commit(&number)?;
    voice.say(News::Paid(number));
    Ok(())
}

pub(crate) fn make_task(ledger: &Ledger, number: u64) -> Result<Executed<Snapshot>, TaskError> {
    ledger.tasks().create(&Request::new(&Scope::new("tenant-1", "print"), &key(number), "{}"), TaskSpec::default())
}

/// Makes a task, and does one that waits.
pub(crate) fn toil(ledger: &Ledger, number: u64, voice: &dyn Voice) -> Result<(), TaskError> {
    make_task(ledger, number)?.into_inner();
    voice.say(News::Made(number));
    let tasks = ledger.tasks();
    let Some(claimed) = tasks.claim(&["print"], "worker", LEASE)? else { return Ok(()) };
    let text = claimed.key.unwrap().as_str().to_owned();
    let number = number_of(text.trim_start_matches("order-").as_bytes());
    let step = Progress { step: 1, ..Progress::default() };
    let effect = move |tx: &mut EffectTx<'_>| Ok(tx.execute("INSERT INTO page VALUES (?1)", [&text]).map(drop)?);
    assert!(tasks.checkpoint_with(&claimed.lease, step, effect)?.stored, "nobody else has it");
    voice.say(News::Stepped(number));
    voice.pass("after a step of a task");
    tasks.complete(&claimed.lease, Body::new("printed").unwrap())?;
    voice.say(News::Finished(number));
    Ok(())
}

/// What a call's number makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Commit,
    Reject,
    /// It fails at first. A retry after the crash goes through.
    Abort,
}

pub(crate) fn fate(number: u64) -> Fate {
    match number % 9 {
        3 => Fate::Reject,
        5 => Fate::Abort,
        _ => Fate::Commit,
    }
}

pub(crate) fn key(number: u64) -> Key {
    Key::parse(&format!("order-{number}")).unwrap()
}

pub(crate) fn scope() -> Scope {
    Scope::new("tenant-1", "charge")
}

pub(crate) fn options() -> Options {
    // Tasks whose worker is killed stay open.
    let tasks = TaskLimits { live_per_principal: 100_000, ..TaskLimits::default() };
    Options { schema: SCHEMA.into(), secret: Some(Secret::new([7; 32])), tasks, ..Options::default() }
}

pub(crate) fn on(disk: Disk) -> Options {
    Options { vfs: Some(disk.name().into()), ..options() }
}

/// The call of this number, as a client makes it; `retry` if an earlier one may have failed.
pub(crate) fn call(ledger: &Ledger, number: u64, retry: bool) -> Result<Executed<Receipt>, LedgerError> {
    call_then(ledger, number, retry, |_| {})
}

/// As [`call`], with something to do in the effect once it has written what it writes.
pub(crate) fn call_then(
    ledger: &Ledger,
    number: u64,
    retry: bool,
    then: impl Fn(&Receipt) + Send + 'static,
) -> Result<Executed<Receipt>, LedgerError> {
    let arguments = format!(r#"{{"order":{number}}}"#);
    ledger.execute(&Request::new(&scope(), &key(number), &arguments), move |tx| {
        let done = charge(tx, number, retry);
        if let Ok(receipt) | Err(EffectError::Reject(receipt)) = &done {
            then(receipt);
        }
        done
    })
}

/// The effect of a call.
fn charge(tx: &mut EffectTx<'_>, number: u64, retry: bool) -> Result<Receipt, EffectError<Receipt>> {
    let mut receipt = Receipt::new(number, None);
    tx.execute("UPDATE account SET balance = balance + 1 WHERE id = 1", [])?;
    let message = message(number);
    let row = (format!("order-{number}"), &receipt.pad, message.is_some());
    tx.execute("INSERT INTO effect(key, pad, message) VALUES (?1, ?2, ?3)", row)?;
    let id = tx.last_insert_rowid();
    // A refusal or a failure takes it back.
    if let Some(message) = message {
        tx.enqueue(message)?;
    }
    match fate(number) {
        Fate::Reject => Err(EffectError::Reject(receipt)),
        Fate::Abort if !retry => Err(EffectError::Abort("no luck at first".into())),
        Fate::Commit | Fate::Abort => {
            receipt.effect = Some(id);
            Ok(receipt)
        }
    }
}

/// A call without a key.
pub(crate) fn walk_in(ledger: &Ledger) -> Result<(), LedgerError> {
    let done = ledger.execute_keyless(&scope(), |tx| {
        tx.execute("INSERT INTO walk_in DEFAULT VALUES", [])?;
        Ok(())
    });
    done.map(steady_ledger::Unkeyed::into_inner)
}

/// A connection that knows nothing of the ledger.
pub(crate) fn stranger(path: &Path, disk: Option<Disk>) -> rusqlite::Result<rusqlite::Connection> {
    use rusqlite::{Connection, OpenFlags};
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match disk {
        None => Connection::open_with_flags(path, flags),
        Some(disk) => Connection::open_with_flags_and_vfs(path, flags, disk.name()),
    }
}
