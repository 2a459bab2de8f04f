//! The older revisions, and which one a handshake agrees on.

use core::fmt;

/// A revision that opens with `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "no other one will ever be written")]
pub enum Revision {
    /// 2025-03-26: the only one with batches.
    V2025_03_26,
    /// 2025-06-18: elicitation, structured results, the version header.
    V2025_06_18,
    /// 2025-11-25: elicitation by address, sampling with tools.
    V2025_11_25,
}

impl Revision {
    /// All of them, the oldest first.
    pub const ALL: [Self; 3] = [Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25];
    /// The newest.
    pub const LATEST: Self = Self::V2025_11_25;
    /// Their names, the newest first, as a refusal lists them.
    pub const NAMES: [&'static str; 3] = [Self::V2025_11_25.name(), Self::V2025_06_18.name(), Self::V2025_03_26.name()];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
        }
    }

    /// The revision of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|revision| revision.name() == name)
    }

    /// What a server answers to a client that asks for `requested`: the same if it is spoken here, and the newest
    /// otherwise. A client that does not speak that one leaves.
    #[must_use]
    pub fn negotiate(requested: &str) -> Self {
        Self::of(requested).unwrap_or(Self::LATEST)
    }

    /// Whether several messages may travel in one array.
    #[must_use]
    pub const fn has_batches(self) -> bool {
        match self {
            Self::V2025_03_26 => true,
            Self::V2025_06_18 | Self::V2025_11_25 => false,
        }
    }

    /// Whether an elicitation says its mode, a form or an address. Before that there were only forms.
    #[must_use]
    pub const fn has_elicitation_modes(self) -> bool {
        match self {
            Self::V2025_03_26 | Self::V2025_06_18 => false,
            Self::V2025_11_25 => true,
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Revision;

    #[test]
    fn a_known_revision_is_answered_by_itself_and_any_other_by_the_newest() {
        for revision in Revision::ALL {
            assert_eq!(Revision::negotiate(revision.name()), revision);
        }
        for other in ["2024-11-05", "2026-07-28", "", "2025-11-2"] {
            assert_eq!(Revision::negotiate(other), Revision::LATEST, "{other:?}");
        }
        assert_eq!(Revision::NAMES.map(Revision::of), [2, 1, 0].map(|nth| Some(Revision::ALL[nth])));
    }
}
