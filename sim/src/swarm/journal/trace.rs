//! All that was seen in a run, as a hash, and as text where somebody wants to read it.

use std::fmt::Write as _;

use steady_core::time::Instant;

/// What was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "what a run is made of")]
pub enum Seen {
    /// An event of the script.
    Event,
    /// A message left a client.
    ClientWrote,
    /// A message came to a server.
    ServerRead,
    /// A message left a server.
    ServerWrote,
    /// A message came to a client.
    ClientRead,
    /// A call ended.
    Ended,
    /// The ledger decided.
    Ledger,
    /// A process or a link began or ended.
    Process,
    /// A promise was broken.
    Broken,
}

impl Seen {
    const fn text(self) -> &'static str {
        match self {
            Self::Event => "event",
            Self::ClientWrote => "client  >",
            Self::ServerRead => "        > server",
            Self::ServerWrote => "        < server",
            Self::ClientRead => "client  <",
            Self::Ended => "call ended",
            Self::Ledger => "ledger",
            Self::Process => "process",
            Self::Broken => "BROKEN",
        }
    }
}

/// The trace of a run.
#[derive(Clone, Debug)]
pub struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

/// An odd number without pattern: the fraction of the golden ratio.
const ODD: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes a word into a hash.
pub(in super::super) const fn mix(hash: u64, word: u64) -> u64 {
    let mixed = (hash ^ word).wrapping_mul(ODD);
    mixed ^ (mixed >> 29)
}

/// Mixes bytes into a hash: in words of little-endian bytes, so that every machine gets the same.
pub(in super::super) fn mix_bytes(mut hash: u64, bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        hash = mix(hash, word.try_into().map_or(0, u64::from_le_bytes));
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    mix(mix(hash, u64::from_le_bytes(last)), bytes.len() as u64)
}

impl Trace {
    pub(super) const fn new(record: bool) -> Self {
        Self { hash: ODD, lines: if record { Some(Vec::new()) } else { None } }
    }

    /// Notes something; `a` and `b` say where.
    pub(super) fn note(&mut self, now: Instant, seen: Seen, a: u64, b: u64, text: &[u8]) {
        let head = mix(mix(mix(mix(self.hash, now.as_nanos()), seen as u64), a), b);
        self.hash = mix_bytes(head, text);
        if let Some(lines) = &mut self.lines {
            let mut line = format!("{:>16}  {:<17}", now.to_string(), seen.text());
            // A string takes all that is written.
            let _ = match seen {
                Seen::Event => write!(line, "{a}: "),
                Seen::ClientWrote | Seen::ServerRead | Seen::ServerWrote | Seen::ClientRead => {
                    write!(line, "link {a}: ")
                }
                Seen::Ended | Seen::Ledger | Seen::Process | Seen::Broken => Ok(()),
            };
            line.push_str(&String::from_utf8_lossy(text));
            lines.push(line);
        }
    }

    /// Its hash.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        self.hash
    }

    /// Its text, if it was to be recorded.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}
