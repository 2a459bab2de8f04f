//! Sessions of clients of the older revisions: who they belong to, and when they are forgotten.
//!
//! A session ends by DELETE, by idleness, or because another one needs its place. Most clients never send a DELETE, so
//! idleness and the cap are what bounds them. Looking through all of them is done when one is begun: for idle ones no more
//! often than a thousandth of the idle time, and at the cap each time, for the one that makes room.
//!
//! Who makes room: one that is idle for too long; else one of the same caller, so that a caller who begins sessions
//! without an end ends its own; else anybody's. Of those, one that was never used after its handshake comes first, and
//! then the one that is idle for longest.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use http::HeaderValue;
use steady_core::kernel::{LegacySession, Timer};
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
    /// Whether anything came after the handshake.
    used: AtomicBool,
    /// When the last of them ended, or it was begun: nanoseconds of the service's clock.
    idle_since: AtomicU64,
}

/// A session that was found: as long as this lives, it neither counts as idle nor makes room.
pub(super) struct InUse {
    session: Arc<Session>,
    timer: Arc<dyn Timer>,
}

impl InUse {
    pub(super) fn kernel(&self) -> &Arc<LegacySession> {
        &self.session.kernel
    }
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
        if now >= state.sweep_at {
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
            let first = idle.min_by_key(|session| session.makes_room(now, self.idle, &principal)).map(|s| s.id);
            ended.extend(first.and_then(|id| state.sessions.remove(&id)));
        }
        let room = state.sessions.len() < self.most;
        let session = Arc::new(Session {
            id,
            kernel: Arc::clone(kernel),
            principal,
            busy: AtomicUsize::new(0),
            used: AtomicBool::new(false),
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
    pub(super) fn find(&self, timer: &Arc<dyn Timer>, header: &HeaderValue, principal: &Principal) -> Option<InUse> {
        let id = read(header)?;
        let now = timer.now();
        let mut state = self.lock();
        let session = state.sessions.get(&id).filter(|session| session.principal == *principal)?;
        if session.is_over(now, self.idle) {
            let ended = state.sessions.remove(&id);
            drop(state);
            ended.iter().for_each(|session| session.kernel.close(now));
            return None;
        }
        // Under the lock, so that no other handshake takes it for idle.
        session.busy.fetch_add(1, Ordering::AcqRel);
        session.used.store(true, Ordering::Release);
        Some(InUse { session: Arc::clone(session), timer: Arc::clone(timer) })
    }

    /// Ends a session; whether it was there, and this caller's.
    pub(super) fn end(&self, now: Instant, header: &HeaderValue, principal: &Principal) -> bool {
        let Some(id) = read(header) else { return false };
        let mut state = self.lock();
        if state.sessions.get(&id).is_none_or(|session| session.principal != *principal) {
            return false;
        }
        let Some(session) = state.sessions.remove(&id) else { return false };
        let over = session.is_over(now, self.idle);
        drop(state);
        session.kernel.close(now);
        !over
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

    /// The least of all makes room for a session of this caller.
    fn makes_room(&self, now: Instant, idle: Duration, caller: &Principal) -> (bool, bool, bool, u64) {
        let idle_since = self.idle_since.load(Ordering::Acquire);
        let used = self.used.load(Ordering::Acquire);
        (!self.is_over(now, idle), self.principal != *caller, used, idle_since)
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
        self.session.idle_since.store(self.timer.now().as_nanos(), Ordering::Release);
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

    /// A clock that a test sets, in seconds.
    #[derive(Default)]
    struct Clock(AtomicU64);

    impl Timer for Clock {
        fn now(&self) -> Instant {
            at(self.0.load(Ordering::Relaxed))
        }

        fn sleep_until(&self, _: Instant) -> steady_core::kernel::BoxFuture<()> {
            Box::pin(std::future::pending())
        }
    }

    fn clock() -> (Arc<Clock>, Arc<dyn Timer>) {
        let clock = Arc::new(Clock::default());
        (Arc::clone(&clock), clock)
    }

    fn find(sessions: &Sessions, seconds: u64, header: &HeaderValue, who: Option<&str>) -> Option<InUse> {
        let (clock, timer) = clock();
        clock.0.store(seconds, Ordering::Relaxed);
        sessions.find(&timer, header, &who.map(Into::into))
    }

    fn lives(sessions: &Sessions, seconds: u64, session: &Session) -> bool {
        find(sessions, seconds, &session.header().expect("digits"), session.principal.as_deref()).is_some()
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
        let found = |header: &HeaderValue, who: Option<&str>| find(&sessions, 1, header, who).is_some();
        assert!(found(&header, Some("ann")));
        assert!(!found(&header, Some("bob")) && !found(&header, None), "it is bound to its principal");
        let upper = header.to_str().expect("ASCII").to_uppercase();
        let other = ["", "0", &upper, &"z".repeat(32), &"0".repeat(32)];
        assert!(
            !other.iter().any(|id| *id != header && found(&HeaderValue::from_str(id).expect("visible"), Some("ann")))
        );
        assert!(!sessions.end(at(1), &header, &None), "nor does anybody else end it");
        let end = || sessions.end(at(1), &header, &Some("ann".into()));
        assert!(end() && !end() && !found(&header, Some("ann")));
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
        begin(&sessions, at(60), None).expect("room");
        assert_eq!(sessions.len(), 2, "those of 60 s ago are gone");
        assert!(lives(&sessions, 89, &used));
        assert!(lives(&sessions, 148, &used), "each use begins its time anew");
        assert!(!lives(&sessions, 208, &used), "and an idle one is not found");
        assert!(used.kernel.revision().is_none());
    }

    #[test]
    fn a_session_in_use_is_neither_idle_nor_in_the_way() {
        let sessions = sessions(2);
        let (clock, timer) = clock();
        let use_of = |session: &Session| sessions.find(&timer, &session.header().expect("digits"), &None);
        let first = begin(&sessions, at(0), None).expect("room");
        let in_use = use_of(&first).expect("it lives");
        let second = begin(&sessions, at(1), None).expect("room");
        let third = begin(&sessions, at(2), None).expect("the idle one makes room");
        assert!(lives(&sessions, 99, &first) && !lives(&sessions, 3, &second));
        let _in_use_too = use_of(&third).expect("it lives");
        assert_eq!(begin(&sessions, at(3), None).err(), Some(Full), "nobody is cut off in the middle of a request");
        clock.0.store(100, Ordering::Relaxed);
        drop(in_use);
        assert!(lives(&sessions, 150, &first), "its time runs from the end of its last request");
        assert!(begin(&sessions, at(151), None).is_ok());
    }

    #[test]
    fn who_begins_sessions_without_an_end_ends_its_own() {
        let sessions = sessions(4);
        let ann = begin(&sessions, at(0), Some("ann")).expect("room");
        let unused = begin(&sessions, at(1), Some("ann")).expect("room");
        let bobs = begin(&sessions, at(2), Some("bob")).expect("room");
        assert!(lives(&sessions, 3, &ann) && lives(&sessions, 3, &bobs));
        for second in 4..30 {
            begin(&sessions, at(second), Some("bob")).expect("room");
        }
        assert!(lives(&sessions, 30, &ann), "it is the one that is idle for longest, and not bob's");
        assert!(lives(&sessions, 30, &bobs), "nor the one of his that he uses");
        begin(&sessions, at(31), Some("ann")).expect("room");
        assert!(lives(&sessions, 32, &ann) && !lives(&sessions, 32, &unused), "of her own, first what was never used");
        begin(&sessions, at(33), Some("eve")).expect("anybody's");
        assert!(lives(&sessions, 34, &ann), "the others were never used");
    }
}
