//! The inventory server: the lab's handlers, once, for every transport and for the simulator.
//!
//! | tool | what it does |
//! |---|---|
//! | `reserve_inventory` | takes `quantity` of `sku` from stock for `tenant`: once for each `idempotencyKey`, or once a call without one |
//! | `get_reservation` | looks a reservation up, by its key or by its id |
//! | `slow_count` | counts, reports progress, stops when it is cancelled |

mod inventory;
mod tools;

pub use inventory::{Inventory, Reservation, Reserved};
pub use tools::{inventory_server, reserve_schema};
