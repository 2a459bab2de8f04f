//! Durable tasks on the wire (`io.modelcontextprotocol/tasks`, rules K1 to K6).
//!
//! ```text
//!   tools/call ──► TaskServer::create ──► TaskStore ◄──────── TaskQueue ◄── Worker ──► handler(Job)
//!   tasks/get, update, cancel ──► TaskServer ──► TaskStore        (in this process or another)
//!   TaskFeed: what changed ──► TaskAudience, which is the hub ──► notifications/tasks
//! ```
//!
//! [`TaskStore`] and [`TaskQueue`] are the ports that a store implements: the ledger does. Nothing about a task is kept
//! beside it: a request is answered from what is durable, by any process of the server (rule M9). Closing a stream,
//! or `notifications/cancelled`, reaches no task: only `tasks/cancel` does, and what that changes is an intent (rule K3).

mod bell;
mod feed;
mod job;
mod port;
mod rate;
mod server;
mod wire;
mod worker;

pub use feed::{TaskAudience, TaskFeed};
pub use job::{Job, Unfinished};
pub use port::{
    Claim, Created, Known, Lease, NewTask, OnChange, Progress, Stored, TaskChange, TaskEnd, TaskInput, TaskQueue,
    TaskState, TaskStore, TaskStoreError,
};
pub use rate::Rate;
pub use server::{Start, TaskConfig, TaskServer, TaskTool};
pub use wire::{declares_tasks, undeclared};
pub use worker::{Worker, WorkerConfig};
