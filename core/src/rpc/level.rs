//! The levels of log messages (rule M11).

/// From which level on a client wants log messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the levels of syslog")]
pub enum Level {
    /// For those who look for a fault.
    Debug,
    /// What happens.
    Info,
    /// What happens and matters.
    Notice,
    /// Not as it should be.
    Warning,
    /// Something failed.
    Error,
    /// Something that is needed failed.
    Critical,
    /// Somebody must act at once.
    Alert,
    /// Nothing works.
    Emergency,
}

impl Level {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Debug, "debug"),
        (Self::Info, "info"),
        (Self::Notice, "notice"),
        (Self::Warning, "warning"),
        (Self::Error, "error"),
        (Self::Critical, "critical"),
        (Self::Alert, "alert"),
        (Self::Emergency, "emergency"),
    ];

    /// The level of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(level, _)| *level)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(level, _)| *level == self).map_or("debug", |(_, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn levels_have_the_names_of_syslog() {
        for (level, name) in Level::ALL {
            assert_eq!((Level::of(name), level.name()), (Some(level), name));
        }
        assert_eq!(Level::of("verbose"), None);
    }
}
