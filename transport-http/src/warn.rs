//! Where warnings go.

use std::fmt;
use std::sync::Arc;

/// What a warning is handed to.
#[derive(Clone)]
pub struct Warn(Arc<dyn Fn(&str) + Send + Sync>);

impl Warn {
    /// Hands warnings to `sink`.
    pub fn to(sink: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    pub(crate) fn say(&self, warning: &str) {
        (self.0)(warning);
    }
}

impl Default for Warn {
    fn default() -> Self {
        use std::io::Write as _;
        Self::to(|warning| {
            let _nobody_listens = writeln!(std::io::stderr(), "warning: {warning}");
        })
    }
}

impl fmt::Debug for Warn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Warn")
    }
}
