//! The seeds of a target, one after the other, and what is near them.

use std::fs;
use std::path::Path;

#[expect(clippy::print_stdout, reason = "captured, and shown with a failure: the last seed is the one that failed")]
pub(crate) fn replay(target: &str, body: fn(&[u8])) {
    // Both crates that have targets lie beside each other.
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("each target has a corpus");
    let mut seeds: Vec<_> = entries.map(|entry| entry.expect("a file").path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty(), "{} is empty", folder.display());
    for seed in seeds {
        println!("{}", seed.display());
        let bytes = fs::read(&seed).expect("a file");
        body(&bytes);
        // What is near a seed, too: every prefix, and one changed bit in each byte.
        for at in 0..bytes.len().min(512) {
            body(&bytes[..at]);
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            body(&changed);
        }
    }
}
