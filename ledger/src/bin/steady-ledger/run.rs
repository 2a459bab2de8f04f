//! What each command does.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::value::RawValue;
use steady_ledger::admin::{Checked, KeyFilter, KeyRow, MessageRow, Overview, state_name};
use steady_ledger::{Collected, Key, LiveTask, Resolved, Scope, Secret, TaskError};

use crate::args::{Cli, Command, KeyArgs, Outcome};
use crate::bar::{advance, bar};
use crate::show::{plain, print, table, time};
use crate::store::Store;

/// How many messages and tasks that wait for a decision are listed.
const MAX_DOUBTS: u32 = 100;
/// Pages that are given back between two looks at the progress bar.
const PAGES: u32 = 1000;
/// Tasks that are deleted in one transaction.
const TASKS: u32 = 500;
/// Rows that are deleted between two looks at the progress bar.
const GC_BATCH: u32 = 5000;

type Done = Result<ExitCode, Box<dyn Error>>;

pub(crate) fn run(cli: &Cli) -> Done {
    let json = cli.json;
    let secret = || cli.secret_file.as_deref().map(read_secret).transpose();
    let open = |file: &Path| Store::open(file, secret()?);
    match &cli.command {
        Command::Inspect { file, keys, state, principal, operation, limit } => {
            let filter = KeyFilter {
                principal: principal.as_deref().map(Box::from),
                operation: operation.as_deref().map(Box::from),
                state: state.as_deref().map(Box::from),
            };
            inspect(json, &open(file)?, keys.then_some((filter, *limit)))
        }
        Command::Reconcile { file, key, result } => reconcile(json, &open(file)?, key, *result),
        Command::Resolve { file, key, outcome, actor, note } => resolve(json, &open(file)?, key, outcome, actor, note),
        Command::Gc { file, limit } => gc(json, &open(file)?, *limit),
        Command::Verify { file } => verify(json, &open(file)?),
        Command::Backup { file, to } => backup(json, &open(file)?, to),
        #[cfg(feature = "postgres")]
        Command::Migrate { file, url } => crate::database::migrate(json, file, url, secret()?),
    }
}

fn read_secret(file: &Path) -> Result<Secret, Box<dyn Error>> {
    let text = fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let digits = text.trim();
    let mut bytes = [0; 32];
    let pairs = digits.as_bytes().chunks_exact(2);
    let valid = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !valid {
        return Err(format!("{}: a secret is 64 hexadecimal digits", file.display()).into());
    }
    for (byte, pair) in bytes.iter_mut().zip(pairs) {
        *byte = u8::from_str_radix(str::from_utf8(pair)?, 16)?;
    }
    Ok(Secret::new(bytes))
}

impl KeyArgs {
    fn parse(&self) -> Result<(Scope, Key), Box<dyn Error>> {
        Ok((Scope::new(&*self.principal, &*self.operation), Key::parse(&self.key)?))
    }
}

#[derive(Serialize)]
struct Inspected {
    #[serde(flatten)]
    overview: Overview,
    /// Messages that wait for a decision.
    stuck_messages: Vec<MessageRow>,
    /// Tasks that wait for a decision.
    tasks_in_doubt: Vec<DoubtfulTask>,
    #[serde(skip_serializing_if = "Option::is_none")]
    listed: Option<Vec<KeyRow>>,
}

#[derive(Serialize)]
struct DoubtfulTask {
    id: String,
    principal: Box<str>,
    operation: Box<str>,
    created_ms: i64,
}

impl From<LiveTask> for DoubtfulTask {
    fn from(task: LiveTask) -> Self {
        let LiveTask { id, scope, created_at, .. } = task;
        let Scope { principal, operation } = scope;
        Self { id: id.to_string(), principal, operation, created_ms: created_at.unix_millis() }
    }
}

fn inspect(json: bool, ledger: &Store, keys: Option<(KeyFilter, u32)>) -> Done {
    let listed = keys.map(|(filter, limit)| ledger.keys(&filter, limit)).transpose()?;
    let tasks_in_doubt = ledger.tasks_in_doubt(MAX_DOUBTS)?.into_iter().map(DoubtfulTask::from).collect();
    let stuck_messages = ledger.stuck_messages(MAX_DOUBTS)?;
    let inspected = Inspected { overview: ledger.overview()?, stuck_messages, tasks_in_doubt, listed };
    print(json, &inspected, |Inspected { overview, stuck_messages, tasks_in_doubt, listed }| {
        let mut rows = vec![
            vec!["schema".to_owned(), overview.schema.to_string()],
            vec!["created".to_owned(), time(overview.created_ms)],
            vec!["size".to_owned(), format!("{} bytes", overview.file_bytes)],
            vec!["effects without a key".to_owned(), overview.keyless_executions.to_string()],
        ];
        rows.extend(overview.oldest_open_ms.map(|since| vec!["oldest open key".to_owned(), time(since)]));
        let count = |what: &str, state: &str, count: u64| vec![format!("{what} {state}"), count.to_string()];
        rows.extend(overview.keys.iter().map(|(state, number)| count("keys", state, *number)));
        rows.extend(overview.outbox.iter().map(|(state, number)| count("messages", state, *number)));
        rows.extend(overview.tasks.iter().map(|(status, number)| count("tasks", status, *number)));
        let mut text = table(&rows);
        if !stuck_messages.is_empty() {
            let head = ["stuck message for", "principal", "operation", "key", "number", "state", "reason"];
            text.push_str(&list(head, stuck_messages, |row| {
                let MessageRow { target, principal, operation, key, ordinal, state, reason, .. } = row;
                let reason = reason.as_deref().unwrap_or_default();
                [&**target, principal, operation, key, &ordinal.to_string(), state, reason].map(str::to_owned)
            }));
        }
        if !tasks_in_doubt.is_empty() {
            let head = ["task in doubt", "principal", "operation", "since"];
            text.push_str(&list(head, tasks_in_doubt, |task| {
                let DoubtfulTask { id, principal, operation, created_ms } = task;
                [&**id, principal, operation, &time(*created_ms)].map(str::to_owned)
            }));
        }
        if let Some(keys) = listed {
            let head = ["principal", "operation", "key", "state", "executions", "since"];
            text.push_str(&list(head, keys, |row| {
                let KeyRow { principal, operation, key, state, executions, recorded_ms, .. } = row;
                [&**principal, operation, key, state, &executions.to_string(), &time(*recorded_ms)].map(str::to_owned)
            }));
        }
        text
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A table under an empty line, with a row for each.
fn list<T, const N: usize>(head: [&str; N], all: &[T], row: impl Fn(&T) -> [String; N]) -> String {
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|one| row(one).to_vec()));
    format!("\n{}", table(&rows))
}

#[derive(Serialize)]
struct Known {
    known: bool,
    #[serde(flatten)]
    state: Option<KnownState>,
    /// What another system got, if this key's effect is outside of the ledger.
    upstream_key: Box<str>,
    audit: Vec<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Decision {
    at_ms: i64,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<u32>,
    actor: Box<str>,
    note: Box<str>,
}

#[derive(Serialize)]
struct KnownState {
    state: &'static str,
    executions: u64,
    recorded_ms: i64,
    expires_ms: i64,
}

fn reconcile(json: bool, ledger: &Store, key: &KeyArgs, with_result: bool) -> Done {
    let (scope, key) = key.parse()?;
    let state = ledger.reconcile(&scope, &key)?.map(|found| KnownState {
        state: state_name(found.state),
        executions: found.executions,
        recorded_ms: found.recorded_at.unix_millis(),
        expires_ms: found.expires_at.unix_millis(),
    });
    let result = if with_result { ledger.stored_result(&scope, &key)? } else { None };
    let result = result.map(|body| serde_json::from_slice(&body)).transpose()?;
    let decisions = ledger.audit(&scope, &key)?.into_iter().map(|entry| Decision {
        at_ms: entry.at.unix_millis(),
        action: entry.action.as_str(),
        message: entry.message,
        actor: entry.actor,
        note: entry.note,
    });
    let upstream_key = ledger.upstream_key(&scope, &key);
    let known = Known { known: state.is_some(), state, upstream_key, audit: decisions.collect(), result };
    print(json, &known, |known| {
        let Some(state) = &known.state else {
            return "nothing is known of this key: its operation was not committed here".to_owned();
        };
        let mut text = table(&[
            vec!["state".to_owned(), state.state.to_owned()],
            vec!["executions".to_owned(), state.executions.to_string()],
            vec!["since".to_owned(), time(state.recorded_ms)],
            vec!["replayed until".to_owned(), time(state.expires_ms)],
            vec!["upstream key".to_owned(), known.upstream_key.to_string()],
        ]);
        for decision in &known.audit {
            let Decision { at_ms, action, .. } = decision;
            let (actor, note) = (plain(&decision.actor), plain(&decision.note));
            let message = decision.message.map_or_else(String::new, |number| format!(" message {number}"));
            writeln!(text, "{}{message} {action} by {actor}: {note}", time(*at_ms)).unwrap_or_default();
        }
        if let Some(result) = &known.result {
            text.push_str(&plain(result.get()));
        }
        text
    })?;
    Ok(if known.known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Serialize)]
struct Settled<'a> {
    resolved: &'a str,
}

fn resolve(json: bool, ledger: &Store, key: &KeyArgs, outcome: &Outcome, actor: &str, note: &str) -> Done {
    let (scope, key) = key.parse()?;
    let read = |option: &str, text: &str| -> Result<serde_json::Value, String> {
        serde_json::from_str(text).map_err(|error| format!("--{option} is no JSON: {error}"))
    };
    let (resolved, state) = match (&outcome.committed, &outcome.rejected) {
        (Some(value), _) => (Resolved::Committed(read("committed", value)?), "committed"),
        (None, Some(value)) => (Resolved::Rejected(read("rejected", value)?), "rejected"),
        (None, None) => return Err("give --committed or --rejected".into()),
    };
    ledger.resolve(&scope, &key, &resolved, actor, note)?;
    print(json, &Settled { resolved: state }, |settled| format!("the key is {} now", settled.resolved))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Default, Serialize)]
struct Gone {
    #[serde(flatten)]
    rows: Collected,
    /// Tasks that were deleted, as their time was over.
    tasks: usize,
    /// Tasks that were put in doubt.
    tasks_in_doubt: usize,
    /// Bytes that were given back to the file system.
    freed_bytes: u64,
}

impl Gone {
    /// Tasks that are over go before their keys can.
    fn of_tasks(ledger: &Store, limit: u32) -> Result<Self, TaskError> {
        let mut gone = Self::default();
        loop {
            let doubts = ledger.expire_leases(TASKS)?;
            gone.tasks_in_doubt += doubts;
            let left = limit.saturating_sub(u32::try_from(gone.tasks).unwrap_or(u32::MAX));
            let tasks = ledger.collect_expired(left.min(TASKS))?;
            gone.tasks += tasks;
            if doubts == 0 && tasks == 0 {
                return Ok(gone);
            }
        }
    }
}

fn gc(json: bool, ledger: &Store, limit: u32) -> Done {
    let Gone { tasks, tasks_in_doubt, .. } = Gone::of_tasks(ledger, limit)?;
    let limit = limit.saturating_sub(u32::try_from(tasks).unwrap_or(u32::MAX));
    let bar = bar("rows");
    let mut total = Collected::default();
    loop {
        let left = limit - total.rows();
        let batch = ledger.collect(left.min(GC_BATCH))?;
        total = total.and(batch);
        bar.set_position(total.rows().into());
        if !batch.more || total.rows() >= limit {
            break;
        }
    }
    let mut freed_bytes = 0;
    loop {
        match ledger.shrink(PAGES)? {
            0 => break,
            bytes => freed_bytes += bytes,
        }
    }
    bar.finish_and_clear();
    let gone = Gone { rows: total, tasks, tasks_in_doubt, freed_bytes };
    print(json, &gone, |Gone { rows: total, .. }| {
        let mut text = table(&[
            vec!["results deleted".to_owned(), total.expired.to_string()],
            vec!["tombstones deleted".to_owned(), total.forgotten.to_string()],
            vec!["messages deleted".to_owned(), total.messages.to_string()],
            vec!["keys put in doubt".to_owned(), total.in_doubt.to_string()],
            vec!["tasks deleted".to_owned(), tasks.to_string()],
            vec!["tasks put in doubt".to_owned(), tasks_in_doubt.to_string()],
            vec!["bytes given back".to_owned(), freed_bytes.to_string()],
        ]);
        if total.held_back {
            text.push_str("the clock has jumped ahead by more than an hour: run this again in a minute to confirm it");
        }
        text
    })?;
    Ok(ExitCode::SUCCESS)
}

fn verify(json: bool, ledger: &Store) -> Done {
    let bar = bar("keys");
    let checked = ledger.check(|done, all| advance(&bar, done, all))?;
    bar.finish_and_clear();
    print(json, &checked, |Checked { keys, findings, .. }| {
        let mut text = String::new();
        for finding in findings {
            writeln!(text, "{}: {}", plain(&finding.place), plain(&finding.what)).unwrap_or_default();
        }
        let verdict = if findings.is_empty() { "sound" } else { "NOT sound: stop using it, restore a backup" };
        write!(text, "{keys} keys read; the ledger is {verdict}").unwrap_or_default();
        text
    })?;
    Ok(if checked.is_sound() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[derive(Serialize)]
struct BackedUp {
    to: String,
    bytes: u64,
}

fn backup(json: bool, ledger: &Store, to: &Path) -> Done {
    let bar = bar("pages");
    ledger.backup(to, |done, all| advance(&bar, done, all))?;
    bar.finish_and_clear();
    let done = BackedUp { to: to.display().to_string(), bytes: fs::metadata(to)?.len() };
    print(json, &done, |done| format!("{}: {} bytes", done.to, done.bytes))?;
    Ok(ExitCode::SUCCESS)
}
