//! A durable task of the shop: a delivery that is put on the shelf in batches, each of them once, whoever works.

use std::time::Duration;

use serde::Deserialize;
use steady_core::kernel::Reply;
use steady_core::kernel::tasks::{
    Job, TaskConfig, TaskServer, TaskStoreError, TaskTool, Unfinished, Worker, WorkerConfig,
};
use steady_core::rpc::RpcError;
use steady_ledger::{Lease, Progress, TaskError};

use super::inventory::{Inventory, KEY_ARGUMENT};

/// The tool, and what its tasks are tasks of.
pub(super) const RESTOCK: &str = "restock";

pub(super) const RESTOCK_SCHEMA: &str = r#"{
  "type": "object",
  "properties": {
    "sku": {"type": "string", "description": "The item that was delivered."},
    "batches": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "How many batches there are."},
    "perBatch": {"type": "integer", "minimum": 1, "maximum": 1000000, "description": "Pieces in each."},
    "pauseMs": {"type": "integer", "minimum": 0, "maximum": 60000, "default": 100},
    "idempotencyKey": {"type": "string", "minLength": 1, "maxLength": 255,
      "description": "Keep the same value for every attempt of one logical delivery."}
  },
  "required": ["sku", "batches", "perBatch"],
  "additionalProperties": false
}"#;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Delivery {
    sku: String,
    batches: u64,
    per_batch: i64,
    #[serde(default = "default_pause")]
    pause_ms: u64,
    #[serde(rename = "idempotencyKey")]
    _key: Option<String>,
}

const fn default_pause() -> u64 {
    100
}

impl Delivery {
    fn check(&self) -> Result<(), RpcError> {
        if (1..=1000).contains(&self.batches) && (1..=1_000_000).contains(&self.per_batch) && self.pause_ms <= 60_000 {
            return Ok(());
        }
        Err(RpcError::invalid_params("arguments: batches is 1 to 1000, perBatch 1 to 1000000, pauseMs 0 to 60000"))
    }
}

/// The tasks of the shop, as its server serves them.
#[must_use]
pub fn inventory_tasks(inventory: &Inventory) -> TaskServer {
    let poll_interval = Duration::from_millis(250);
    TaskServer::new(inventory.tasks(), TaskConfig { poll_interval, ..TaskConfig::default() })
}

pub(super) fn restock_tool() -> TaskTool {
    let checked = |call: &steady_core::kernel::ToolCall, _: &steady_core::kernel::Context| {
        call.arguments::<Delivery>()?.check()?;
        Ok(steady_core::kernel::tasks::Start::Task(call.raw_arguments().into()))
    };
    TaskTool::new().key_argument(KEY_ARGUMENT).message("the delivery waits").prepare(checked)
}

/// A worker that puts deliveries on the shelf, in the server's process or in another one on the same ledger. `lease` is how
/// long a task waits for this worker once it is lost.
#[must_use]
pub fn restock_worker(inventory: &Inventory, owner: &str, lease: Duration) -> Worker {
    let config = WorkerConfig { lease, look: Duration::from_millis(250), ..WorkerConfig::default() };
    let shop = inventory.clone();
    Worker::new(inventory.tasks(), owner, config).on(RESTOCK, move |job| put_away(shop.clone(), job))
}

async fn put_away(shop: Inventory, job: Job) -> Result<Reply, Unfinished> {
    let Delivery { sku, batches, per_batch, pause_ms, .. } = job.arguments()?;
    for batch in job.resumes_after() + 1..=batches {
        let progress = Progress {
            step: batch,
            message: Some(format!("batch {batch} of {batches} is on the shelf").into()),
            ..Progress::default()
        };
        let item = sku.clone();
        let lease = Lease::try_from(job.lease()).map_err(unfinished)?;
        // The pieces and the step are one transaction: a batch is counted once, whoever dies in between.
        let stored = shop.tasks().checkpoint_with_async(&lease, progress, move |tx| {
            let sql = "INSERT INTO stock VALUES (?1, ?2) ON CONFLICT(sku) DO UPDATE SET available = available + ?2";
            tx.execute(sql, (&item, per_batch))?;
            Ok(())
        });
        if stored.await.map_err(unfinished)?.cancel_requested {
            return Err(Unfinished::Cancelled);
        }
        job.sleep(Duration::from_millis(pause_ms)).await?;
    }
    let text = format!("{batches} batches of {per_batch} {sku} are on the shelf");
    Ok(Reply::text(&text))
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` hands it over")]
fn unfinished(error: TaskError) -> Unfinished {
    TaskStoreError::from(&error).into()
}
