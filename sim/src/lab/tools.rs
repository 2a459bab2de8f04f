//! The tools over the inventory: arguments in, replies out, ledger errors as what a client can act on.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use steady_core::idempotency::{Key, State};
use steady_core::kernel::{Context, Hub, Reply, ToolCall, Tools};
use steady_core::rpc::RpcError;
use steady_ledger::{Executed, LedgerError};

use super::inventory::{Inventory, KEY_ARGUMENT, Reservation, Reserved, Wanted};
use super::restock::{RESTOCK, RESTOCK_SCHEMA, inventory_tasks, restock_tool};
use super::stock;

const RESERVE_SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "sku": {"type": "string", "description": "The item to reserve."},
    "quantity": {"type": "integer", "minimum": 1},
    "tenant": {"type": "string", "description": "For whom."},
    "idempotencyKey": {"type": "string", "minLength": 1, "maxLength": 255,
      "description": "Keep the same value for every attempt of one logical reservation."}
  },
  "required": ["sku", "quantity", "tenant"],
  "additionalProperties": false
}"#;

const GET_SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "reservationId": {"type": "string"},
    "tenant": {"type": "string"},
    "idempotencyKey": {"type": "string", "description": "Ask what became of the reservation with this key."}
  },
  "additionalProperties": false
}"#;

const COUNT_SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "to": {"type": "integer", "minimum": 1, "maximum": 1000000},
    "interval_ms": {"type": "integer", "minimum": 0, "maximum": 60000, "default": 100}
  },
  "required": ["to"],
  "additionalProperties": false
}"#;

/// The schema of `reserve_inventory`, for documents that show it.
#[must_use]
pub const fn reserve_schema() -> &'static str {
    RESERVE_SCHEMA
}

/// The inventory server, with a hub of its own.
#[must_use]
pub fn inventory_server(inventory: Inventory) -> Tools {
    inventory_server_with(inventory, &Hub::new())
}

/// The inventory server, whose changes are published through this hub.
#[must_use]
pub fn inventory_server_with(inventory: Inventory, hub: &Hub) -> Tools {
    let (reads, items, tells) = (inventory.clone(), inventory.clone(), hub.clone());
    let tasks = inventory_tasks(&inventory);
    Tools::new("steady-inventory", env!("CARGO_PKG_VERSION"))
        .instructions(
            "Reserve stock with reserve_inventory. Give each logical reservation an idempotencyKey and keep it for every \
             attempt: then a retry cannot reserve twice. After a lost answer ask get_reservation with the key.",
        )
        .blocking_tool("reserve_inventory", "Reserves stock.", RESERVE_SCHEMA, move |call, _cx| {
            reserve(&inventory, &tells, &call)
        })
        .blocking_tool("get_reservation", "Looks a reservation up.", GET_SCHEMA, move |call, _cx| get(&reads, &call))
        .tool("slow_count", "Counts slowly, with progress.", COUNT_SCHEMA, slow_count)
        .tasks(&tasks)
        .task_tool(RESTOCK, "Puts a delivery on the shelf, batch by batch.", RESTOCK_SCHEMA, restock_tool())
        .resources(stock::resources(items))
        .subscriptions(hub)
}

/// What `reserve_inventory` answers.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReserveReply {
    #[serde(flatten)]
    reservation: Reservation,
    /// Whether an earlier call made this reservation.
    replayed: bool,
    /// Whether this call may be repeated without asking first.
    automatic_retry: &'static str,
}

fn reserve(inventory: &Inventory, hub: &Hub, call: &ToolCall) -> Result<Reply, RpcError> {
    let wanted: Wanted = call.arguments()?;
    if wanted.quantity < 1 {
        return Err(RpcError::invalid_params("arguments: quantity must be at least 1"));
    }
    let (reserved, replayed, automatic_retry) = match call.idempotency_key(Some(KEY_ARGUMENT))? {
        Some(key) => {
            let executed = inventory.reserve(&key, call.raw_arguments(), wanted).map_err(|error| refused(&error))?;
            let replayed = matches!(executed, Executed::Replayed(_));
            (executed.into_inner(), replayed, "on: the same key and arguments reserve once")
        }
        None => {
            let reserved = inventory.reserve_keyless(wanted).map_err(|error| refused(&error))?;
            (reserved, false, "off: without idempotencyKey each call reserves again")
        }
    };
    match reserved {
        Reserved::Yes(reservation) => {
            if !replayed {
                stock::announce(hub, inventory, &reservation);
            }
            Reply::data(&ReserveReply { reservation, replayed, automatic_retry })
        }
        Reserved::No(why) => Ok(Reply::error(&why)),
    }
}

/// A ledger error as a client sees it: a wrong call is -32602 with a type to match on, the rest is the server's.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not the caller's fault is the server's, new kinds too")]
fn refused(error: &LedgerError) -> RpcError {
    let kind = match error {
        LedgerError::Mismatch => "idempotency_key_conflict",
        LedgerError::InFlight { .. } => "idempotency_key_in_progress",
        LedgerError::InDoubt => "idempotency_key_in_doubt",
        LedgerError::ResultExpired => "idempotency_result_expired",
        LedgerError::InvalidArguments(_) => "invalid_arguments",
        _ => return RpcError::internal(error.to_string()),
    };
    RpcError::invalid_params(error.to_string()).with_data(&format!(r#"{{"type":"{kind}"}}"#))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Lookup {
    reservation_id: Option<String>,
    tenant: Option<String>,
    idempotency_key: Option<String>,
}

/// What `get_reservation` answers for a key.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyReply {
    idempotency_key: String,
    state: &'static str,
    executions: u64,
}

const fn name(state: State) -> &'static str {
    match state {
        State::Started { .. } => "started",
        State::Committed => "committed",
        State::Rejected => "rejected",
        State::InDoubt => "in doubt",
        State::Expired => "expired",
    }
}

fn get(inventory: &Inventory, call: &ToolCall) -> Result<Reply, RpcError> {
    let failed = |error: LedgerError| RpcError::internal(error.to_string());
    match call.arguments()? {
        Lookup { idempotency_key: Some(key), reservation_id: None, .. } => {
            let parsed = Key::parse(&key).map_err(|error| RpcError::invalid_params(error.to_string()))?;
            let found = inventory.reconcile(&parsed).map_err(failed)?;
            let (state, executions) = found.map_or(("absent", 0), |found| (name(found.state), found.executions));
            Reply::data(&KeyReply { idempotency_key: key, state, executions })
        }
        Lookup { idempotency_key: None, reservation_id: Some(id), tenant: Some(tenant) } => {
            match inventory.find(&id, &tenant).map_err(failed)? {
                Some(reservation) => Reply::data(&reservation),
                None => Ok(Reply::error(&format!("{tenant:?} has no reservation {id:?}"))),
            }
        }
        Lookup { .. } => {
            Err(RpcError::invalid_params("arguments: give idempotencyKey alone, or reservationId and tenant"))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    to: u32,
    #[serde(default = "default_interval")]
    interval_ms: u32,
}

const fn default_interval() -> u32 {
    100
}

async fn slow_count(call: ToolCall, cx: Context) -> Result<Reply, RpcError> {
    let Count { to, interval_ms } = call.arguments()?;
    if !(1..=1_000_000).contains(&to) || interval_ms > 60_000 {
        return Err(RpcError::invalid_params("arguments: to is 1 to 1000000, interval_ms is 0 to 60000"));
    }
    for n in 1..=to {
        cx.checkpoint().await?;
        cx.sleep_until(cx.now() + Duration::from_millis(interval_ms.into())).await?;
        cx.report(n.into(), Some(to.into()), "counting");
    }
    Ok(Reply::text(&format!("counted to {to}")))
}
