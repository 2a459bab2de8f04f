//! What a server asks of its client: in the older revisions by a request of its own, with an id of its own.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::Revision;
use crate::mrtr::Kind;
use crate::rpc::encode;
use crate::rpc::scan::{MAX_NESTING, Scanner};

/// Requests of a server that wait for their client at once, in one session.
pub const MAX_ASKED: usize = 256;

/// The requests of one session that its client has not answered, each with what waits for it.
///
/// Ids only grow, so that a late answer never settles another request; an answer under an id that is not here is ignored
/// (rule C4). Full: [`ask`](Self::ask) refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outstanding<T> {
    next: u64,
    asked: BTreeMap<u64, T>,
}

impl<T> Default for Outstanding<T> {
    fn default() -> Self {
        Self { next: 0, asked: BTreeMap::new() }
    }
}

impl<T> Outstanding<T> {
    /// Registers a request and gives it its id; `None` if [`MAX_ASKED`] wait already.
    pub fn ask(&mut self, waits: T) -> Option<u64> {
        if self.asked.len() >= MAX_ASKED {
            return None;
        }
        self.next += 1;
        self.asked.insert(self.next, waits);
        Some(self.next)
    }

    /// The client answered, or nobody waits any more: what waited, once.
    pub fn settle(&mut self, id: u64) -> Option<T> {
        self.asked.remove(&id)
    }

    /// The session is over: all that waited.
    pub fn settle_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        core::mem::take(&mut self.asked).into_values()
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.asked.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked.is_empty()
    }
}

/// Whether a client of this revision can be asked this, given the capabilities that it declared.
#[must_use]
pub fn can_ask(revision: Revision, capabilities: &str, kind: Kind) -> bool {
    let known = match kind {
        Kind::Url => revision.has_elicitation_modes(),
        Kind::SamplingWithTools => revision >= Revision::V2025_11_25,
        Kind::Form => revision >= Revision::V2025_06_18,
        Kind::Sampling | Kind::Roots => true,
    };
    known && kind.is_declared(capabilities)
}

/// The parameters of such a request: those of the modern revision, without the member that the older one does not know,
/// and with the one that it wants. `id` tells an elicitation by address from others.
#[must_use]
pub fn params(revision: Revision, kind: Kind, params: &str, id: u64) -> Box<str> {
    let mut out = Vec::with_capacity(params.len() + 32);
    let mut scanner = Scanner::new(params, MAX_NESTING);
    let mut first = true;
    let mut named = false;
    let copied = scanner.object(|name, scanner| {
        let value = scanner.value()?;
        named |= name.is("elicitationId");
        let unknown = name.is("mode") && kind == Kind::Form && !revision.has_elicitation_modes();
        if !unknown {
            out.push(if core::mem::take(&mut first) { b'{' } else { b',' });
            out.extend_from_slice(name.quoted().as_bytes());
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        Ok(())
    });
    if copied.is_err() {
        return params.into();
    }
    if first {
        out.push(b'{');
    }
    if kind == Kind::Url && !named {
        out.extend_from_slice(b",\"elicitationId\":");
        encode::string(&mut out, itoa::Buffer::new().format(id));
    }
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_settles_its_own_request_once() {
        let mut outstanding = Outstanding::default();
        let (one, two) = (outstanding.ask("one"), outstanding.ask("two"));
        assert_ne!(one, two);
        let one = one.expect("room");
        assert_eq!((outstanding.settle(one), outstanding.settle(one)), (Some("one"), None));
        assert!(outstanding.ask("three") > two, "an id is never given again");
        assert_eq!(outstanding.settle(99), None);
        assert_eq!(outstanding.settle_all().count(), 2);
        assert!(outstanding.is_empty());
    }

    #[test]
    fn a_full_table_refuses_until_one_is_answered() {
        let mut outstanding = Outstanding::default();
        let ids: Vec<_> = (0..MAX_ASKED).map(|_| outstanding.ask(()).expect("room")).collect();
        assert_eq!((outstanding.ask(()), outstanding.len()), (None, MAX_ASKED));
        assert_eq!(outstanding.settle(ids[7]), Some(()));
        assert!(outstanding.ask(()).is_some());
    }

    #[test]
    fn a_client_is_asked_what_its_revision_has_and_it_declared() {
        let all = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;
        let can = |revision| {
            [Kind::Form, Kind::Url, Kind::Sampling, Kind::SamplingWithTools, Kind::Roots]
                .map(|kind| can_ask(revision, all, kind))
        };
        assert_eq!(can(Revision::V2025_11_25), [true; 5]);
        assert_eq!(can(Revision::V2025_06_18), [true, false, true, false, true]);
        assert_eq!(can(Revision::V2025_03_26), [false, false, true, false, true]);
        assert!(!can_ask(Revision::LATEST, r#"{"roots":{}}"#, Kind::Sampling));
    }

    #[test]
    fn a_question_has_the_members_of_its_revision() {
        let form = r#"{"mode":"form","message":"?","requestedSchema":{}}"#;
        assert_eq!(&*params(Revision::V2025_06_18, Kind::Form, form, 1), r#"{"message":"?","requestedSchema":{}}"#);
        assert_eq!(&*params(Revision::V2025_11_25, Kind::Form, form, 1), form);
        assert_eq!(
            &*params(Revision::V2025_11_25, Kind::Url, r#"{"mode":"url","url":"https://x"}"#, 7),
            r#"{"mode":"url","url":"https://x","elicitationId":"7"}"#
        );
        assert_eq!(&*params(Revision::V2025_03_26, Kind::Roots, "{}", 7), "{}");
    }
}
