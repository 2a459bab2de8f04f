//! The command `steady-ledger`, run as a program on real files.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use steady_ledger::{
    Begun, EffectError, Executed, External, Key, Ledger, Message, Options, Request, Scope, Secret, TaskSpec, rusqlite,
};

/// What only the caller may see.
const SECRET_RESULT: &str = "card-4111-1111-1111-1111";

struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        let files = Self { dir: tempfile::tempdir().unwrap() };
        let ledger = files.open(Options::default());
        let scope = Scope::new("tenant-1", "charge");
        let run = |key: &str, reject: bool| {
            let key = Key::parse(key).unwrap();
            let done = ledger.execute(&Request::new(&scope, &key, "{}"), move |_| {
                if reject { Err(EffectError::Reject("refused".to_owned())) } else { Ok(SECRET_RESULT.to_owned()) }
            });
            assert!(matches!(done, Ok(Executed::Fresh(_))));
        };
        run("order-1", false);
        run("order-2", true);
        files
    }

    fn open(&self, options: Options) -> Ledger {
        Ledger::open(self.file(), options).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.path("shop.db")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A connection that knows nothing of the ledger, to tamper.
    fn stranger(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.file()).unwrap()
    }
}

fn steady_ledger(args: &[&str], file: &Path) -> Output {
    let (command, rest) = args.split_first().unwrap();
    Command::new(env!("CARGO_BIN_EXE_steady-ledger")).arg(command).arg(file).args(rest).output().unwrap()
}

/// Runs a command with `--json`; its exit code and answer.
fn answer(args: &[&str], file: &Path) -> (i32, Value) {
    let output = steady_ledger(&[args, &["--json"]].concat(), file);
    let said = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
    (output.status.code().unwrap(), serde_json::from_slice(said).unwrap())
}

const ORDER_1: [&str; 5] = ["--principal", "tenant-1", "--operation", "charge", "order-1"];

#[test]
fn inspect_counts_and_lists_without_results() {
    let files = Files::new();
    let (code, overview) = answer(&["inspect", "--keys"], &files.file());
    assert_eq!(code, 0);
    assert_eq!(overview["keys"], serde_json::json!([["committed", 1], ["rejected", 1]]));
    assert_eq!(overview["listed"][1]["key"], "order-2");
    let (_, rejected) = answer(&["inspect", "--keys", "--state", "rejected"], &files.file());
    assert_eq!(rejected["listed"].as_array().unwrap().len(), 1);

    let text = steady_ledger(&["inspect", "--keys"], &files.file());
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("order-1") && !text.contains(SECRET_RESULT), "{text}");
}

#[test]
fn reconcile_prints_a_result_only_if_asked() {
    let files = Files::new();
    let args = [&["reconcile"], &ORDER_1[..]].concat();
    let (code, known) = answer(&args, &files.file());
    assert_eq!((code, &known["state"], &known["executions"]), (0, &Value::from("committed"), &Value::from(1)));
    assert!(!known.to_string().contains(SECRET_RESULT));
    let (_, with_result) = answer(&[&args[..], &["--result"]].concat(), &files.file());
    assert_eq!(with_result["result"], SECRET_RESULT);

    let unknown = ["reconcile", "--principal", "tenant-1", "--operation", "charge", "order-9"];
    assert_eq!(answer(&unknown, &files.file()).0, 1);
}

#[test]
fn verify_finds_a_changed_result_and_names_its_key() {
    let files = Files::new();
    assert_eq!(answer(&["verify"], &files.file()).0, 0);
    files.stranger().execute("UPDATE ledger_result SET body = x'31' WHERE id = 1", []).unwrap();
    let (code, checked) = answer(&["verify"], &files.file());
    assert_eq!((code, &checked["findings"][0]["place"]), (1, &Value::from("tenant-1 / charge / order-1")));
    files.stranger().execute("INSERT INTO ledger_result(body) VALUES (x'31')", []).unwrap();
    let (_, checked) = answer(&["verify"], &files.file());
    assert_eq!(checked["findings"].as_array().unwrap().len(), 2);
}

#[test]
fn a_backup_of_a_ledger_in_use_holds_all_that_was_acknowledged() {
    let files = Files::new();
    let ledger = files.open(Options::default());
    let to = files.path("copy.db");
    assert_eq!(answer(&["backup", to.to_str().unwrap()], &files.file()).0, 0);
    assert_eq!(answer(&["verify"], &to).0, 0);
    assert_eq!(answer(&[&["reconcile"], &ORDER_1[..]].concat(), &to).0, 0);
    drop(ledger);

    let before = std::fs::read(&to).unwrap();
    let (code, refused) = answer(&["backup", to.to_str().unwrap()], &files.file());
    assert_eq!(code, 2);
    assert!(refused["error"].as_str().unwrap().contains("exists"), "{refused}");
    assert_eq!(std::fs::read(&to).unwrap(), before);
    let left: Vec<_> = std::fs::read_dir(files.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("partial")), "{left:?}");
}

#[test]
fn what_is_no_ledger_is_refused_and_nothing_is_created() {
    let files = Files::new();
    let missing = files.path("missing.db");
    let (code, refused) = answer(&["inspect"], &missing);
    assert_eq!(code, 2);
    assert!(refused["error"].as_str().unwrap().contains("does not exist"), "{refused}");
    assert!(!missing.exists());

    let text = files.path("notes.txt");
    std::fs::write(&text, "no ledger, but long enough to be looked at as a database file".repeat(40)).unwrap();
    let (code, refused) = answer(&["inspect"], &text);
    assert_eq!(code, 2);
    assert!(refused["error"].as_str().unwrap().contains("notes.txt: the file is not a ledger"), "{refused}");
}

#[test]
fn a_ledger_of_an_older_schema_is_left_as_it_is() {
    let files = Files::new();
    let old = files.path("old.db");
    let conn = rusqlite::Connection::open(&old).unwrap();
    conn.execute_batch(include_str!("fixtures/schema-1.sql")).unwrap();
    conn.close().unwrap();
    let (code, refused) = answer(&["inspect"], &old);
    assert_eq!(code, 2);
    assert!(refused["error"].as_str().unwrap().contains("schema 1"), "{refused}");
    let conn = rusqlite::Connection::open(&old).unwrap();
    let version: i64 = conn.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
}

#[test]
fn a_configured_secret_is_read_from_a_file() {
    let files = Files { dir: tempfile::tempdir().unwrap() };
    drop(files.open(Options { secret: Some(Secret::new([0xab; 32])), ..Options::default() }));
    let secret = files.path("secret");
    let with = |text: &str| {
        std::fs::write(&secret, text).unwrap();
        answer(&["inspect", "--secret-file", secret.to_str().unwrap()], &files.file())
    };
    assert_eq!(with(&format!("{}\n", "ab".repeat(32))).0, 0);
    assert!(with(&"ac".repeat(32)).1["error"].as_str().unwrap().contains("another secret"));
    assert!(with("ab").1["error"].as_str().unwrap().contains("64 hexadecimal digits"));
    assert_eq!(answer(&["inspect"], &files.file()).0, 2);
}

#[test]
fn a_key_in_doubt_is_resolved_once_and_the_decision_is_written_down() {
    let files = Files::new();
    let (scope, key) = (Scope::new("tenant-1", "charge"), Key::parse("order-7").unwrap());
    let request = Request::new(&scope, &key, "{}");
    let ledger = files.open(Options::default());
    let Begun::Send(attempt) = ledger.begin::<Value>(&request, &External::new(Duration::from_secs(30))).unwrap() else {
        panic!("a new key is this caller's to send");
    };
    let order = ["--principal", "tenant-1", "--operation", "charge", "order-7"];
    let decision = ["--committed", r#"{"charge":"ch_1"}"#, "--actor", "ops", "--note", "seen in the dashboard"];
    let resolve = [&["resolve"], &order[..], &decision[..]].concat();
    let (code, refused) = answer(&resolve, &files.file());
    assert_eq!(code, 2, "its sender still has its lease: {refused}");
    attempt.in_doubt().unwrap();

    assert_eq!(answer(&resolve, &files.file()), (0, serde_json::json!({ "resolved": "committed" })));
    assert_eq!(answer(&resolve, &files.file()).0, 2, "a decision is made once");
    let (_, known) = answer(&[&["reconcile"], &order[..], &["--result"]].concat(), &files.file());
    assert_eq!((&known["state"], &known["result"]["charge"]), (&Value::from("committed"), &Value::from("ch_1")));
    let last = known["audit"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["action"], &last["actor"]), (&Value::from("resolved_committed"), &Value::from("ops")));
    let Begun::Replayed(value) = ledger.begin::<Value>(&request, &External::new(Duration::from_secs(30))).unwrap()
    else {
        panic!("the outcome is known");
    };
    assert_eq!(value["charge"], "ch_1");

    let bad = [&["resolve"], &order[..], &["--committed", "{", "--actor", "ops", "--note", "x"]].concat();
    assert!(answer(&bad, &files.file()).1["error"].as_str().unwrap().contains("--committed is no JSON"));
}

#[test]
fn gc_deletes_results_that_are_past_their_retention_and_keeps_their_keys() {
    let files = Files { dir: tempfile::tempdir().unwrap() };
    let ledger = files.open(Options { retention: Duration::ZERO, ..Options::default() });
    let (scope, key) = (Scope::new("tenant-1", "charge"), Key::parse("order-1").unwrap());
    ledger.execute(&Request::new(&scope, &key, "{}"), |_| Ok(SECRET_RESULT.to_owned())).unwrap().into_inner();
    // Retention ends once the clock has moved on.
    let expired = loop {
        let (code, collected) = answer(&["gc"], &files.file());
        assert_eq!(code, 0, "{collected}");
        match collected["expired"].as_u64().unwrap() {
            0 => std::thread::yield_now(),
            count => break count,
        }
    };
    assert_eq!(expired, 1);
    let (_, known) = answer(&[&["reconcile"], &ORDER_1[..], &["--result"]].concat(), &files.file());
    assert_eq!((&known["state"], known.get("result")), (&Value::from("expired"), None));
}

#[cfg(unix)]
#[test]
fn a_backup_is_as_private_as_the_ledger() {
    use std::os::unix::fs::PermissionsExt;

    let files = Files::new();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for wanted in [0o600, 0o640] {
        std::fs::set_permissions(files.file(), std::fs::Permissions::from_mode(wanted)).unwrap();
        let to = files.path(&format!("copy-{wanted:o}.db"));
        assert_eq!(answer(&["backup", to.to_str().unwrap()], &files.file()).0, 0);
        assert_eq!(format!("{:o}", mode(&to)), format!("{wanted:o}"));
    }
}

#[test]
fn what_others_wrote_cannot_steer_the_terminal() {
    let files = Files::new();
    let (principal, note) = ("ten\u{1b}[2Jant\u{9b}31m", "fine\ncommitted\u{202e}\u{7}");
    let (scope, key) = (Scope::new(principal, "charge"), Key::parse("order-8").unwrap());
    let ledger = files.open(Options::default());
    let begun = ledger.begin::<Value>(&Request::new(&scope, &key, "{}"), &External::new(Duration::from_secs(30)));
    let Begun::Send(attempt) = begun.unwrap() else { panic!("a new key is this caller's to send") };
    attempt.in_doubt().unwrap();
    let place = ["--principal", principal, "--operation", "charge", "order-8"];
    let resolve = [&["resolve"], &place[..], &["--committed", "1", "--actor", note, "--note", note]].concat();
    assert_eq!(answer(&resolve, &files.file()).0, 0);
    files.stranger().execute("UPDATE ledger_result SET body = x'3120'", []).unwrap();

    for args in [&["inspect", "--keys"][..], &[&["reconcile"], &place[..]].concat(), &["verify"]] {
        let text = String::from_utf8(steady_ledger(args, &files.file()).stdout).unwrap();
        assert!(text.contains("fine") || text.contains("ten\\u{1b}[2Jant\\u{9b}31m"), "{text:?}");
        assert!(!text.contains("\ncommitted"), "a line of its own: {text:?}");
        let json = steady_ledger(&[args, &["--json"]].concat(), &files.file());
        let json = String::from_utf8(json.stdout).unwrap();
        for text in [text, json] {
            let steers = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
            assert!(!text.contains(steers), "{text:?}");
        }
    }
    let (_, known) = answer(&[&["reconcile"], &place[..]].concat(), &files.file());
    assert_eq!(known["audit"].as_array().unwrap().last().unwrap()["note"], note, "JSON stays exact");
}

#[test]
fn what_the_program_keeps_counts_and_not_a_default() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let files = Files { dir: tempfile::tempdir().unwrap() };
    let long = Options { retention: 1000 * DAY, key_horizon: Some(2000 * DAY), ..Options::default() };
    let ledger = files.open(long);
    let (scope, key) = (Scope::new("tenant-1", "charge"), Key::parse("order-7").unwrap());
    let begun = ledger.begin::<Value>(&Request::new(&scope, &key, "{}"), &External::new(Duration::from_secs(30)));
    let Begun::Send(attempt) = begun.unwrap() else { panic!("a new key is this caller's to send") };
    attempt.in_doubt().unwrap();
    // A time-ordered UUID of today.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let hex = format!("{now:012x}");
    let young = Key::parse(&format!("{}-{}-7000-8000-000000000000", &hex[..8], &hex[8..])).unwrap();
    ledger.execute(&Request::new(&scope, &young, "{}"), |_| Ok(1)).unwrap().into_inner();
    ledger.close().unwrap();

    let order = ["--principal", "tenant-1", "--operation", "charge", "order-7"];
    let resolve = [&["resolve"], &order[..], &["--committed", "1", "--actor", "ops", "--note", "seen"]].concat();
    assert_eq!(answer(&resolve, &files.file()).0, 0);
    let (_, known) = answer(&[&["reconcile"], &order[..]].concat(), &files.file());
    let kept = known["expires_ms"].as_i64().unwrap() - known["recorded_ms"].as_i64().unwrap();
    assert_eq!(kept, i64::try_from((1000 * DAY).as_millis()).unwrap());

    let (_, collected) = answer(&["gc"], &files.file());
    assert_eq!((&collected["expired"], &collected["forgotten"]), (&Value::from(0), &Value::from(0)));
    files.stranger().execute("UPDATE ledger_key SET expires_ms = 0", []).unwrap();
    drop(files.open(Options { key_horizon: Some(Duration::ZERO), ..Options::default() }));
    // Its time is past once the clock has moved on.
    let forgotten = loop {
        let (code, collected) = answer(&["gc"], &files.file());
        assert_eq!(code, 0, "{collected}");
        match collected["forgotten"].as_u64().unwrap() {
            0 => std::thread::yield_now(),
            count => break count,
        }
    };
    assert_eq!(forgotten, 1);
}

#[test]
fn inspect_lists_what_waits_for_a_decision_and_gc_deletes_tasks_and_gives_space_back() {
    let files = Files { dir: tempfile::tempdir().unwrap() };
    let ledger = files.open(Options { retention: Duration::ZERO, ..Options::default() });
    let (scope, key) = (Scope::new("tenant-1", "charge"), Key::parse("order-1").unwrap());
    let large = "x".repeat(1 << 20);
    let leave = move |tx: &mut steady_ledger::EffectTx<'_>| {
        tx.enqueue(Message::new("mail", "hello"))?;
        Ok(large.clone())
    };
    ledger.execute(&Request::new(&scope, &key, "{}"), leave).unwrap().into_inner();
    let tasks = ledger.tasks();
    let work = Scope::new("tenant-1", "import");
    let doubtful = tasks.create_keyless(&work, TaskSpec::default()).unwrap();
    let claimed = tasks.claim(&["import"], "worker-1", Duration::from_secs(60)).unwrap().unwrap();
    tasks.external_started(&claimed.lease).unwrap();
    let over = tasks.create_keyless(&work, TaskSpec::default()).unwrap();
    let stranger = files.stranger();
    let changes = "UPDATE ledger_outbox SET state = 4, reason = 'no such address';
                   UPDATE ledger_task SET in_doubt = 1 WHERE external_open = 1;
                   UPDATE ledger_task SET expires_ms = 0, claimable_ms = 0 WHERE external_open = 0;";
    stranger.execute_batch(changes).unwrap();

    let (_, seen) = answer(&["inspect"], &files.file());
    assert_eq!(seen["stuck_messages"][0]["reason"], "no such address");
    assert_eq!(seen["tasks_in_doubt"][0]["id"], doubtful.id.to_string());
    let text = String::from_utf8(steady_ledger(&["inspect"], &files.file()).stdout).unwrap();
    assert!(text.contains("no such address") && text.contains(doubtful.id.as_str()), "{text}");

    stranger.execute("UPDATE ledger_outbox SET state = 6, payload = NULL, head = 0", []).unwrap();
    stranger.execute("UPDATE ledger_meta SET outbox_open = 0", []).unwrap();
    let mut gone = (0, 0, 0);
    while gone.0 == 0 {
        let (code, collected) = answer(&["gc"], &files.file());
        assert_eq!(code, 0, "{collected}");
        let number = |name: &str| collected[name].as_u64().unwrap();
        gone = (gone.0 + number("expired"), gone.1 + number("tasks"), gone.2 + number("freed_bytes"));
    }
    assert_eq!((gone.0, gone.1), (1, 1));
    assert!(gone.2 > 1 << 19, "{} bytes", gone.2);
    assert!(tasks.get("tenant-1", &over.id).is_err());
    assert!(tasks.get("tenant-1", &doubtful.id).is_ok());
}
