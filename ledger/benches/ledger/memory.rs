//! Whether the process grows with the number of keys.

use steady_ledger::Durability;

use crate::clients::Shop;

const STEP: u64 = 100_000;
const STEPS: u64 = 10;

pub(crate) fn run() {
    let shop = Shop::with(Durability::ProcessCrash);
    for step in 1..=STEPS {
        shop.fill(STEP);
        println!("{:>8} keys: {:.1} MiB resident", step * STEP, resident());
    }
}

fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}
