//! Decides what of a ledger is the deployment's choice. Durability is not.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use steady_core::time::WallTime;

use crate::secret::Secret;

/// How to open a ledger. Every field has a default: `Options { schema: ".. ".into(), ..Options::default() }`.
#[derive(Clone, Debug)]
pub struct Options {
    /// SQL that creates the application's own tables in the ledger's file, so that effects can use them. It runs in one
    /// transaction at every open, so it must be idempotent (`CREATE TABLE IF NOT EXISTS`). It may not end that
    /// transaction, set pragmas, or name anything `ledger_*`. Default: none.
    pub schema: Cow<'static, str>,
    /// How long to wait for other connections to the file, 24 days at most. Default: 5 s.
    pub busy_timeout: Duration,
    /// How long a result is replayed. After that its key is refused, and still never runs again. Default: 7 days.
    pub retention: Duration,
    /// The key of the fingerprints. Default: 32 random bytes, made with the file and kept in it.
    pub secret: Option<Secret>,
    /// Where the ledger reads the time of its records. Default: the system's clock.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            schema: Cow::Borrowed(""),
            busy_timeout: Duration::from_secs(5),
            retention: Duration::from_secs(7 * 24 * 60 * 60),
            secret: None,
            clock: Clock::default(),
        }
    }
}

/// A source of wall-clock time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> WallTime + Send + Sync>);

impl Clock {
    /// A clock that asks `now`.
    pub fn new(now: impl Fn() -> WallTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub(crate) fn now(&self) -> WallTime {
        (self.0)()
    }
}

/// The system's clock.
impl Default for Clock {
    fn default() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            WallTime::from_unix_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
        })
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
