//! Sessions of clients of the older revisions: who they belong to, and when they are forgotten.
//!
//! A session ends by DELETE, by idleness, or because another one needs its place. Most clients never send a DELETE, so
//! idleness and the cap are what bounds them. Looking through all of them is done when one is begun, and no more often
//! than a thousandth of the idle time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::HeaderValue;
use steady_core::kernel::LegacySession;
use steady_core::time::Instant;

use super::config::{HttpConfig, Principal};

/// 128 random bits.
type Id = [u8; 16];

/// All sessions of a service.
#[derive(Debug)]
pub(super) struct Sessions {
    most: usize,
    idle: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<Id, Arc<Session>>,
    /// When they are looked through again.
    sweep_at: Instant,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    id: Id,
    pub(super) kernel: Arc<LegacySession>,
    /// Who began it: nobody else finds it.
    principal: Principal,
    /// Requests in progress and open streams.
    busy: AtomicUsize,
    /// When the last of them ended, or it was begun: nanoseconds of the service's clock.
    idle_since: AtomicU64,
}

/// Keeps a session from counting as idle.
pub(super) struct InUse {
    session: Arc<Session>,
    now: Box<dyn Fn() -> Instant + Send + Sync>,
}

/// No session is idle.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

impl Sessions {
    pub(super) fn new(config: &HttpConfig) -> Self {
        Self { most: config.max_sessions.max(1), idle: config.session_idle, state: Mutex::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Keeps a session that has had its handshake.
    pub(super) fn begin(
        &self,
        now: Instant,
        kernel: &Arc<LegacySession>,
        principal: Principal,
    ) -> Result<Arc<Session>, Full> {
        let mut id = Id::default();
        // Without randomness there is no secret, and so no session.
        getrandom::fill(&mut id).map_err(|_| Full)?;
        let mut ended = Vec::new();
        let mut state = self.lock();
        if now >= state.sweep_at || state.sessions.len() >= self.most {
            state.sweep_at = now + self.idle / 1000;
            state.sessions.retain(|_, session| {
                let over = session.is_over(now, self.idle);
                if over {
                    ended.push(Arc::clone(session));
                }
                !over
            });
        }
        if state.sessions.len() >= self.most {
            let idle = state.sessions.values().filter(|session| !session.is_busy());
            let longest = idle.min_by_key(|session| session.idle_since.load(Ordering::Acquire)).map(|s| s.id);
            ended.extend(longest.and_then(|id| state.sessions.remove(&id)));
        }
        let room = state.sessions.len() < self.most;
        let session = Arc::new(Session {
            id,
            kernel: Arc::clone(kernel),
            principal,
            busy: AtomicUsize::new(0),
            idle_since: AtomicU64::new(now.as_nanos()),
        });
        if room {
            state.sessions.insert(id, Arc::clone(&session));
        }
        drop(state);
        ended.iter().for_each(|session| session.kernel.close(now));
        if room { Ok(session) } else { Err(Full) }
    }

    /// The session of this header, if it lives and is this caller's.
    pub(super) fn find(&self, now: Instant, header: &HeaderValue, principal: &Principal) -> Option<Arc<Session>> {
        let id = read(header)?;
        let mut state = self.lock();
        let session = state.sessions.get(&id).filter(|session| session.principal == *principal)?;
        if session.is_over(now, self.idle) {
            let ended = state.sessions.remove(&id);
            drop(state);
            ended.iter().for_each(|session| session.kernel.close(now));
            return None;
        }
        // From here on it is not idle, for as long as its request takes.
        session.idle_since.store(now.as_nanos(), Ordering::Release);
        Some(Arc::clone(session))
    }

    /// Ends a session; whether it was there, and this caller's.
    pub(super) fn end(&self, now: Instant, header: &HeaderValue, principal: &Principal) -> bool {
        let Some(session) = self.find(now, header, principal) else { return false };
        self.lock().sessions.remove(&session.id);
        session.kernel.close(now);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Session {
    /// Its id as a header: 32 hexadecimal digits.
    pub(super) fn header(&self) -> Option<HeaderValue> {
        let digits: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut header = HeaderValue::try_from(digits).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Counts as in use until what is returned is dropped.
    pub(super) fn in_use(self: &Arc<Self>, now: impl Fn() -> Instant + Send + Sync + 'static) -> InUse {
        self.busy.fetch_add(1, Ordering::AcqRel);
        InUse { session: Arc::clone(self), now: Box::new(now) }
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Acquire) > 0
    }

    fn is_over(&self, now: Instant, idle: Duration) -> bool {
        let since = Instant::from_nanos(self.idle_since.load(Ordering::Acquire));
        !self.is_busy() && now.saturating_since(since) >= idle
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.session.idle_since.store((self.now)().as_nanos(), Ordering::Release);
        self.session.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

fn read(header: &HeaderValue) -> Option<Id> {
    let digits: &[u8; 32] = header.as_bytes().try_into().ok()?;
    let mut id = Id::default();
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        // What is written is lower case: an id has one spelling.
        let digit = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(most: usize) -> Sessions {
        let config = HttpConfig { max_sessions: most, session_idle: Duration::from_secs(60), ..HttpConfig::default() };
        Sessions::new(&config)
    }

    const fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    fn begin(sessions: &Sessions, now: Instant, principal: Option<&str>) -> Result<Arc<Session>, Full> {
        sessions.begin(now, &Arc::default(), principal.map(Into::into))
    }

    #[test]
    fn a_session_is_found_by_its_owner_under_its_one_spelling() {
        let sessions = sessions(10);
        let session = begin(&sessions, at(0), Some("ann")).expect("room");
        let header = session.header().expect("digits");
        assert_eq!(header.len(), 32);
        let found =
            |header: &HeaderValue, who: Option<&str>| sessions.find(at(1), header, &who.map(Into::into)).is_some();
        assert!(found(&header, Some("ann")));
        assert!(!found(&header, Some("bob")) && !found(&header, None), "it is bound to its principal");
        let upper = header.to_str().expect("ASCII").to_uppercase();
        let other = ["", "0", &upper, &"z".repeat(32), &"0".repeat(32)];
        assert!(
            !other.iter().any(|id| *id != header && found(&HeaderValue::from_str(id).expect("visible"), Some("ann")))
        );
        assert!(!sessions.end(at(1), &header, &None), "nor does anybody else end it");
        assert!(sessions.end(at(1), &header, &Some("ann".into())) && !found(&header, Some("ann")));
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn no_two_ids_are_alike() {
        let sessions = sessions(2000);
        for _ in 0..1000 {
            begin(&sessions, at(0), None).expect("room");
        }
        assert_eq!(sessions.len(), 1000);
    }

    #[test]
    fn row_75_and_76_idle_sessions_are_forgotten_without_a_delete() {
        let sessions = sessions(10_000);
        for _ in 0..5000 {
            begin(&sessions, at(0), None).expect("room");
        }
        let used = begin(&sessions, at(30), None).expect("room");
        let header = used.header().expect("digits");
        begin(&sessions, at(60), None).expect("room");
        assert_eq!(sessions.len(), 2, "those of 60 s ago are gone");
        assert!(sessions.find(at(89), &header, &None).is_some());
        assert!(sessions.find(at(148), &header, &None).is_some(), "each use begins its time anew");
        assert!(sessions.find(at(208), &header, &None).is_none(), "and an idle one is not found");
        assert!(used.kernel.revision().is_none());
    }

    #[test]
    fn a_session_in_use_is_neither_idle_nor_in_the_way() {
        let sessions = sessions(2);
        let first = begin(&sessions, at(0), None).expect("room");
        let in_use = first.in_use(|| at(100));
        let second = begin(&sessions, at(1), None).expect("room");
        let third = begin(&sessions, at(2), None).expect("the idle one makes room");
        let found = |session: &Session, now| sessions.find(now, &session.header().expect("digits"), &None).is_some();
        assert!(found(&first, at(99)) && !found(&second, at(3)));
        let _in_use_too = third.in_use(|| at(100));
        assert_eq!(begin(&sessions, at(3), None).err(), Some(Full), "nobody is cut off in the middle of a request");
        drop(in_use);
        assert!(found(&first, at(150)), "its time runs from the end of its last request");
        assert!(begin(&sessions, at(151), None).is_ok());
    }
}
