//! What the fixtures share: work that takes steps, a shop on a real ledger, and a link whose replies get lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use steady_core::client::{CallOptions, Outcome, Transport};
use steady_core::id::CallId;
use steady_core::idempotency::Key;
use steady_core::kernel::{Context, Reply, Service, Tools};
use steady_core::retry::{Contract, Verdict};
use steady_core::rpc::RpcError;
use steady_core::time::Instant;
use steady_ledger::{EffectError, Executed, Executor, Ledger, LedgerError, Options, Request, Scope};

use super::FailureError;
use crate::lab::{Inventory, inventory_server};
use crate::wire::Answer;
use crate::world::{Network, NetworkOptions};

/// One way, between client and server.
pub(super) const LATENCY: Duration = Duration::from_millis(5);
/// Committed at 5 ms, and the reply is under way until 10.
pub(super) const REPLY_UNDER_WAY: Instant = Instant::from_millis(7);
/// Long after every pause and every default limit.
pub(super) const AT_REST: Instant = Instant::from_millis(3_600_000);

/// A network without a proxy.
pub(super) fn network<S: Service>(service: S, transport: Transport) -> Network<S> {
    let options = NetworkOptions { transport, to_server: LATENCY, to_client: LATENCY, held_by_proxy: Duration::ZERO };
    Network::new(service, options)
}

/// Calls, or says that the client was full.
pub(super) fn call<S: Service>(
    network: &mut Network<S>,
    tool: &str,
    arguments: &str,
    contract: Contract,
) -> Result<CallId, FailureError> {
    let options = CallOptions { contract, ..CallOptions::default() };
    network.call(tool, arguments, options).ok_or(FailureError::Setup("the client takes no call"))
}

/// The stream of the newest attempt breaks.
pub(super) fn break_newest<S: Service>(network: &mut Network<S>) {
    if let Some((_, wire)) = network.attempts.last().copied() {
        network.break_stream(wire);
    }
}

/// How a call ended.
pub(super) fn ended<S: Service>(network: &Network<S>, call: CallId) -> Option<(&Outcome<Answer>, Option<Verdict>)> {
    network.finished.get(&call).map(|(_, finished)| (&finished.outcome, finished.verdict))
}

/// The answer to a call, if there is one.
pub(super) fn answer<S: Service>(network: &Network<S>, call: CallId) -> Option<&Answer> {
    match ended(network, call)?.0 {
        Outcome::Answered(answer) => Some(answer),
        Outcome::Cancelled | Outcome::IdleTimeout | Outcome::MaxTimeout | Outcome::NeverSent | Outcome::Unknown => None,
    }
}

/// Responses that left the server.
pub(super) fn responses<S: Service>(network: &Network<S>) -> usize {
    let is_response = |text: &str| text.contains("\"result\":") || text.contains("\"error\":");
    network.wires.iter().filter(|wire| !wire.from_client && is_response(&wire.text)).count()
}

/// A contract with the key of the story.
pub(super) fn keyed() -> Result<Contract, FailureError> {
    Ok(Contract::Conditional(Key::parse("order-7")?))
}

/// The story's order, of this many widgets.
pub(super) fn order(quantity: u32, key: Option<&str>) -> String {
    let key = key.map(|key| format!(r#","idempotencyKey":"{key}""#)).unwrap_or_default();
    format!(r#"{{"sku":"widget","quantity":{quantity},"tenant":"acme"{key}}}"#)
}

/// The shop of the lab, on a real ledger file.
pub(super) struct Shop {
    pub(super) network: Network<Tools>,
    inventory: Inventory,
}

impl Shop {
    /// Over HTTP.
    pub(super) fn open(dir: &Path) -> Result<Self, FailureError> {
        let inventory = Inventory::open(dir.join("shop.db"), "tester")?;
        Ok(Self { network: network(inventory_server(inventory.clone()), Transport::Http), inventory })
    }

    /// Reservations that were made.
    pub(super) fn effects(&self) -> Result<u64, FailureError> {
        let (_, reservations) = self.inventory.count("widget")?;
        Ok(u64::try_from(reservations).unwrap_or_default())
    }
}

/// How many steps the work has.
pub(super) const STEPS: u32 = 10;

/// A tool of ten steps of 10 ms, which looks before each whether it should stop. Counts what it did.
#[derive(Clone, Default)]
pub(super) struct Work(Arc<AtomicU32>);

impl Work {
    pub(super) const TOOL: &str = "work";

    pub(super) fn server(&self) -> Tools {
        let work = self.clone();
        Tools::new("work", "1").tool(Self::TOOL, "Works.", r#"{"type":"object"}"#, move |_, cx| work.clone().run(cx))
    }

    async fn run(self, cx: Context) -> Result<Reply, RpcError> {
        for step in 1..=STEPS {
            cx.sleep_until(cx.now() + Duration::from_millis(10)).await?;
            self.0.fetch_add(1, Ordering::Relaxed);
            cx.report(step.into(), Some(STEPS.into()), "");
        }
        Ok(Reply::text("done"))
    }

    /// Steps that were done.
    pub(super) fn steps(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A ledger with a table of sales.
pub(super) struct Till(pub(super) Ledger);

impl Till {
    /// A handle on the ledger in this file. It answers on the thread that calls: the same events, the same order.
    pub(super) fn open(file: &Path, options: Options) -> Result<Self, LedgerError> {
        let schema = "CREATE TABLE IF NOT EXISTS sale(id INTEGER PRIMARY KEY, amount INTEGER NOT NULL) STRICT;";
        let options = Options { schema: schema.into(), executor: Executor::Inline, ..options };
        Ledger::open(file, options).map(Self)
    }

    pub(super) fn scope() -> Scope {
        Scope::new("tester", "sell")
    }

    /// Sells for this amount, once for the key; the number of the sale.
    pub(super) fn sell(&self, key: &Key, amount: i64) -> Result<Executed<Vec<i64>>, LedgerError> {
        let arguments = format!(r#"{{"amount":{amount}}}"#);
        self.0.execute(&Request::new(&Self::scope(), key, &arguments), move |tx| {
            tx.execute("INSERT INTO sale(amount) VALUES (?1)", [amount])?;
            Ok::<_, EffectError<_>>(vec![tx.last_insert_rowid(), amount])
        })
    }

    pub(super) fn sales(&self) -> Result<u64, LedgerError> {
        let count = self.0.read(|tx| tx.query_row("SELECT count(*) FROM sale", [], |row| row.get::<_, i64>(0)))?;
        Ok(u64::try_from(count).unwrap_or_default())
    }
}
