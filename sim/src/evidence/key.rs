//! A key record, and the same key with other arguments.

use std::path::Path;

use serde_json::{Value, json};
use steady_core::idempotency::{Key, State};

use super::shop::{PRINCIPAL, Shop};
use super::{Failure, Record};
use crate::demo::Section;

const TOOL: &str = "reserve_inventory";
const KEY: &str = "order-7";

/// A state as this evidence names it.
pub(super) const fn state(state: State) -> &'static str {
    match state {
        State::Started { .. } => "started",
        State::Committed => "committed",
        State::Rejected => "rejected",
        State::InDoubt => "in doubt",
        State::Expired => "expired",
    }
}

fn call(quantity: u64) -> Value {
    let arguments = json!({"sku": "widget", "quantity": quantity, "tenant": "acme", "idempotencyKey": KEY});
    json!({"name": TOOL, "arguments": arguments})
}

pub(super) fn record(dir: &Path) -> Result<Record, Failure> {
    let mut section = Section::new("a key record, and its key with other arguments");
    let mut shop = Shop::open(&dir.join("shop.db"))?;
    let (request, answer) = shop.exchange("tools/call", call(1))?;
    section.event("the first call reserves one widget");
    let after_first = shop.inventory.count("widget")?;
    let (mismatch, refusal) = shop.exchange("tools/call", call(2))?;
    section.event("the same key asks for two");
    let known = shop.inventory.reconcile(&Key::parse(KEY)?)?.ok_or("the key is not in the ledger")?;
    section.claim("the key's execution is", state(known.state), "committed");
    section.claim("its effect was committed so many times", known.executions, 1);
    let error = |pointer: &str| refusal.pointer(pointer).cloned().unwrap_or_default();
    section.claim("other arguments are refused with", error("/error/code"), json!(-32602));
    section.claim("and named as", error("/error/data/type"), json!("idempotency_key_conflict"));
    section.claim("the refused call changed nothing", shop.inventory.count("widget")?, after_first);
    let data = json!({
        "key": {
            "principal": PRINCIPAL, "operation": TOOL, "key": KEY,
            "state": state(known.state), "executions": known.executions,
            "recorded_at_unix_ms": known.recorded_at.unix_millis(), "expires_at_unix_ms": known.expires_at.unix_millis(),
            "request": request, "answer": answer,
        },
        "mismatch": {"request": mismatch, "answer": refusal},
    });
    Ok(Record { section, data })
}
