//! The inventory server: the lab's handlers, once, for every transport and for the simulator.
//!
//! | tool | what it does |
//! |---|---|
//! | `reserve_inventory` | takes `quantity` of `sku` from stock for `tenant`: once for each `idempotencyKey`, or once a call without one |
//! | `get_reservation` | looks a reservation up, by its key or by its id |
//! | `restock` | a durable task: puts a delivery on the shelf in batches, each of them once |
//! | `slow_count` | counts, reports progress, stops when it is cancelled |

mod inventory;
mod restock;
mod tools;

pub use inventory::{Inventory, Reservation, Reserved};
pub use restock::{inventory_tasks, restock_worker};
pub use tools::{inventory_server, reserve_schema};
