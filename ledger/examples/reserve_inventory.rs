//! `reserve_inventory`: a mutation that is safe to retry, and ten requirements that show it.
//!
//! Run it: `cargo run -p mcp-steady-ledger --example reserve_inventory`. Each requirement opens a shop of its own, does what
//! it says with a real file, and fails with what it saw instead. The tests run the same functions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Barrier;
use std::thread;

use serde::{Deserialize, Serialize};
use steady_core::backoff::Jitter;
use steady_core::id::ClientId;
use steady_core::retry::{Contract, SendPhase, Verdict};
use steady_core::subscription::{Config, Effect, Event, Filter, Subscription};
use steady_core::time::Instant;
use steady_ledger::{
    EffectError, EffectTx, Executed, Key, Ledger, LedgerError, Options, Request, Scope, State, Unkeyed,
};

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS stock(sku TEXT PRIMARY KEY, units INTEGER NOT NULL CHECK(units >= 0)) STRICT;
    CREATE TABLE IF NOT EXISTS reservation(
        id INTEGER PRIMARY KEY, tenant TEXT NOT NULL, sku TEXT NOT NULL, units INTEGER NOT NULL) STRICT;
    INSERT OR IGNORE INTO stock VALUES ('chair', 10), ('table', 10);";

/// What the caller asks for. The whole of it is bound to the key, the payment token too; none of it is stored.
#[derive(Clone, Deserialize, Serialize)]
struct Wanted {
    sku: String,
    units: i64,
    tenant: String,
    payment_token: String,
}

/// What the caller gets, now and at each retry.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Reserved {
    reservation: i64,
    sku: String,
    units: i64,
}

/// The mutation. All that it does is inside the transaction that also stores the key and the result.
fn take(tx: &mut EffectTx<'_>, wanted: &Wanted) -> Result<Reserved, EffectError<Reserved>> {
    tx.execute("UPDATE stock SET units = units - ?2 WHERE sku = ?1", (&wanted.sku, wanted.units))?;
    let insert = "INSERT INTO reservation(tenant, sku, units) VALUES (?1, ?2, ?3)";
    tx.execute(insert, (&wanted.tenant, &wanted.sku, wanted.units))?;
    Ok(Reserved { reservation: tx.last_insert_rowid(), sku: wanted.sku.clone(), units: wanted.units })
}

/// A shop on a ledger.
struct Shop {
    ledger: Ledger,
}

type Answer = Result<Executed<Reserved>, LedgerError>;

impl Shop {
    fn open(file: &Path) -> Result<Self, LedgerError> {
        Ok(Self { ledger: Ledger::open(file, Options { schema: SCHEMA.into(), ..Options::default() })? })
    }

    fn reserve(&self, key: &str, wanted: &Wanted) -> Answer {
        self.reserve_as("caller-1", "reserve_inventory", key, wanted)
    }

    fn reserve_as(&self, principal: &str, operation: &str, key: &str, wanted: &Wanted) -> Answer {
        let scope = Scope::new(principal, operation);
        let key = key_of(key);
        let arguments = serde_json::to_string(wanted).unwrap_or_default();
        let wanted = wanted.clone();
        self.ledger.execute(&Request::new(&scope, &key, &arguments), move |tx| take(tx, &wanted))
    }

    fn state(&self, key: &str) -> Result<Option<(State, u64)>, LedgerError> {
        let scope = Scope::new("caller-1", "reserve_inventory");
        Ok(self.ledger.reconcile(&scope, &key_of(key))?.map(|found| (found.state, found.executions)))
    }

    fn reservations(&self) -> Result<i64, LedgerError> {
        self.ledger.read(|tx| tx.query_row("SELECT count(*) FROM reservation", [], |row| row.get(0)))
    }

    fn units(&self, sku: &str) -> Result<i64, LedgerError> {
        self.ledger.read(|tx| tx.query_row("SELECT units FROM stock WHERE sku = ?1", [sku], |row| row.get(0)))
    }
}

fn key_of(text: &str) -> Key {
    Key::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn two_chairs() -> Wanted {
    Wanted { sku: "chair".into(), units: 2, tenant: "acme".into(), payment_token: "none".into() }
}

/// Why a requirement does not hold.
pub(crate) type Failure = Box<dyn std::error::Error>;

fn require(holds: bool, otherwise: &str) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// A requirement: what it says, and what shows it in an empty folder.
pub(crate) type Requirement = (&'static str, fn(&Path) -> Result<(), Failure>);

/// The ten.
pub(crate) const REQUIREMENTS: [Requirement; 10] = [
    ("a key is bound to SKU, quantity, tenant and operation", bound),
    ("the same key and arguments return the first reservation", first_again),
    ("a changed quantity fails without a second reservation", changed_quantity),
    ("a committed reservation whose response was lost is reconciled by its key", lost_response),
    ("no secret or payment data is in the result, the file, its log, or what is printed", no_secret),
    ("without a key automatic retry is off", no_key),
    ("after a lost subscription the record is read again before the next decision", lost_subscription),
    ("two connections with one key at one moment make exactly one reservation", barrier),
    ("a changed copy of the first result leaves the stored one as it was", changed_copy),
    ("after a close and a reopen the reservation is found by its key", reopened),
];

fn bound(dir: &Path) -> Result<(), Failure> {
    let shop = Shop::open(&dir.join("shop.db"))?;
    shop.reserve("order-1", &two_chairs())?.into_inner();
    let others = [
        Wanted { sku: "table".into(), ..two_chairs() },
        Wanted { units: 3, ..two_chairs() },
        Wanted { tenant: "rival".into(), ..two_chairs() },
    ];
    for other in others {
        let answer = shop.reserve("order-1", &other);
        require(matches!(answer, Err(LedgerError::Mismatch)), "other arguments were taken for the same call")?;
    }
    // Another operation, or another caller, has keys of its own: it neither replays nor reveals this one.
    let other = shop.reserve_as("caller-1", "reserve_for_press", "order-1", &two_chairs())?;
    require(!other.is_replay(), "the key of one operation answered another")?;
    let other = shop.reserve_as("caller-2", "reserve_inventory", "order-1", &two_chairs())?;
    require(!other.is_replay(), "the key of one caller answered another")?;
    require(shop.reservations()? == 3, "a refused call reserved")
}

fn first_again(dir: &Path) -> Result<(), Failure> {
    let shop = Shop::open(&dir.join("shop.db"))?;
    let first = shop.reserve("order-1", &two_chairs())?;
    let second = shop.reserve("order-1", &two_chairs())?;
    require(!first.is_replay() && second.is_replay(), "the second call was not a replay")?;
    require(first.into_inner() == second.into_inner(), "the second answer differs")?;
    require(shop.units("chair")? == 8, "the stock changed twice")
}

fn changed_quantity(dir: &Path) -> Result<(), Failure> {
    let shop = Shop::open(&dir.join("shop.db"))?;
    shop.reserve("order-1", &two_chairs())?.into_inner();
    let answer = shop.reserve("order-1", &Wanted { units: 5, ..two_chairs() });
    require(matches!(answer, Err(LedgerError::Mismatch)), "a changed quantity was accepted")?;
    require((shop.reservations()?, shop.units("chair")?) == (1, 8), "there is a second reservation")
}

fn lost_response(dir: &Path) -> Result<(), Failure> {
    let shop = Shop::open(&dir.join("shop.db"))?;
    require(shop.state("order-1")?.is_none(), "something is known of a key that was never used")?;
    let lost = shop.reserve("order-1", &two_chairs())?;
    drop(lost);
    require(shop.state("order-1")? == Some((State::Committed, 1)), "the reservation is not found by its key")?;
    require(shop.reservations()? == 1, "looking it up reserved")
}

fn no_secret(dir: &Path) -> Result<(), Failure> {
    let secret = "tok_4242424242424242";
    let shop = Shop::open(&dir.join("shop.db"))?;
    let wanted = Wanted { payment_token: secret.into(), ..two_chairs() };
    let answer = shop.reserve("order-1", &wanted)?;
    let mut printed = format!("{:?} {answer:?} {:?}", shop.ledger, shop.state("order-1")?);
    let refused = shop.reserve("order-1", &Wanted { units: 3, ..wanted });
    printed.push_str(&format!("{refused:?}"));
    if let Err(error) = &refused {
        printed.push_str(&error.to_string());
    }
    printed.push_str(&serde_json::to_string(&answer.into_inner())?);
    require(!printed.contains(secret), "the secret is in a result or in what is printed")?;
    search(dir, secret)?;
    shop.ledger.close()?;
    search(dir, secret)
}

/// Looks for a secret in every file: the database, its write-ahead log, its index.
fn search(dir: &Path, secret: &str) -> Result<(), Failure> {
    let files = fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<PathBuf>>>()?;
    require(!files.is_empty(), "there is no file to search")?;
    for file in files {
        let bytes = fs::read(&file)?;
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        require(!found, &format!("the secret is in {}", file.display()))?;
    }
    Ok(())
}

fn no_key(dir: &Path) -> Result<(), Failure> {
    let shop = Shop::open(&dir.join("shop.db"))?;
    let scope = Scope::new("caller-1", "reserve_inventory");
    for _ in 0..2 {
        let wanted = two_chairs();
        shop.ledger.execute_keyless(&scope, move |tx| take(tx, &wanted)).map(Unkeyed::into_inner)?;
    }
    require(shop.reservations()? == 2, "a call without a key did not run each time")?;
    // So a client must not repeat it by itself once it may have arrived; with a key it may.
    let keyless = Contract::default().verdict(SendPhase::MaybeSent);
    require(keyless == Verdict::ReconcileFirst, "a call without a key is repeated")?;
    let keyed = Contract::Conditional(key_of("order-1")).verdict(SendPhase::MaybeSent);
    require(keyed == Verdict::RetrySameKey, "a call with a key is not repeated")
}

fn lost_subscription(dir: &Path) -> Result<(), Failure> {
    let shop = Shop::open(&dir.join("shop.db"))?;
    let filter = Filter::parse(r#"{"resourceSubscriptions":["inventory://chair"]}"#)?;
    let now = Instant::ZERO;
    let jitter = Jitter::seeded(ClientId::new(1), 0);
    let mut subscription = Subscription::open(now, Config::default(), jitter);
    let opened = subscription.handle(now, Event::Acknowledged);
    require(opened == Effect::Opened, "the first stream does not open")?;
    let seen = shop.units("chair")?;

    // The stream is cut, and somebody else takes nine of the ten while nobody listens.
    let Effect::Wait { until } = subscription.handle(now, Event::Lost) else {
        return Err("a lost stream is not opened again".into());
    };
    shop.reserve("order-of-another", &Wanted { units: 9, ..two_chairs() })?.into_inner();
    require(subscription.handle(until, Event::Clock) == Effect::Listen, "no new request is sent")?;
    let Effect::Opened = subscription.handle(until, Event::Acknowledged) else {
        return Err("the new stream does not ask for a fresh read".into());
    };
    let what: Vec<_> = filter.refetch().iter().map(|refetch| (refetch.method(), refetch.argument())).collect();
    require(what == [("resources/read", Some(("uri", "inventory://chair")))], "not the inventory record is read")?;
    let fresh = shop.units("chair")?;
    require((seen, fresh) == (10, 1), "the fresh read does not show what was missed")?;
    // The decision on the fresh record: one chair is left, so one is taken.
    let wanted = Wanted { units: two_chairs().units.min(fresh), ..two_chairs() };
    shop.reserve("order-1", &wanted)?.into_inner();
    require(shop.units("chair")? == 0, "the decision was made on the old record")
}

fn barrier(dir: &Path) -> Result<(), Failure> {
    let file = dir.join("shop.db");
    let shops = [Shop::open(&file)?, Shop::open(&file)?];
    let start = Barrier::new(2);
    let answers = thread::scope(|threads| {
        let handles = shops.each_ref().map(|shop| {
            let start = &start;
            threads.spawn(move || {
                start.wait();
                shop.reserve("order-1", &two_chairs())
            })
        });
        handles.map(|handle| handle.join())
    });
    let mut replays = 0;
    let mut results = Vec::new();
    for answer in answers {
        let answer = answer.map_err(|_| "a caller panicked")??;
        replays += usize::from(answer.is_replay());
        results.push(answer.into_inner());
    }
    require(replays == 1 && results[0] == results[1], "the two did not agree on one reservation")?;
    require((shops[0].reservations()?, shops[0].units("chair")?) == (1, 8), "there is more than one reservation")
}

fn changed_copy(dir: &Path) -> Result<(), Failure> {
    let shop = Shop::open(&dir.join("shop.db"))?;
    let mut mine = shop.reserve("order-1", &two_chairs())?.into_inner();
    let first = mine.clone();
    mine.units = 1_000_000;
    mine.sku.push_str(" (mine)");
    require(shop.reserve("order-1", &two_chairs())?.into_inner() == first, "the stored result changed")
}

fn reopened(dir: &Path) -> Result<(), Failure> {
    let file = dir.join("shop.db");
    let shop = Shop::open(&file)?;
    let first = shop.reserve("order-1", &two_chairs())?.into_inner();
    shop.ledger.close()?;
    let shop = Shop::open(&file)?;
    require(shop.state("order-1")? == Some((State::Committed, 1)), "the key is unknown after a reopen")?;
    let again = shop.reserve("order-1", &two_chairs())?;
    require(again.is_replay() && again.into_inner() == first, "the reservation is another one after a reopen")
}

#[expect(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> ExitCode {
    let mut held = 0;
    for (what, show) in REQUIREMENTS {
        let dir = match tempfile::tempdir() {
            Ok(dir) => dir,
            Err(error) => {
                println!("no temporary folder: {error}");
                return ExitCode::from(2);
            }
        };
        match show(dir.path()) {
            Ok(()) => {
                held += 1;
                println!("holds  {what}");
            }
            Err(why) => println!("FAILS  {what}: {why}"),
        }
    }
    println!("{held} of {} requirements hold", REQUIREMENTS.len());
    if held == REQUIREMENTS.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
