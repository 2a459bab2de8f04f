//! How long the write-ahead log gets while somebody reads from one snapshot, and after that.

use std::sync::mpsc;
use std::thread;

use steady_ledger::{Ledger, Options};

use crate::clients::Shop;
use crate::{Scale, row};

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn run(scale: Scale) {
    let shop = Shop::new();
    let calls = scale.rows / 10;
    let wal = || std::fs::metadata(shop.path().with_extension("db-wal")).map_or(0.0, |file| file.len() as f64) / MIB;
    shop.fill(calls);
    let before = wal();
    let other = Ledger::open(shop.path(), Options::default()).unwrap();
    let (held, holds) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        other.read(|tx| {
            tx.query_row("SELECT count(*) FROM account", [], |row| row.get::<_, i64>(0))?;
            held.send(()).unwrap();
            let _ended = released.recv();
            Ok(())
        })
    });
    holds.recv().unwrap();
    shop.fill(calls);
    let during = wal();
    drop(release);
    reader.join().unwrap().unwrap();
    // Another tenth: the log is moved, begins anew, and is cut to size.
    shop.fill(calls);
    let after = shop.ledger.stats().wal_bytes as f64 / MIB;
    println!("log: {before:.1} MiB without a reader, {during:.1} MiB at the end of a reader of {calls} calls");
    row("log in use after a long reader", after, None, Some(64.0), Some(1.0), "MiB", false);
}
