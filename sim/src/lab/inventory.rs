//! Stock and reservations, in the ledger's own file, so that a reservation and its key are one transaction.

use std::collections::BTreeMap;
use std::path::Path;

use super::stock::Stock;
use serde::{Deserialize, Serialize};
use steady_ledger::{
    EffectError, EffectTx, Executed, Key, Ledger, LedgerError, Options, Reconciled, Request, Scope, Tasks,
};

const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS stock(
    sku TEXT PRIMARY KEY,
    available INTEGER NOT NULL CHECK(available >= 0)) STRICT;
CREATE TABLE IF NOT EXISTS reservation(
    id INTEGER PRIMARY KEY,
    sku TEXT NOT NULL REFERENCES stock,
    quantity INTEGER NOT NULL CHECK(quantity > 0),
    tenant TEXT NOT NULL,
    remaining INTEGER NOT NULL) STRICT;
INSERT OR IGNORE INTO stock VALUES ('widget', 1000), ('gadget', 10), ('gizmo', 1);";

/// The name of the mutation, which scopes its keys.
const RESERVE: &str = "reserve_inventory";
/// The argument that carries the key; it is no part of what is reserved.
pub(super) const KEY_ARGUMENT: &str = "idempotencyKey";

/// What a caller asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) sku: String,
    pub(super) quantity: i64,
    pub(super) tenant: String,
    #[expect(dead_code, reason = "it is read from the call, where it can stand elsewhere too")]
    idempotency_key: Option<serde::de::IgnoredAny>,
}

/// A reservation, as it was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Reservation {
    /// Its id: `res-7`.
    pub reservation_id: String,
    /// What was reserved.
    pub sku: String,
    /// How much of it.
    pub quantity: i64,
    /// For whom.
    pub tenant: String,
    /// What was left in stock then.
    pub remaining: i64,
}

/// What became of a request to reserve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::exhaustive_enums, reason = "the shop says yes or no")]
pub enum Reserved {
    /// Reserved.
    Yes(Reservation),
    /// Refused, and why. A refusal is final for its key.
    No(String),
}

/// The shop's database.
#[derive(Clone, Debug)]
pub struct Inventory {
    ledger: Ledger,
    principal: String,
}

impl Inventory {
    /// Opens the shop at `path`. `principal` is who calls: it scopes the keys.
    ///
    /// # Errors
    /// Those of [`Ledger::open`].
    pub fn open(path: impl AsRef<Path>, principal: &str) -> Result<Self, LedgerError> {
        Self::open_with(path, principal, Options::default())
    }

    /// Opens the shop with these options; the schema among them is the shop's own.
    ///
    /// # Errors
    /// Those of [`Ledger::open`].
    pub fn open_with(path: impl AsRef<Path>, principal: &str, options: Options) -> Result<Self, LedgerError> {
        let ledger = Ledger::open(path, Options { schema: SCHEMA.into(), ..options })?;
        Ok(Self { ledger, principal: principal.to_owned() })
    }

    /// The durable tasks in the shop's file.
    #[must_use]
    pub fn tasks(&self) -> Tasks {
        self.ledger.tasks()
    }

    fn scope(&self) -> Scope {
        Scope::new(self.principal.as_str(), RESERVE)
    }

    /// Reserves once for this key. `arguments` is the call's raw JSON object.
    pub(super) fn reserve(
        &self,
        key: &Key,
        arguments: &str,
        wanted: Wanted,
    ) -> Result<Executed<Reserved>, LedgerError> {
        let scope = self.scope();
        let request = Request::new(&scope, key, arguments).exclude(&[KEY_ARGUMENT]);
        self.ledger.execute(&request, move |tx| take(tx, &wanted))
    }

    /// Reserves once for this key, for callers in this crate: the answer as the ledger hands it out.
    pub(crate) fn reserve_once(
        &self,
        key: &Key,
        sku: &str,
        quantity: i64,
        tenant: &str,
    ) -> Result<Executed<Reserved>, LedgerError> {
        let arguments = serde_json::json!({"sku": sku, "quantity": quantity, "tenant": tenant}).to_string();
        let wanted = Wanted { sku: sku.into(), quantity, tenant: tenant.into(), idempotency_key: None };
        self.reserve(key, &arguments, wanted)
    }

    /// Reserves, without a key: each call again.
    pub(super) fn reserve_keyless(&self, wanted: Wanted) -> Result<Reserved, LedgerError> {
        Ok(self.ledger.execute_keyless(&self.scope(), move |tx| take(tx, &wanted))?.into_inner())
    }

    /// The reservation with this id, if this tenant has it.
    ///
    /// # Errors
    /// Those of [`Ledger::read`].
    pub fn find(&self, id: &str, tenant: &str) -> Result<Option<Reservation>, LedgerError> {
        let Some(row) = id.strip_prefix("res-").and_then(|number| number.parse::<i64>().ok()) else { return Ok(None) };
        let sql = "SELECT sku, quantity, tenant, remaining FROM reservation WHERE id = ?1 AND tenant = ?2";
        self.ledger.read(|tx| {
            let found = tx.query(sql, (row, tenant), |row| {
                Ok(Reservation {
                    reservation_id: id.to_owned(),
                    sku: row.get(0)?,
                    quantity: row.get(1)?,
                    tenant: row.get(2)?,
                    remaining: row.get(3)?,
                })
            })?;
            Ok(found.into_iter().next())
        })
    }

    /// What the ledger knows of this key; it reads only.
    ///
    /// # Errors
    /// Those of [`Ledger::reconcile`].
    pub fn reconcile(&self, key: &Key) -> Result<Option<Reconciled>, LedgerError> {
        self.ledger.reconcile(&self.scope(), key)
    }

    /// An item as a tenant sees it; `None`: there is no such item.
    pub(super) fn stock(&self, tenant: &str, sku: &str) -> Result<Option<Stock>, LedgerError> {
        let sql = "SELECT available, (SELECT coalesce(sum(quantity), 0) FROM reservation
                                      WHERE reservation.sku = stock.sku AND tenant = ?1) FROM stock WHERE sku = ?2";
        self.ledger.read(|tx| {
            let found = tx.query(sql, (tenant, sku), |row| {
                let (available, reserved) = (row.get(0)?, row.get(1)?);
                Ok(Stock { tenant: tenant.to_owned(), sku: sku.to_owned(), available, reserved })
            })?;
            Ok(found.into_iter().next())
        })
    }

    /// Which tenant has reserved which items: some of them, in order.
    pub(super) fn reserved(&self, from: usize, most: usize) -> Result<Vec<(String, String)>, LedgerError> {
        let sql = "SELECT DISTINCT tenant, sku FROM reservation ORDER BY tenant, sku LIMIT ?1 OFFSET ?2";
        let (from, most) = (i64::try_from(from).unwrap_or(i64::MAX), i64::try_from(most).unwrap_or(i64::MAX));
        self.ledger.read(|tx| tx.query(sql, (most, from), |row| Ok((row.get(0)?, row.get(1)?))))
    }

    /// What is left of each item.
    pub(super) fn available(&self) -> Result<BTreeMap<String, i64>, LedgerError> {
        let sql = "SELECT sku, available FROM stock";
        self.ledger.read(|tx| Ok(tx.query(sql, (), |row| Ok((row.get(0)?, row.get(1)?)))?.into_iter().collect()))
    }

    /// What is left of a stock item, and how many reservations of it there are.
    ///
    /// # Errors
    /// Those of [`Ledger::read`].
    pub fn count(&self, sku: &str) -> Result<(i64, i64), LedgerError> {
        self.ledger.read(|tx| {
            tx.query_row(
                "SELECT available, (SELECT count(*) FROM reservation WHERE reservation.sku = stock.sku)
                 FROM stock WHERE sku = ?1",
                [sku],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )
        })
    }
}

/// The effect: it can run again after a rollback, and touches nothing outside of the transaction.
fn take(tx: &mut EffectTx<'_>, wanted: &Wanted) -> Result<Reserved, EffectError<Reserved>> {
    let Wanted { sku, quantity, tenant, .. } = wanted;
    let refuse = |why: String| Err(EffectError::Reject(Reserved::No(why)));
    let stock = tx.query("SELECT available FROM stock WHERE sku = ?1", [sku], |row| row.get::<_, i64>(0))?;
    let Some(available) = stock.first().copied() else { return refuse(format!("there is no item {sku:?}")) };
    if *quantity > available {
        return refuse(format!("only {available} of {sku:?} are left"));
    }
    let remaining = available - quantity;
    tx.execute("UPDATE stock SET available = ?1 WHERE sku = ?2", (remaining, sku))?;
    let insert = "INSERT INTO reservation(sku, quantity, tenant, remaining) VALUES (?1, ?2, ?3, ?4)";
    tx.execute(insert, (sku, quantity, tenant, remaining))?;
    Ok(Reserved::Yes(Reservation {
        reservation_id: format!("res-{}", tx.last_insert_rowid()),
        sku: sku.clone(),
        quantity: *quantity,
        tenant: tenant.clone(),
        remaining,
    }))
}
