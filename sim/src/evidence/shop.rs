//! The inventory server on a real ledger file whose clock stands still and whose ids are counted, asked line by line.

use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use serde_json::{Value, json};
use steady_core::kernel::{Exchange, ServerConfig, Tools};
use steady_core::rpc;
use steady_core::time::WallTime;
use steady_ledger::{Clock, Entropy, Executor as Writer, LedgerError, Options, Secret};

use super::Failure;
use crate::lab::{Inventory, inventory_server};
use crate::world::Executor;

/// Who calls.
pub(super) const PRINCIPAL: &str = "evidence";
/// When everything here happens: 2026-08-01, 00:00 UTC.
const TODAY_MS: i64 = 1_785_542_400_000;

/// A shop whose records depend on nothing but the calls.
pub(super) fn inventory(path: &Path, writer: Writer) -> Result<Inventory, LedgerError> {
    let count = AtomicU8::new(0);
    let options = Options {
        secret: Some(Secret::new([7; 32])),
        clock: Clock::new(|| WallTime::from_unix_millis(TODAY_MS)),
        entropy: Entropy::new(move |bytes| {
            bytes.fill(count.fetch_add(1, Ordering::Relaxed));
            Ok(())
        }),
        executor: writer,
        ..Options::default()
    };
    Inventory::open_with(path, PRINCIPAL, options)
}

/// Its server, in virtual time.
pub(super) struct Shop {
    pub(super) inventory: Inventory,
    executor: Executor,
    server: Arc<Tools>,
    next_id: u64,
}

impl Shop {
    pub(super) fn open(path: &Path) -> Result<Self, LedgerError> {
        Ok(Self::on(inventory(path, Writer::Inline)?))
    }

    pub(super) fn on(inventory: Inventory) -> Self {
        let server = Arc::new(inventory_server(inventory.clone()));
        Self { inventory, executor: Executor::new(), server, next_id: 1 }
    }

    /// The message that asks for this, under a new id.
    fn request(&mut self, method: &str, mut params: Value) -> Value {
        let id = self.next_id;
        self.next_id += 1;
        if let Value::Object(members) = &mut params {
            let meta = json!({
                "io.modelcontextprotocol/protocolVersion": rpc::PROTOCOL_VERSION,
                "io.modelcontextprotocol/clientCapabilities":
                    {"extensions": {"io.modelcontextprotocol/tasks": {}}},
            });
            members.insert("_meta".into(), meta);
        }
        json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
    }

    /// Sends it; the message and its answer.
    pub(super) fn exchange(&mut self, method: &str, params: Value) -> Result<(Value, Value), Failure> {
        let request = self.request(method, params);
        let (ports, text) = (self.executor.ports(), request.to_string());
        let mut exchange = Exchange::start(Arc::clone(&self.server), ports, ServerConfig::default(), &text);
        let said: Arc<Mutex<Vec<u8>>> = Arc::default();
        let heard = Arc::clone(&said);
        self.executor.spawn(std::future::poll_fn(move |cx| {
            loop {
                let mut message = Vec::new();
                let Poll::Ready(last) = exchange.poll_message(cx, &mut message) else { return Poll::Pending };
                if !message.is_empty() {
                    *heard.lock().unwrap_or_else(PoisonError::into_inner) = message;
                }
                if last != Some(false) {
                    return Poll::Ready(());
                }
            }
        }));
        self.executor.run_ready();
        let answer = said.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = serde_json::from_slice(&answer).map_err(|why| format!("{method} is not answered: {why}"))?;
        Ok((request, answer))
    }

    /// Sends it; the result of its answer.
    pub(super) fn ask(&mut self, method: &str, params: Value) -> Result<Value, Failure> {
        let (_, mut answer) = self.exchange(method, params)?;
        match answer.get_mut("result").map(Value::take) {
            Some(result) => Ok(result),
            None => Err(format!("{method} is refused: {answer}").into()),
        }
    }

    /// Calls a tool; its structured result, or the whole one if it has none.
    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, Failure> {
        let mut result = self.ask("tools/call", json!({"name": tool, "arguments": arguments}))?;
        Ok(match result.get_mut("structuredContent").map(Value::take) {
            Some(structured) => structured,
            None => result,
        })
    }
}
