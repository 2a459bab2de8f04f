//! The capacities of the outbound buffer and their defaults.

/// When a newer progress value replaces one that already waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Coalesce {
    /// Wherever the older value of the same token waits. Each token then owns at most one place.
    #[default]
    SameToken,
    /// Only if the older value of the same token is the newest evictable message.
    Adjacent,
}

/// Capacities of an [`Outbound`](super::Outbound). Bytes count message text, not the fixed size of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_structs, reason = "plain settings, meant to be written out with ..Default::default()")]
pub struct Config {
    /// Evictable messages (progress and notices). Default 256. At least the number of requests in flight loses nothing
    /// under [`Coalesce::SameToken`].
    pub capacity: usize,
    /// Text bytes of all evictable messages together. Default 256 KiB.
    pub bytes: usize,
    /// Final responses. Default 1024; a server sets it to its cap of requests in flight, so that each has its place.
    pub finals: usize,
    /// Text bytes of all kept messages together, above which a further one is refused. A single larger one is accepted
    /// when it would be the only one. Refusals count, and are bounded by their number alone. Default 64 MiB.
    pub kept_bytes: usize,
    /// Lossless progress messages. Default 256: a batch that is worth a write and a wake-up.
    pub lossless: usize,
    /// Text bytes of all lossless progress together, from which on a further one waits: small and large ones alike, so that a
    /// large one is not kept out by small ones. At least 1. Default 32 KiB.
    pub lossless_bytes: usize,
    /// Refusals (errors that hold no permit). Default 16.
    pub refusals: usize,
    /// Which progress coalesces.
    pub coalesce: Coalesce,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            capacity: 256,
            bytes: 256 << 10,
            finals: 1024,
            kept_bytes: 64 << 20,
            lossless: 256,
            lossless_bytes: 32 << 10,
            refusals: 16,
            coalesce: Coalesce::default(),
        }
    }
}
