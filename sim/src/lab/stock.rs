//! The stock as resources: `inventory://{tenant}/{sku}`, what each holds, and who hears of a change.

use std::collections::BTreeMap;

use serde::Serialize;
use steady_core::kernel::{Contents, Hub, Resource, ResourcePage, ResourceRead, Resources};
use steady_core::rpc::RpcError;
use steady_ledger::LedgerError;

use super::inventory::{Inventory, Reservation};

/// The template of all.
const TEMPLATE: &str = "inventory://{tenant}/{sku}";
/// Resources on a page of the list.
const PAGE: usize = 100;

/// What a tenant sees of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Stock {
    pub(super) tenant: String,
    pub(super) sku: String,
    /// What anybody can still reserve.
    pub(super) available: i64,
    /// What this tenant has reserved.
    pub(super) reserved: i64,
}

/// The URI of an item, as a tenant sees it.
fn uri(tenant: &str, sku: &str) -> String {
    let encoded = |text: &str| -> String {
        text.bytes().fold(String::with_capacity(text.len()), |mut out, byte| {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
                other => out.push_str(&format!("%{other:02X}")),
            }
            out
        })
    };
    format!("inventory://{}/{}", encoded(tenant), encoded(sku))
}

/// The resources over the inventory.
pub(super) fn resources(inventory: Inventory) -> Resources {
    let failed = |error: LedgerError| RpcError::internal(error.to_string());
    let listed = inventory.clone();
    Resources::new()
        .blocking_resource(
            Resource::new(TEMPLATE, "stock").mime_type("application/json").description(
                "What is left of an item, and how much of it a tenant has reserved. Subscribe to hear of changes.",
            ),
            move |read: ResourceRead, _cx| {
                let stock = inventory.stock(read.variable("tenant"), read.variable("sku")).map_err(failed)?;
                stock.map(|stock| Contents::json(&stock)).transpose()
            },
        )
        .listed_by(move |cursor, _cx| {
            let from = match cursor.as_deref().map(str::parse::<usize>) {
                None => 0,
                Some(Ok(from)) => from,
                Some(Err(_)) => return Err(RpcError::invalid_params("params.cursor is none of this server's")),
            };
            let reserved = listed.reserved(from, PAGE + 1).map_err(failed)?;
            let next_cursor = (reserved.len() > PAGE).then(|| (from + PAGE).to_string().into());
            let resource = |(tenant, sku): &(String, String)| {
                Resource::new(&uri(tenant, sku), sku)
                    .title(&format!("{sku} for {tenant}"))
                    .mime_type("application/json")
            };
            Ok(ResourcePage { resources: reserved.iter().take(PAGE).map(resource).collect(), next_cursor })
        })
}

/// A reservation was made: everybody who watches its item hears of it, whatever their tenant.
pub(super) fn announce(hub: &Hub, inventory: &Inventory, reservation: &Reservation) {
    if hub.counters().topics == 0 {
        return;
    }
    updated(hub, &reservation.sku);
    let own = inventory.stock(&reservation.tenant, &reservation.sku);
    // The tenant's first of this item: it is listed from now on. Without an answer, say so once too often.
    if own.ok().flatten().is_none_or(|own| own.reserved == reservation.quantity) {
        hub.resources_changed();
    }
}

fn updated(hub: &Hub, sku: &str) {
    let tail = uri("", sku).split_off("inventory://".len());
    hub.resources_updated(|uri| uri.starts_with("inventory://") && uri.ends_with(&tail));
}

/// Sees changes of the stock that other processes make in the same ledger file, by looking.
#[derive(Debug)]
pub struct StockWatch {
    inventory: Inventory,
    hub: Hub,
    seen: Option<BTreeMap<String, i64>>,
}

impl StockWatch {
    /// A watch that tells this hub.
    #[must_use]
    pub const fn new(inventory: Inventory, hub: Hub) -> Self {
        Self { inventory, hub, seen: None }
    }

    /// Looks once, and publishes what is different from the last look. While nobody watches a resource it does not read; the
    /// first look after that only remembers. How many items have changed.
    ///
    /// # Errors
    /// Those of `Ledger::read`.
    pub fn look(&mut self) -> Result<usize, LedgerError> {
        if self.hub.watched_resources().is_empty() {
            self.seen = None;
            return Ok(0);
        }
        let now = self.inventory.available()?;
        let Some(before) = self.seen.replace(now.clone()) else { return Ok(0) };
        let changed = now.iter().filter(|(sku, available)| before.get(*sku) != Some(available));
        Ok(changed.map(|(sku, _)| updated(&self.hub, sku)).count())
    }
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn a_uri_holds_any_tenant_and_item() {
        assert_eq!(uri("acme", "widget"), "inventory://acme/widget");
        assert_eq!(uri("a/b", "é %"), "inventory://a%2Fb/%C3%A9%20%25");
    }
}
