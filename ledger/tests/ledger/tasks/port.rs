//! The ledger as the store behind the kernel's ports of tasks.

use super::*;
use crate::task_port::{Both, every_promise};

#[test]
fn the_ledger_keeps_every_promise_of_the_task_ports() {
    let dir = tempfile::tempdir().unwrap();
    let files = std::cell::Cell::new(0);
    every_promise(&|clock: Option<Clock>| -> Box<dyn Both> {
        files.set(files.get() + 1);
        let path = dir.path().join(format!("shop-{}.db", files.get()));
        let options = Options { clock: clock.unwrap_or_default(), ..options() };
        Box::new(Ledger::open(path, options).unwrap().tasks())
    });
}
