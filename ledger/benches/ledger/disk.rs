//! What the disk allows: one overwrite of 8 KiB and one fsync after the other.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::clients::{Measured, Stopwatch};

const SIZE: usize = 8 * 1024;
const BLOCKS: u64 = 128;

pub(crate) struct Probe {
    _dir: tempfile::TempDir,
    file: File,
    next: u64,
}

impl Probe {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir_in(folder()).unwrap();
        let file = File::create(dir.path().join("probe")).unwrap();
        // Space that is there before the first sync, as most of a log is.
        (0..BLOCKS).for_each(|block| file.write_all_at(&[1; SIZE], block * SIZE as u64).unwrap());
        file.sync_all().unwrap();
        Self { _dir: dir, file, next: 0 }
    }

    pub(crate) fn turn(&mut self, time: Duration) -> Measured {
        let mut watch = Stopwatch::start();
        while watch.runs(time) {
            let began = Instant::now();
            self.next += 1;
            let bytes = [self.next.to_le_bytes()[0]; SIZE];
            self.file.write_all_at(&bytes, self.next % BLOCKS * SIZE as u64).unwrap();
            // What SQLite calls.
            self.file.sync_all().unwrap();
            watch.lap(began.elapsed());
        }
        watch.stop()
    }
}

/// Where the files of the benchmark lie: on the disk of the checkout, as a temporary folder may be memory.
pub(crate) fn folder() -> std::path::PathBuf {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).to_path_buf();
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
