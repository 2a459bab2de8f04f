//! The cancellation of a durable task: acknowledged, still working after a reopen, ended by the worker that observes it.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use steady_ledger::Progress;

use super::shop::Shop;
use super::{Failure, Record};
use crate::demo::Section;

const LEASE: Duration = Duration::from_secs(30);

/// What was said and what was stored, in order.
struct Trace {
    steps: Vec<Value>,
    section: Section,
}

impl Trace {
    fn ask(&mut self, shop: &mut Shop, method: &str, id: &str) -> Result<Value, Failure> {
        let (request, answer) = shop.exchange(method, json!({"taskId": id}))?;
        self.steps.push(json!({"request": request, "answer": answer}));
        let result = answer.get("result").cloned();
        result.ok_or_else(|| format!("{method} is refused: {answer}").into())
    }

    fn status(&mut self, shop: &mut Shop, id: &str, when: &str) -> Result<String, Failure> {
        let task = self.ask(shop, "tasks/get", id)?;
        let status = task.get("status").and_then(Value::as_str).unwrap_or("none").to_owned();
        self.section.event(format!("{when}: {status}"));
        Ok(status)
    }

    fn worker(&mut self, did: &str, found: &Value) {
        self.steps.push(json!({"worker": did, "found": found}));
        self.section.event(format!("the worker {did}"));
    }
}

pub(super) fn record(dir: &Path) -> Result<Record, Failure> {
    let path = dir.join("shop.db");
    let section = Section::new("a durable task, from the acknowledged cancellation to the observed one");
    let mut trace = Trace { steps: Vec::new(), section };
    let mut shop = Shop::open(&path)?;
    let delivery = json!({"sku": "gizmo", "batches": 4, "perBatch": 10, "idempotencyKey": "delivery-1"});
    let (request, answer) = shop.exchange("tools/call", json!({"name": "restock", "arguments": delivery}))?;
    let id = answer.pointer("/result/taskId").and_then(Value::as_str).map(str::to_owned);
    let id = id.ok_or_else(|| format!("restock answers with no task: {answer}"))?;
    trace.steps.push(json!({"request": request, "answer": answer}));
    let claimed = shop.inventory.tasks().claim(&["restock"], "worker-1", LEASE)?.ok_or("there is no task to claim")?;
    trace.worker("claims the task", &json!({"cancel_requested": claimed.cancel_requested}));

    trace.ask(&mut shop, "tasks/cancel", &id)?;
    trace.section.event("tasks/cancel is acknowledged");
    let status = trace.status(&mut shop, &id, "after the acknowledgement")?;
    trace.section.claim("after the acknowledgement the task is", status.as_str(), "working");
    drop(shop);
    let mut shop = Shop::open(&path)?;
    let status = trace.status(&mut shop, &id, "after a reopen of the file")?;
    trace.section.claim("after a reopen it is", status.as_str(), "working");

    let tasks = shop.inventory.tasks();
    let step = tasks.checkpoint(&claimed.lease, Progress { step: 1, ..Progress::default() })?;
    trace.worker("reaches a checkpoint", &json!({"cancel_requested": step.cancel_requested}));
    trace.section.claim("the checkpoint tells the worker to stop", step.cancel_requested, true);
    let status = trace.status(&mut shop, &id, "before the worker has stopped")?;
    trace.section.claim("until it has, the task is", status.as_str(), "working");
    tasks.observe_cancel(&claimed.lease)?;
    trace.worker("stops, and says so", &Value::Null);
    let status = trace.status(&mut shop, &id, "after that")?;
    trace.section.claim("only then it is", status.as_str(), "cancelled");
    let late = tasks.checkpoint(&claimed.lease, Progress { step: 2, ..Progress::default() }).is_err();
    trace.section.claim("a later checkpoint of the same worker is refused", late, true);
    Ok(Record { section: trace.section, data: json!({"task": id, "trace": trace.steps}) })
}
