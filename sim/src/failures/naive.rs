//! Servers as they are written first: books in memory, and an idea of what makes a call a retry.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use steady_core::kernel::{Context, Reply, ToolCall, Tools};
use steady_core::rpc::RpcError;

/// By what a server takes a call for the retry of an earlier one; `None`: it takes none for that.
pub(super) type Mark = fn(&ToolCall, &Context) -> Option<String>;

/// What of a call is compared with the earlier one.
pub(super) type Compared = fn(&ToolCall) -> String;

#[derive(Default)]
struct Books {
    orders: u64,
    /// By mark: what was compared, and the answer.
    seen: BTreeMap<String, (String, u32)>,
}

/// A shop of that kind.
#[derive(Clone, Default)]
pub(super) struct NaiveShop(Arc<Mutex<Books>>);

#[derive(Deserialize)]
struct Wanted {
    quantity: u32,
}

impl NaiveShop {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its server, with the tool of the inventory.
    pub(super) fn server(&self, mark: Mark, compared: Compared) -> Tools {
        let shop = self.clone();
        let schema = r#"{"type":"object"}"#;
        Tools::new("naive", "1").blocking_tool("reserve_inventory", "Reserves.", schema, move |call, cx| {
            let Wanted { quantity } = call.arguments()?;
            let mut books = shop.books();
            let mark = mark(&call, &cx);
            if let Some((before, answer)) = mark.as_ref().and_then(|mark| books.seen.get(mark)) {
                if *before != compared(&call) {
                    return Err(RpcError::invalid_params("this key was used with other arguments"));
                }
                return Reply::data(&serde_json::json!({ "quantity": answer }));
            }
            books.orders += 1;
            if let Some(mark) = mark {
                books.seen.insert(mark, (compared(&call), quantity));
            }
            Reply::data(&serde_json::json!({ "quantity": quantity }))
        })
    }

    /// Reservations that were made.
    pub(super) fn effects(&self) -> u64 {
        self.books().orders
    }
}

/// The key that the client sent.
pub(super) fn key(call: &ToolCall, _: &Context) -> Option<String> {
    call.idempotency_key(Some("idempotencyKey")).ok().flatten().map(|key| key.as_str().to_owned())
}

/// Nothing is a retry.
pub(super) fn nothing(_: &ToolCall, _: &Context) -> Option<String> {
    None
}

/// Nothing is compared.
pub(super) fn anything(_: &ToolCall) -> String {
    String::new()
}
