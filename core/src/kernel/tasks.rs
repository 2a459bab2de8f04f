//! Durable tasks on the wire (`io.modelcontextprotocol/tasks`, rules K1 to K6).
//!
//! [`TaskStore`] and [`TaskQueue`] are the ports that a store implements: the ledger does.

mod port;

pub use port::{
    Claim, Created, Known, Lease, NewTask, OnChange, Progress, Stored, TaskChange, TaskEnd, TaskInput, TaskQueue,
    TaskState, TaskStore, TaskStoreError,
};
