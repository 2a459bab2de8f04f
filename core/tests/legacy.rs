//! A session of the older revisions: every reachable state times every event, and a naive model beside it.

#[path = "support/invariants/mod.rs"]
mod invariants;
#[path = "support/searched.rs"]
mod searched;

use std::collections::{HashSet, VecDeque};

use steady_core::legacy::{Asked, Effect, Event, Refusal, Revision, Session};

use invariants::{
    leg_1_no_handler_without_a_handshake, leg_2_no_change_before_the_client_is_ready, leg_3_batches_of_one_revision,
    leg_4_the_end_stays,
};
use searched::Searched;

const ASKED: [Asked; 7] =
    [Asked::Initialize, Asked::Ping, Asked::Level, Asked::Subscribe, Asked::Unsubscribe, Asked::Modern, Asked::Shared];

fn events() -> Vec<Event> {
    let mut events = vec![Event::Initialized, Event::Batch, Event::Change, Event::Close];
    events.extend(Revision::ALL.map(Event::Initialize));
    events.extend(ASKED.map(Event::Request));
    events
}

/// What a reader of the specification would keep: the revision, whether the client is ready, whether it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
struct Model {
    agreed: Option<Revision>,
    ready: bool,
    over: bool,
}

impl Model {
    fn after(self, event: Event) -> Self {
        match event {
            _ if self.over => self,
            Event::Initialize(revision) => Self { agreed: Some(revision), ready: false, over: false },
            Event::Initialized => Self { ready: self.agreed.is_some(), ..self },
            Event::Close => Self { agreed: None, ready: false, over: true },
            Event::Request(_) | Event::Batch | Event::Change => self,
        }
    }
}

#[test]
fn every_state_of_a_session_times_every_event() {
    let mut searched = Searched::begin();
    let start = (Session::new(), Model::default());
    let mut seen = HashSet::from([start]);
    searched.state(true);
    let mut queue = VecDeque::from([start]);
    while let Some((session, model)) = queue.pop_front() {
        for event in events() {
            let mut after = session;
            let told = after.handle(event);
            searched.transitions += 1;
            check((session, model), event, told, after);
            let next = (after, model.after(event));
            assert_eq!((after.revision(), after.is_closed()), (next.1.agreed, next.1.over), "{event:?} in {model:?}");
            let fresh = seen.insert(next);
            searched.state(fresh);
            if fresh {
                queue.push_back(next);
            }
        }
    }
    searched.report("session of an older revision");
    assert_eq!(seen.len(), 8, "fresh, opening and open for each of three revisions, closed: {seen:?}");
}

fn check((session, model): (Session, Model), event: Event, told: Effect, after: Session) {
    let at = (session, event);
    leg_4_the_end_stays(session.is_closed(), after.is_closed(), &at);
    match event {
        Event::Request(Asked::Ping) => assert_eq!(told == Effect::Serve, !model.over, "{at:?}"),
        Event::Request(asked) => {
            leg_1_no_handler_without_a_handshake(model.agreed.is_some(), told == Effect::Serve, &at);
            let known = !matches!(asked, Asked::Modern | Asked::Initialize);
            assert_eq!(told == Effect::Serve, model.agreed.is_some() && known, "{at:?}");
        }
        Event::Batch => leg_3_batches_of_one_revision(model.agreed, told, &at),
        Event::Change => {
            leg_2_no_change_before_the_client_is_ready(model.ready, told, &at);
            assert_eq!(told == Effect::Nothing, model.over, "a change is lost at the end only: {at:?}");
        }
        Event::Initialize(revision) => {
            let expected = if model.over { Effect::Refuse(Refusal::Ended) } else { Effect::Begin(revision) };
            assert_eq!(told, expected, "{at:?}");
        }
        Event::Initialized => {
            let first = model.agreed.is_some() && !model.ready;
            assert_eq!(told == Effect::Ready, first, "{at:?}");
        }
        Event::Close => assert_eq!(told, Effect::Nothing, "{at:?}"),
    }
}
