//! W3C trace contexts: those that a server reads, and those that a client's requests carry in `_meta`.

use alloc::boxed::Box;
use alloc::sync::Arc;

/// The two members of `_meta`.
pub(super) const PARENT: &str = "traceparent";
pub(super) const STATE: &str = "tracestate";

/// Longest `tracestate`, in bytes: what every implementation must pass on.
const LONGEST_STATE: usize = 512;

/// A trace context for a request to carry.
///
/// ```
/// use steady_core::kernel::client::TraceContext;
///
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// assert!(TraceContext::new(parent, Some("vendor=1")).is_some());
/// assert!(TraceContext::new("not one", None).is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    parent: Box<str>,
    state: Option<Box<str>>,
}

impl TraceContext {
    /// From the values of the two headers. `None` if `traceparent` has not the form of one; a `tracestate` that has not, or
    /// is longer than 512 bytes, is left out.
    #[must_use]
    pub fn new(traceparent: &str, tracestate: Option<&str>) -> Option<Self> {
        let state = tracestate.filter(|state| is_tracestate(state)).map(Box::from);
        is_traceparent(traceparent).then(|| Self { parent: traceparent.into(), state })
    }

    /// Names and values for `_meta`.
    pub(super) fn members(&self) -> impl Iterator<Item = (&'static str, &str)> {
        core::iter::once((PARENT, &*self.parent)).chain(self.state.as_deref().map(|state| (STATE, state)))
    }
}

/// Asks the application for the current trace context, once for each call, inside of the call's own span. All attempts of
/// the call carry it.
#[derive(Clone)]
pub struct Propagator(Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>);

impl Propagator {
    /// `current` runs in the thread that starts a call; no lock is held.
    #[must_use]
    pub fn new(current: impl Fn() -> Option<TraceContext> + Send + Sync + 'static) -> Self {
        Self(Arc::new(current))
    }

    pub(super) fn current(&self) -> Option<TraceContext> {
        (self.0)()
    }
}

impl core::fmt::Debug for Propagator {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Propagator")
    }
}

/// W3C Trace Context: version, trace id, parent id, flags, in lower-case hexadecimal.
pub(super) fn is_traceparent(text: &str) -> bool {
    const WIDTHS: [usize; 4] = [2, 32, 16, 2];
    let hexadecimal = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let parts = || text.split('-');
    parts().map(str::len).eq(WIDTHS) && parts().all(hexadecimal)
}

pub(super) fn is_tracestate(text: &str) -> bool {
    text.len() <= LONGEST_STATE && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}
