//! The inventory server: the lab's handlers, once, for every transport and for the simulator.
//!
//! | tool | what it does |
//! |---|---|
//! | `reserve_inventory` | takes `quantity` of `sku` from stock for `tenant`: once for each `idempotencyKey`, or once a call without one |
//! | `get_reservation` | looks a reservation up, by its key or by its id |
//! | `restock` | a durable task: puts a delivery on the shelf in batches, each of them once |
//! | `slow_count` | counts, reports progress, stops when it is cancelled |
//!
//! The resource `inventory://{tenant}/{sku}` is what is left of an item. A reservation through this server is published to
//! whoever subscribed to a resource of the item; what another process takes from the same ledger file is seen by
//! [`StockWatch`], which looks while somebody is subscribed.

mod inventory;
mod restock;
mod stock;
mod tools;

pub use inventory::{Inventory, Reservation, Reserved};
pub use restock::{inventory_tasks, restock_worker};
pub use stock::StockWatch;
pub use tools::{inventory_server, inventory_server_with, reserve_schema};
