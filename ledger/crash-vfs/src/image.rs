//! Decides what a power cut at each point of a recording can leave on the disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::{fs, io};

use crate::disk::Event;

/// What a disk writes whole or not at all, in bytes.
const SECTOR: usize = 512;

/// What of the unsynced writes survived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a test names each")]
pub enum Cut {
    /// None.
    Dropped,
    /// All.
    Kept,
    /// Some, whole or in sectors.
    Subset,
    /// All but the last, of which the first sectors survived.
    Torn,
}

/// What a power cut left.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "tests make their own")]
pub struct Image {
    /// At which event of the recording the power was cut.
    pub at: usize,
    /// What survived of what was not synced.
    pub cut: Cut,
    /// How many notes were made before it.
    pub notes: usize,
    /// The files, by name.
    pub files: BTreeMap<Arc<str>, Vec<u8>>,
}

impl Image {
    /// Writes the files to a folder, and removes those that are not part of the image.
    ///
    /// # Errors
    ///
    /// What the folder says.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            fs::remove_file(entry?.path())?;
        }
        self.files.iter().try_for_each(|(name, bytes)| fs::write(folder.join(&**name), bytes))
    }
}

/// Shows to `visit` every image of a recording that began with no files, each with the event at which the power was cut.
/// The seed decides about subsets and tears. An image costs nothing until it is asked for.
///
/// Each write, truncation and deletion is cut in all ways that it knows; each sync in its middle, and after it.
pub fn images(events: &[Event], seed: u64, mut visit: impl FnMut(usize, &dyn Fn() -> Image)) {
    let (mut disk, mut rng, mut notes) = (Files::default(), Rng(seed), 0);
    for (at, event) in events.iter().enumerate() {
        let mut cuts: &[Cut] = &[Cut::Dropped, Cut::Kept, Cut::Subset];
        match event {
            Event::Note(_) => {
                notes += 1;
                continue;
            }
            Event::Write { .. } => {
                cuts = &[Cut::Dropped, Cut::Kept, Cut::Subset, Cut::Torn];
                disk.add(event);
            }
            Event::Truncate { .. } | Event::Delete { .. } => disk.add(event),
            Event::Sync { file } => {
                show(&disk, (at, notes), &[Cut::Subset], &mut rng, &mut visit);
                disk.sync(file);
                cuts = &[Cut::Dropped];
            }
            Event::LostSync { file } => {
                disk.lose(file, &mut rng);
                cuts = &[Cut::Dropped];
            }
        }
        show(&disk, (at, notes), cuts, &mut rng, &mut visit);
    }
}

fn show(
    disk: &Files,
    (at, notes): (usize, usize),
    cuts: &[Cut],
    rng: &mut Rng,
    visit: &mut impl FnMut(usize, &dyn Fn() -> Image),
) {
    for &cut in cuts {
        let seed = rng.next();
        // Whoever does not want it does not pay for it.
        visit(at, &|| Image { at, cut, notes, files: disk.after(cut, &mut Rng(seed)) });
    }
}

/// The files of a disk: what is durable of them, and what is not yet.
#[derive(Default)]
struct Files {
    durable: BTreeMap<Arc<str>, Vec<u8>>,
    pending: Vec<Event>,
    /// Files that were synced since they were created.
    settled: BTreeSet<Arc<str>>,
}

impl Files {
    fn add(&mut self, event: &Event) {
        self.pending.push(event.clone());
        if let Event::Delete { file, synced } = event {
            self.settled.remove(file);
            if *synced {
                self.sync_folder();
            }
        }
    }

    fn sync(&mut self, file: &Arc<str>) {
        let is_new = self.settled.insert(Arc::clone(file));
        if is_new && (file.ends_with("-journal") || file.ends_with("-wal")) {
            self.sync_folder();
        }
        for event in self.take(file) {
            apply(&mut self.durable, &event, &mut |_| true);
        }
    }

    /// What was deleted stays deleted; what has its name now was not deleted.
    fn sync_folder(&mut self) {
        while let Some(place) = self.pending.iter().position(|event| matches!(event, Event::Delete { .. })) {
            let file = file_of(&self.pending[place]).cloned();
            let mut index = 0;
            self.pending.retain(|event| {
                index += 1;
                index > place + 1 || file_of(event) != file.as_ref()
            });
            file.iter().for_each(|file| drop(self.durable.remove(file)));
        }
    }

    fn lose(&mut self, file: &Arc<str>, rng: &mut Rng) {
        for event in self.take(file) {
            apply_some(&mut self.durable, &event, rng);
        }
    }

    /// Removes what is pending for a file.
    fn take(&mut self, file: &Arc<str>) -> Vec<Event> {
        let (taken, rest) =
            std::mem::take(&mut self.pending).into_iter().partition(|event| file_of(event) == Some(file));
        self.pending = rest;
        taken
    }

    fn after(&self, cut: Cut, rng: &mut Rng) -> BTreeMap<Arc<str>, Vec<u8>> {
        let mut files = self.durable.clone();
        let last = self.pending.len().saturating_sub(1);
        for (place, event) in self.pending.iter().enumerate() {
            match cut {
                Cut::Dropped => {}
                Cut::Subset => apply_some(&mut files, event, rng),
                Cut::Torn if place == last => {
                    let kept = rng.below(sectors(event).max(1));
                    apply(&mut files, event, &mut |sector| sector < kept);
                }
                Cut::Kept | Cut::Torn => apply(&mut files, event, &mut |_| true),
            }
        }
        files
    }
}

fn file_of(event: &Event) -> Option<&Arc<str>> {
    match event {
        Event::Write { file, .. }
        | Event::Truncate { file, .. }
        | Event::Sync { file }
        | Event::LostSync { file }
        | Event::Delete { file, .. } => Some(file),
        Event::Note(_) => None,
    }
}

/// How many sectors a write touches.
fn sectors(event: &Event) -> usize {
    match event {
        Event::Write { at, bytes, .. } => pieces(place(*at), bytes).count(),
        Event::Truncate { .. }
        | Event::Sync { .. }
        | Event::LostSync { .. }
        | Event::Delete { .. }
        | Event::Note(_) => 1,
    }
}

/// The parts of a write by sector: each with its place in the bytes.
fn pieces(at: usize, bytes: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    // Where the first sector boundary behind the start is.
    let first = SECTOR - at % SECTOR;
    let mut from = 0;
    std::iter::from_fn(move || {
        let to = if from == 0 { first } else { from + SECTOR }.min(bytes.len());
        let piece = (from < to).then(|| (from, &bytes[from..to]));
        from = to;
        piece
    })
}

/// Does a change, of a write only the sectors that are chosen.
fn apply(files: &mut BTreeMap<Arc<str>, Vec<u8>>, event: &Event, chosen: &mut dyn FnMut(usize) -> bool) {
    match event {
        Event::Write { file, at, bytes } => {
            let content = files.entry(Arc::clone(file)).or_default();
            for (sector, (from, piece)) in pieces(place(*at), bytes).enumerate() {
                if chosen(sector) {
                    let start = place(*at) + from;
                    content.resize(content.len().max(start + piece.len()), 0);
                    content[start..start + piece.len()].copy_from_slice(piece);
                }
            }
        }
        Event::Truncate { file, size } => files.entry(Arc::clone(file)).or_default().resize(place(*size), 0),
        Event::Delete { file, .. } => drop(files.remove(file)),
        Event::Sync { .. } | Event::LostSync { .. } | Event::Note(_) => {}
    }
}

/// Does a change whole, not at all, or in some of its sectors.
fn apply_some(files: &mut BTreeMap<Arc<str>, Vec<u8>>, event: &Event, rng: &mut Rng) {
    match rng.below(3) {
        0 => {}
        1 => apply(files, event, &mut |_| true),
        _ if matches!(event, Event::Write { .. }) => apply(files, event, &mut |_| rng.below(2) == 0),
        _ => {}
    }
}

fn place(at: u64) -> usize {
    usize::try_from(at).expect("a test's file fits into memory")
}

/// A small generator (splitmix64), so that a seed means the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that this seed determines.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("less than a usize")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(file: &str, at: u64, bytes: &[u8]) -> Event {
        Event::Write { file: file.into(), at, bytes: bytes.to_vec() }
    }

    fn all(events: &[Event]) -> Vec<Image> {
        let mut all = Vec::new();
        images(events, 1, |_, image| all.push(image()));
        all
    }

    fn at(images: &[Image], at: usize, cut: Cut) -> &BTreeMap<Arc<str>, Vec<u8>> {
        &images.iter().find(|image| image.at == at && image.cut == cut).unwrap().files
    }

    #[test]
    fn only_what_was_synced_is_sure() {
        let events =
            [write("a", 0, b"one"), Event::Sync { file: "a".into() }, write("a", 3, b"two"), write("b", 0, b"x")];
        let images = all(&events);
        assert!(at(&images, 0, Cut::Dropped).is_empty());
        assert_eq!(at(&images, 1, Cut::Dropped)["a"], b"one");
        assert_eq!(at(&images, 3, Cut::Dropped)["a"], b"one");
        assert!(!at(&images, 3, Cut::Dropped).contains_key("b"));
        assert_eq!(at(&images, 3, Cut::Kept)["a"], b"onetwo");
        assert_eq!(at(&images, 3, Cut::Kept)["b"], b"x");
        assert_eq!(images.len(), 4 + 2 + 4 + 4);
    }

    #[test]
    fn a_torn_write_ends_at_a_sector() {
        let long = vec![7; 2000];
        for seed in 0..50 {
            images(&[write("a", 24, &long)], seed, |_, image| {
                let image = image();
                if image.cut == Cut::Torn {
                    let size = image.files["a"].len();
                    assert!(size < 2024 && size.is_multiple_of(SECTOR), "{size}");
                }
            });
        }
    }

    #[test]
    fn a_failed_sync_makes_nothing_sure_and_a_later_one_does_not_help() {
        let events = [
            write("a", 0, b"one"),
            Event::LostSync { file: "a".into() },
            write("a", 3, b"two"),
            Event::Sync { file: "a".into() },
        ];
        let mut firsts = BTreeSet::new();
        for seed in 0..20 {
            images(&events, seed, |_, image| {
                let image = image();
                if image.at == 3 && image.cut == Cut::Dropped {
                    assert_eq!(&image.files["a"][3..], b"two");
                    firsts.insert(image.files["a"][..3].to_vec());
                }
            });
        }
        assert_eq!(firsts.len(), 2, "there in some, zeros in others");
    }

    #[test]
    fn a_deletion_that_was_not_synced_may_not_have_happened() {
        let file: Arc<str> = "a".into();
        let start = [write("a", 0, b"one"), Event::Sync { file: Arc::clone(&file) }];
        let delete = |synced| [&start[..], &[Event::Delete { file: Arc::clone(&file), synced }]].concat();
        assert!(at(&all(&delete(false)), 2, Cut::Dropped).contains_key("a"));
        assert!(!at(&all(&delete(false)), 2, Cut::Kept).contains_key("a"));
        assert!(!at(&all(&delete(true)), 2, Cut::Dropped).contains_key("a"));
    }

    #[test]
    fn the_first_sync_of_a_log_syncs_its_folder() {
        let delete = Event::Delete { file: "a-journal".into(), synced: false };
        let journal = [write("a-journal", 0, b"one"), Event::Sync { file: "a-journal".into() }, delete];
        let then = |file: &str, times: usize| {
            let sync = [write(file, 0, b"x"), Event::Sync { file: file.into() }];
            let events = [vec![sync.as_slice(); times - 1].concat().as_slice(), &journal, &sync].concat();
            at(&all(&events), events.len() - 1, Cut::Dropped).contains_key("a-journal")
        };
        assert!(!then("a-wal", 1));
        assert!(then("a-wal", 2), "not the second one");
        assert!(then("a", 1), "not that of a database");
    }

    #[test]
    fn notes_are_counted_up_to_the_cut() {
        let events = [Event::Note(1), write("a", 0, b"one"), Event::Note(2), Event::Sync { file: "a".into() }];
        let notes: Vec<_> = all(&events).iter().map(|image| (image.at, image.notes)).collect();
        assert_eq!(notes, [(1, 1), (1, 1), (1, 1), (1, 1), (3, 2), (3, 2)]);
    }
}
