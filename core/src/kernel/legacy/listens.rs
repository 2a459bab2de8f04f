//! The listens of a client whose server has none: it says everything to everybody, but for single resources. Each of these is
//! subscribed to once for all listens that name it, and a listen is acknowledged when the server has subscribed to all of its
//! own: what is read then is not older than the first notice.
//!
//! ```text
//!   listen ──► resources/subscribe ──► its result ──► acknowledged
//!     ▲                                                    │ the last listen that names the resource goes
//!     └── who comes meanwhile waits ── its answer ◄── resources/unsubscribe
//! ```
//!
//! The server may handle two requests in any order, so none to subscribe is out beside one to unsubscribe. The latter has a
//! time of its own, since a listen that comes meanwhile waits for it.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde_json::value::RawValue;

use super::calls::{In, Out, Ready, STAMP, answer, notification};
use crate::id::RequestId;
use crate::kernel::port::Unanswered;
use crate::legacy::method as legacy;
use crate::rpc::scan::{MAX_NESTING, Scanner};
use crate::rpc::{Body, encode, members, method, text};
use crate::subscription::Filter;

/// Requests to unsubscribe whose answers are waited for at most. The oldest of more are not.
const MAX_LEAVING: usize = Filter::MAX_NAMED;
/// Names the requests of the adapter itself. The rest is their number.
const OWN: &str = "own-";

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Listens {
    /// Bounded by the client's cap of subscriptions.
    open: BTreeMap<i64, Listen>,
    /// The resources that the server was asked about: what open listens name, and [`MAX_LEAVING`] more.
    watched: BTreeMap<String, Watched>,
    /// The requests whose answers are waited for: of each resource one at most.
    asked: BTreeMap<u64, String>,
    /// The number of the last request.
    own: u64,
}

#[derive(Debug)]
struct Listen {
    filter: String,
    /// The resources that the server has not subscribed to yet.
    missing: BTreeSet<String>,
}

/// Where the subscription to a resource is.
#[derive(Clone, Copy, Debug)]
enum Watched {
    /// With the number of the request that is out.
    Subscribing(u64),
    Subscribed,
    Leaving,
}

impl Listens {
    pub(super) fn open(&mut self, id: i64, params: &str, ready: &mut In, say: &mut Out) {
        let filter = members(params, &["notifications"]).and_then(|[filter]| filter).unwrap_or("{}");
        let mut missing: BTreeSet<String> = uris(filter).collect();
        missing.retain(|uri| !matches!(self.watched.get(uri), Some(Watched::Subscribed)));
        for uri in &missing {
            if !self.watched.contains_key(uri) {
                self.subscribe(uri, say);
            }
        }
        let listen = Listen { filter: filter.to_string(), missing };
        if listen.missing.is_empty() {
            ready.push_back(acknowledged(id, &listen).into());
        }
        self.open.insert(id, listen);
    }

    /// Whether it was one.
    pub(super) fn close(&mut self, id: i64, say: &mut Out) -> bool {
        let Some(Listen { filter, .. }) = self.open.remove(&id) else { return false };
        self.leave(uris(&filter).collect(), say);
        true
    }

    /// All are lost. What the server still knows of is not known.
    pub(super) fn lose(&mut self, ready: &mut In) {
        let lost = || Unanswered::Lost("the server's stream of notifications was lost".into());
        let open = core::mem::take(&mut self.open);
        ready.extend(open.into_keys().map(|id| Ready::Unanswered(id.into(), lost())));
        self.watched.retain(|_, watched| matches!(watched, Watched::Leaving));
        self.asked.retain(|_, uri| self.watched.contains_key(uri));
    }

    /// The server answered a request of the adapter.
    pub(super) fn answered(&mut self, id: &str, body: &Body<'_>, ready: &mut In, say: &mut Out) {
        match body {
            Body::Result(_) => self.ended(id, Ok(()), ready, say),
            Body::Error(error) => {
                let error: &RawValue = error;
                self.ended(id, Err(&|id| answer(id, "error", error.get()).into()), ready, say);
            }
        }
    }

    /// There is no answer to a request of the adapter.
    pub(super) fn unanswered(&mut self, id: &str, end: &Unanswered, ready: &mut In, say: &mut Out) {
        self.ended(id, Err(&|id| Ready::Unanswered(id.into(), end.clone())), ready, say);
    }

    /// `outcome`: with what listens end that wanted it.
    fn ended(&mut self, id: &str, outcome: Result<(), &dyn Fn(i64) -> Ready>, ready: &mut In, say: &mut Out) {
        let own = id.strip_prefix(OWN).and_then(|own| own.parse::<u64>().ok());
        // Of one that is not waited for any more.
        let Some(uri) = own.and_then(|own| self.asked.remove(&own)) else { return };
        match (self.watched.remove(&uri), outcome) {
            (Some(Watched::Subscribing(_)), Ok(())) => {
                for (id, listen) in &mut self.open {
                    if listen.missing.remove(&uri) && listen.missing.is_empty() {
                        ready.push_back(acknowledged(*id, listen).into());
                    }
                }
                self.watched.insert(uri, Watched::Subscribed);
            }
            (Some(Watched::Subscribing(_)), Err(end)) => {
                let waits = |listen: &Listen| listen.missing.contains(&uri);
                let waited: BTreeSet<i64> = self.open.iter().filter(|(_, l)| waits(l)).map(|(id, _)| *id).collect();
                let mut named = BTreeSet::new();
                for id in waited {
                    named.extend(self.open.remove(&id).into_iter().flat_map(|listen| uris(&listen.filter)));
                    ready.push_back(end(id));
                }
                self.leave(named, say);
            }
            // However it ended: it does not overtake any more.
            (Some(Watched::Leaving), _) => {
                if self.open.values().any(|listen| listen.missing.contains(&uri)) {
                    self.subscribe(&uri, say);
                }
            }
            (Some(Watched::Subscribed) | None, _) => {}
        }
    }

    fn subscribe(&mut self, uri: &str, say: &mut Out) {
        let own = self.ask(legacy::SUBSCRIBE, uri, say);
        self.watched.insert(uri.into(), Watched::Subscribing(own));
    }

    /// Listens that named these are gone.
    fn leave(&mut self, mut left: BTreeSet<String>, say: &mut Out) {
        // The server has one subscription for all who name a resource.
        for uri in self.open.values().flat_map(|other| uris(&other.filter)) {
            left.remove(&uri);
        }
        for uri in left {
            match self.watched.get(&uri) {
                // The server may subscribe yet; its answer to that says nothing any more.
                Some(Watched::Subscribing(own)) => drop(self.asked.remove(own)),
                Some(Watched::Subscribed) => {}
                Some(Watched::Leaving) | None => continue,
            }
            self.ask(legacy::UNSUBSCRIBE, &uri, say);
            self.watched.insert(uri, Watched::Leaving);
        }
        let leaving: Vec<u64> = self.leaving().collect();
        let more = leaving.len().saturating_sub(MAX_LEAVING);
        self.forget(&leaving[..more], say);
    }

    /// The requests to unsubscribe whose answers are waited for.
    fn leaving(&self) -> impl Iterator<Item = u64> + '_ {
        let is_leaving = |uri: &String| matches!(self.watched.get(uri), Some(Watched::Leaving));
        self.asked.iter().filter(move |(_, uri)| is_leaving(uri)).map(|(own, _)| *own)
    }

    /// The last request, if the answer to one to unsubscribe is waited for.
    pub(super) fn leaves(&self) -> Option<u64> {
        self.leaving().next().map(|_| self.own)
    }

    /// Requests to unsubscribe up to this one have taken too long: their answers are waited for no more.
    pub(super) fn give_up(&mut self, last: u64, say: &mut Out) {
        let late: Vec<u64> = self.leaving().filter(|own| *own <= last).collect();
        self.forget(&late, say);
    }

    fn forget(&mut self, leaving: &[u64], say: &mut Out) {
        for own in leaving {
            let Some(uri) = self.asked.remove(own) else { continue };
            self.watched.remove(&uri);
            if self.open.values().any(|listen| listen.missing.contains(&uri)) {
                self.subscribe(&uri, say);
            }
        }
    }

    fn ask(&mut self, name: &str, uri: &str, say: &mut Out) -> u64 {
        self.own += 1;
        let (mut params, mut text) = (b"{\"uri\":".to_vec(), Vec::new());
        encode::string(&mut params, uri);
        params.push(b'}');
        let params = String::from_utf8(params).unwrap_or_default();
        encode::request(&mut text, &RequestId::from(&*format!("{OWN}{}", self.own)), name, &params);
        say.push(text);
        self.asked.insert(self.own, uri.into());
        self.own
    }

    /// A change of the server's lists, or of one resource. Whether this is one.
    pub(super) fn hear(&self, name: &str, params: &str, ready: &mut In) -> bool {
        let listed = match name {
            "notifications/tools/list_changed" => "toolsListChanged",
            "notifications/prompts/list_changed" => "promptsListChanged",
            "notifications/resources/list_changed" => "resourcesListChanged",
            "notifications/resources/updated" => {
                let uri = members(params, &["uri"]).and_then(|[uri]| text(uri?)).unwrap_or_default();
                self.stamp(name, params, |filter| uris(filter).any(|watched| watched == uri), ready);
                return true;
            }
            _ => return false,
        };
        let wanted = |filter: &str| members(filter, &[listed]).is_some_and(|[wanted]| wanted == Some("true"));
        self.stamp(name, params, wanted, ready);
        true
    }

    /// Hands a change to each listen that asked for it, as the modern revision has it (rule L2), and is acknowledged: the
    /// others read everything then.
    fn stamp(&self, name: &str, params: &str, wants: impl Fn(&str) -> bool, ready: &mut In) {
        let hear = self.open.iter().filter(|(_, listen)| listen.missing.is_empty() && wants(&listen.filter));
        for (id, _) in hear {
            let mut stamped = format!("{{\"_meta\":{{\"{STAMP}\":{id}}}");
            let _object = Scanner::new(params, MAX_NESTING).object(|member, scanner| {
                let value = scanner.value()?;
                if !member.is("_meta") {
                    stamped.push(',');
                    stamped.push_str(member.quoted());
                    stamped.push(':');
                    stamped.push_str(value);
                }
                Ok(())
            });
            stamped.push('}');
            ready.push_back(notification(name, &stamped).into());
        }
    }
}

fn acknowledged(id: i64, listen: &Listen) -> String {
    let filter = &listen.filter;
    let stamped = format!("{{\"notifications\":{filter},\"_meta\":{{\"{STAMP}\":{id}}}}}");
    notification(method::ACKNOWLEDGED, &stamped)
}

/// The single resources that a filter names.
fn uris(filter: &str) -> impl Iterator<Item = String> + use<> {
    let all =
        members(filter, &["resourceSubscriptions"]).and_then(|[uris]| serde_json::from_str::<Vec<String>>(uris?).ok());
    all.unwrap_or_default().into_iter()
}
