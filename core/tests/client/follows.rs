//! Tasks that a client follows: the server's rhythm, failures, and every end.

use std::time::Duration;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::client::{Input, MAX_FOLLOWS, Output};
use steady_core::follow::{Config, End, Event};
use steady_core::id::{ClientId, FollowId};
use steady_core::retry::Contract;
use steady_core::subscription::{self, Filter};
use steady_core::time::Instant;

use super::{Calls, Out, answer, drain, ms, options, start, stdio, wake_at};

fn limits() -> Config {
    Config {
        shortest: Duration::from_millis(500),
        longest: Duration::from_secs(10),
        usual: Duration::from_secs(5),
        backoff: Backoff { base: Duration::from_millis(100), cap: Duration::from_millis(400) },
        maximum: None,
    }
}

fn jitter() -> Jitter {
    Jitter::seeded(ClientId::new(1), 0)
}

fn ask(id: FollowId) -> Out {
    Output::Ask { follow: id, task: "task-1".into() }
}

fn followed(id: FollowId, end: End) -> Out {
    Output::Followed { follow: id, end }
}

/// Follows a task; the first question goes out at once.
fn follow(client: &mut Calls, now: Instant, config: Config) -> FollowId {
    let id = client.follow(now, "task-1", config, jitter()).expect("below the limit");
    assert_eq!(drain(client), [ask(id)]);
    id
}

const fn seen(interval: Option<u64>) -> Event {
    let interval = match interval {
        Some(ms) => Some(Duration::from_millis(ms)),
        None => None,
    };
    Event::Seen { terminal: false, interval }
}

/// Goes to the next deadline.
fn tick(client: &mut Calls) -> (Instant, Vec<Out>) {
    let now = wake_at(client).expect("a deadline");
    client.handle_timeout(now);
    let outputs = drain(client);
    assert!(wake_at(client).is_none_or(|at| at > now), "no due deadline remains");
    (now, outputs)
}

#[test]
fn it_asks_in_the_servers_interval_within_its_bounds() {
    let named = [(Some(2000), 2000), (None, 5000), (Some(1), 500), (Some(3_600_000), 10_000)];
    let mut client = stdio();
    let id = follow(&mut client, ms(0), limits());
    let mut now = ms(0);
    for (interval, pause) in named {
        client.followed(now, id, seen(interval));
        assert_eq!(drain(&mut client), []);
        let (then, outputs) = tick(&mut client);
        let waited = then.saturating_since(now);
        let pause = Duration::from_millis(pause);
        assert!(waited >= pause && waited <= pause + pause / 10, "{interval:?}: {waited:?}");
        assert_eq!(outputs, [ask(id)]);
        now = then;
    }
}

#[test]
fn it_survives_answers_that_do_not_come() {
    let mut client = stdio();
    let id = follow(&mut client, ms(0), limits());
    let mut now = ms(0);
    for ceiling in [100, 200, 400, 400] {
        client.followed(now, id, Event::Failed);
        let (then, outputs) = tick(&mut client);
        assert!(then.saturating_since(now) <= Duration::from_millis(ceiling), "{then}");
        assert_eq!(outputs, [ask(id)], "the same task, again: nothing is created anew");
        now = then;
    }
    client.followed(now, id, Event::Seen { terminal: true, interval: None });
    assert_eq!(drain(&mut client), [followed(id, End::Terminal)]);
}

#[test]
fn it_ends_once_whatever_ends_it() {
    let ends = [
        (Event::Seen { terminal: true, interval: Some(Duration::ZERO) }, End::Terminal),
        (Event::Gone, End::Gone),
        (Event::Stop, End::Stopped),
    ];
    for (event, end) in ends {
        for pausing in [false, true] {
            let mut client = stdio();
            let id = follow(&mut client, ms(0), limits());
            if pausing {
                client.followed(ms(1), id, seen(None));
            }
            client.followed(ms(2), id, event);
            assert_eq!(drain(&mut client), [followed(id, end)]);
            for late in [event, Event::Failed, Event::Gone, Event::Stop, Event::Clock, seen(None)] {
                client.followed(ms(3), id, late);
            }
            client.handle_timeout(Instant::MAX);
            assert_eq!((drain(&mut client), wake_at(&mut client)), (vec![], None), "FOLLOW-1");
        }
    }
}

#[test]
fn the_maximum_ends_it_in_a_pause_and_while_it_asks() {
    let limits = Config { maximum: Some(Duration::from_secs(7)), ..limits() };
    let mut client = stdio();
    let id = follow(&mut client, ms(0), limits);
    let (now, outputs) = tick(&mut client);
    assert_eq!((now, outputs), (ms(7000), vec![followed(id, End::GaveUp)]), "a question without an answer");

    let id = follow(&mut client, ms(7000), limits);
    client.followed(ms(7000), id, seen(Some(9000)));
    let (now, outputs) = tick(&mut client);
    assert_eq!((now, outputs), (ms(14_000), vec![followed(id, End::GaveUp)]), "a pause beyond it");

    let id = follow(&mut client, ms(14_000), limits);
    client.followed(ms(21_000), id, Event::Seen { terminal: true, interval: None });
    client.handle_timeout(ms(21_000));
    assert_eq!(drain(&mut client), [followed(id, End::Terminal)], "a status in hand beats the maximum");
}

#[test]
fn the_number_of_followed_tasks_is_bounded() {
    let mut client = stdio();
    let ids: Vec<FollowId> = (0..MAX_FOLLOWS).map(|_| follow(&mut client, ms(0), limits())).collect();
    let refused = client.follow(ms(0), "one more", limits(), jitter()).expect_err("at the limit");
    assert!(refused.to_string().contains("1024 tasks"), "{refused}");
    assert_eq!(drain(&mut client), []);
    client.followed(ms(1), ids[0], Event::Stop);
    assert_eq!(drain(&mut client), [followed(ids[0], End::Stopped)]);
    let next = follow(&mut client, ms(1), limits());
    assert!(!ids.contains(&next));
}

#[test]
fn many_are_due_at_once_and_none_is_left_over() {
    let mut client = stdio();
    let ids: Vec<FollowId> = (0..50).map(|_| follow(&mut client, ms(0), limits())).collect();
    for id in &ids {
        client.followed(ms(0), *id, seen(Some(1000)));
    }
    client.handle_timeout(ms(60_000));
    assert_eq!(drain(&mut client), ids.iter().map(|id| ask(*id)).collect::<Vec<_>>());
    assert_eq!(wake_at(&mut client), None, "FOLLOW-2: nothing more is asked before an answer");
}

#[test]
fn the_next_deadline_is_that_of_calls_subscriptions_and_followed_tasks_together() {
    let mut client = stdio();
    // The call's idle clock: 500. The listen request's acknowledgement: 300. The next question: from 1000 on.
    let (_, call) = start(&mut client, ms(0), options(Contract::Safe));
    let listen = subscription::Config { ack_deadline: Duration::from_millis(300), ..Default::default() };
    let filter = Filter::parse(r#"{"toolsListChanged":true}"#).expect("a filter");
    let subscription = client.listen(ms(0), filter, listen, jitter()).expect("below the limit");
    let outputs = drain(&mut client);
    let [Output::Listen { wire, .. }] = outputs[..] else { panic!("{outputs:?}") };
    let id = follow(&mut client, ms(0), limits());
    client.followed(ms(0), id, seen(Some(1000)));

    assert_eq!(wake_at(&mut client), Some(ms(300)), "the subscription's");
    client.handle_input(ms(200), Input::Acknowledged { wire });
    assert_eq!(wake_at(&mut client), Some(ms(500)), "the call's");
    client.handle_input(ms(201), answer(call));
    let (now, outputs) = tick(&mut client);
    assert_eq!(outputs, [ask(id)], "the followed task's");
    assert!(now >= ms(1000));
    client.unlisten(now, subscription);
    client.followed(now, id, Event::Stop);
    assert_eq!(drain(&mut client).len(), 3, "a signal and two ends");
    assert_eq!(wake_at(&mut client), None);

    // A shell that slept too long handles all three in one call.
    let (_, _) = start(&mut client, now, options(Contract::Safe));
    let filter = Filter::parse("{}").expect("a filter");
    let _id = client.listen(now, filter, listen, jitter()).expect("below the limit");
    let _id = client.follow(now, "task-1", Config { maximum: Some(Duration::from_secs(1)), ..limits() }, jitter());
    assert_eq!(drain(&mut client).len(), 2);
    let late = now + Duration::from_secs(3600);
    client.handle_timeout(late);
    assert!(drain(&mut client).len() >= 3);
    assert!(wake_at(&mut client).is_none_or(|at| at > late));
}
