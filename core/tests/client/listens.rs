//! Subscriptions of a client: listen requests, acknowledgements, lost streams, gaps, ends.

use std::time::Duration;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::client::{CancelSignal, Input, MAX_SUBSCRIPTIONS, Output, Transport};
use steady_core::id::{ClientId, SubscriptionId, WireId};
use steady_core::retry::Contract;
use steady_core::subscription::{Config, End, Filter, Refetch};
use steady_core::time::Instant;

use super::invariants::{sub_2_a_recovery_is_a_new_request, sub_7_one_question_at_a_time};
use super::{Calls, Out, client, config, drain, ms, options, start, stdio, wake_at};

/// Members in the caller's own spelling, one of them unknown to this crate.
const FILTER: &str =
    r#"{ "toolsListChanged": true, "resourceSubscriptions": ["file:///a"], "taskIds": ["t"], "x": 1 }"#;

const ACK: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(40);

fn limits() -> Config {
    let backoff = Backoff { base: PAUSE, cap: PAUSE };
    Config { ack_deadline: ACK, backoff, stable_after: Duration::from_secs(1), ..Config::default() }
}

fn filter() -> Filter {
    Filter::parse(FILTER).expect("a filter")
}

fn jitter() -> Jitter {
    Jitter::seeded(ClientId::new(1), 0)
}

fn listen(client: &mut Calls, now: Instant) -> SubscriptionId {
    client.listen(now, filter(), limits(), jitter()).expect("below the limit")
}

/// The one listen request that goes out now; its filter is the caller's to the byte.
fn listened(client: &mut Calls) -> (SubscriptionId, WireId) {
    let outputs = drain(client);
    let [Output::Listen { subscription, plan }] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(plan.filter().as_str(), FILTER);
    (*subscription, plan.wire())
}

/// Goes from deadline to deadline until something comes out.
fn next(client: &mut Calls) -> (Instant, Vec<Out>) {
    for _ in 0..100 {
        let now = wake_at(client).expect("a deadline");
        client.handle_timeout(now);
        assert!(wake_at(&mut client.clone()).is_none_or(|at| at > now), "no due deadline remains");
        let outputs = drain(client);
        if !outputs.is_empty() {
            return (now, outputs);
        }
    }
    panic!("nothing comes");
}

fn relistened(client: &mut Calls) -> (Instant, WireId) {
    let (now, outputs) = next(client);
    let [Output::Listen { plan, .. }] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(plan.filter().as_str(), FILTER, "the same filter, to the byte");
    (now, plan.wire())
}

fn ack(client: &mut Calls, now: Instant, wire: WireId) -> Vec<Out> {
    client.handle_input(now, Input::Acknowledged { wire });
    drain(client)
}

fn notice(client: &mut Calls, now: Instant, wire: WireId, notice: u32) -> Vec<Out> {
    noticed(client, now, wire, notice, None)
}

/// A notification that says what it is about.
fn noticed(client: &mut Calls, now: Instant, wire: WireId, notice: u32, about: Option<Refetch>) -> Vec<Out> {
    client.handle_input(now, Input::Notice { wire, notice, about });
    drain(client)
}

/// An open subscription.
fn open(client: &mut Calls) -> (SubscriptionId, WireId) {
    let id = listen(client, ms(0));
    let (same, wire) = listened(client);
    assert_eq!(same, id);
    assert_eq!(ack(client, ms(0), wire), [gap(id)], "what was read before the first stream is older than it");
    client.refetched(id);
    assert_eq!(drain(client), []);
    (id, wire)
}

fn resource() -> Refetch {
    Refetch::Resource { uri: "file:///a".into() }
}

fn gap(id: SubscriptionId) -> Out {
    gap_of(id, &[Refetch::Tools, resource(), Refetch::Task { task_id: "t".into() }])
}

fn gap_of(id: SubscriptionId, refetch: &[Refetch]) -> Out {
    Output::Gap { subscription: id, refetch: refetch.into() }
}

fn unsubscribed(id: SubscriptionId, end: End) -> Out {
    Output::Unsubscribed { subscription: id, end }
}

/// A subscription whose stream was lost and is open again; its gap has been seen.
fn recovered(client: &mut Calls) -> (SubscriptionId, WireId, Instant) {
    let (id, first) = open(client);
    client.handle_input(ms(1), Input::StreamLost { wire: first });
    let (now, wire) = relistened(client);
    assert_eq!(ack(client, now, wire), [gap(id)]);
    (id, wire, now)
}

#[test]
fn the_first_listen_waits_for_the_link() {
    let mut client = stdio();
    client.handle_input(ms(0), Input::LinkLost);
    let id = listen(&mut client, ms(0));
    assert_eq!(drain(&mut client), []);
    client.handle_timeout(ms(10_000));
    assert_eq!(drain(&mut client), [], "not by the clock");
    assert_eq!(wake_at(&mut client), None, "and without spinning");
    client.handle_input(ms(10_000), Input::LinkUp);
    let (same, wire) = listened(&mut client);
    assert_eq!(same, id);
    assert_eq!(ack(&mut client, ms(10_000), wire), [gap(id)], "and it begins with a read");
}

#[test]
fn unlisten_signals_an_open_stream_in_the_transports_way() {
    let ways = [(Transport::Stdio, CancelSignal::Notify), (Transport::Http, CancelSignal::CloseStream)];
    for (transport, signal) in ways {
        let mut client = client(config(transport));
        let (id, wire) = open(&mut client);
        client.unlisten(ms(5), id);
        assert_eq!(drain(&mut client), [Output::Signal { wire, signal }, unsubscribed(id, End::Closed)]);
        client.unlisten(ms(6), id);
        client.handle_input(ms(6), Input::ListenEnded { wire, refused: false });
        assert_eq!(notice(&mut client, ms(6), wire, 1), [], "what the server still says is late");
        assert_eq!(client.counters().late_answers, 2);
        assert_eq!(wake_at(&mut client), None);
    }
}

#[test]
fn unlisten_signals_nothing_where_no_request_is_out() {
    let mut client = stdio();
    let (id, wire) = open(&mut client);
    client.handle_input(ms(1), Input::StreamLost { wire });
    client.unlisten(ms(2), id);
    assert_eq!(drain(&mut client), [unsubscribed(id, End::Closed)], "in a pause");
    let id = listen(&mut client, ms(3));
    client.unlisten(ms(3), id);
    assert_eq!(drain(&mut client), [unsubscribed(id, End::Closed)], "its request was not taken yet");
}

#[test]
fn the_acknowledgement_deadline_gives_the_request_up_and_backs_off() {
    let ways = [(Transport::Stdio, CancelSignal::Notify), (Transport::Http, CancelSignal::CloseStream)];
    for (transport, signal) in ways {
        let mut client = client(config(transport));
        let _id = listen(&mut client, ms(0));
        let (_, first) = listened(&mut client);
        client.handle_timeout(ms(99));
        assert_eq!(drain(&mut client), []);
        assert_eq!(wake_at(&mut client), Some(ms(100)));
        let (now, outputs) = next(&mut client);
        assert_eq!((now, outputs), (ms(100), vec![Output::Signal { wire: first, signal }]));
        let until = wake_at(&mut client).expect("a pause");
        assert!(until > now && until <= now + PAUSE, "{until}");
        assert_eq!(ack(&mut client, now, first), [], "too late");
        let (then, second) = relistened(&mut client);
        assert!(then == until && second > first);
    }
}

#[test]
fn an_acknowledgement_in_hand_beats_its_deadline() {
    let mut client = stdio();
    let id = listen(&mut client, ms(0));
    let (_, wire) = listened(&mut client);
    // The link's return is no clock: it gives up nothing that may have its answer in hand.
    client.handle_input(ms(100), Input::LinkUp);
    assert_eq!(ack(&mut client, ms(100), wire), [gap(id)]);
    client.handle_timeout(ms(100));
    client.refetched(id);
    let delivered = Output::Notice { subscription: id, notice: 7 };
    assert_eq!(notice(&mut client, ms(100), wire, 7), [delivered]);
    assert_eq!(wake_at(&mut client), None, "an open stream has no deadline (rule T1)");
}

#[test]
fn statement_11_reconnecting_uses_a_new_request_without_last_event_id_and_refetches_through_the_client() {
    let mut client = stdio();
    let (id, mut wire) = open(&mut client);
    let mut now = ms(0);
    let mut used = vec![wire];
    for round in 0..5 {
        client.handle_input(now, Input::LinkLost);
        assert_eq!(drain(&mut client), [], "nobody is left to signal");
        assert_eq!(wake_at(&mut client), None, "the link is waited for");
        now = now + Duration::from_secs(1);
        client.handle_input(now, Input::LinkUp);
        let outputs = drain(&mut client);
        let [Output::Listen { subscription, plan }] = &outputs[..] else { panic!("{outputs:?}") };
        let fresh = plan.wire();
        assert!(*subscription == id && !used.contains(&fresh), "a new request every time");
        used.push(fresh);
        let filters = (FILTER, plan.filter().as_str());
        sub_2_a_recovery_is_a_new_request((wire, fresh), filters, plan.send_last_event_id(), &now);
        assert_eq!(
            (plan.replaces(), gap(id)),
            (Some(wire), Output::Gap { subscription: id, refetch: plan.refetch().into() })
        );
        assert_eq!(notice(&mut client, now, fresh, round), [], "nothing before the acknowledgement (rule L1)");
        assert_eq!(notice(&mut client, now, wire, round), [], "nothing under an old id");
        assert_eq!(ack(&mut client, now, fresh), [gap(id)]);
        client.refetched(id);
        let delivered = Output::Notice { subscription: id, notice: round };
        assert_eq!(notice(&mut client, now, fresh, round), [delivered]);
        wire = fresh;
    }
}

#[test]
fn nothing_is_delivered_before_the_gap_is_refetched_and_what_comes_meanwhile_opens_it_again() {
    let mut client = client(config(Transport::Http));
    let (id, wire, now) = recovered(&mut client);
    for value in 0..3 {
        assert_eq!(notice(&mut client, now, wire, value), [], "rule L5");
    }
    client.refetched(id);
    assert_eq!(drain(&mut client), [gap(id)], "something changed while it was read: once more, however much came");
    client.refetched(id);
    assert_eq!(drain(&mut client), []);
    let delivered = Output::Notice { subscription: id, notice: 9 };
    assert_eq!(notice(&mut client, now, wire, 9), [delivered]);
    client.refetched(id);
    assert_eq!(drain(&mut client), [], "one that nobody waits for says nothing");
}

#[test]
fn what_changes_while_the_gap_is_read_is_read_again_each_thing_once_and_nothing_else() {
    let mut client = client(config(Transport::Http));
    let (id, wire, now) = recovered(&mut client);
    for about in [resource(), Refetch::Tools, resource(), resource()] {
        assert_eq!(noticed(&mut client, now, wire, 1, Some(about)), []);
    }
    client.refetched(id);
    assert_eq!(drain(&mut client), [gap_of(id, &[Refetch::Tools, resource()])]);
    assert_eq!(noticed(&mut client, now, wire, 2, Some(resource())), []);
    client.refetched(id);
    assert_eq!(drain(&mut client), [gap_of(id, &[resource()])]);
    // A part of what was asked for: it cannot be told from outside of which.
    let part = Refetch::Resource { uri: "file:///a/b".into() };
    assert_eq!(noticed(&mut client, now, wire, 3, Some(part)), []);
    client.refetched(id);
    assert_eq!(drain(&mut client), [gap(id)]);
    client.refetched(id);
    let delivered = Output::Notice { subscription: id, notice: 4 };
    assert_eq!(noticed(&mut client, now, wire, 4, Some(resource())), [delivered]);
}

#[test]
fn many_streams_that_are_lost_at_once_ask_one_at_a_time_until_the_server_answers() {
    let mut client = client(config(Transport::Http));
    let open: Vec<(SubscriptionId, WireId)> = (0..10).map(|_| open(&mut client)).collect();
    for (_, wire) in &open {
        client.handle_input(ms(1), Input::StreamLost { wire: *wire });
    }
    let (mut now, mut asked) = (ms(1), 0);
    // The server is down: connections are refused, one question a pause, whoever asks.
    for _ in 0..20 {
        let (then, wire) = relistened(&mut client);
        asked += 1;
        assert!(then > now || asked == 1);
        sub_7_one_question_at_a_time(true, 1, &then);
        client.handle_timeout(then + Duration::from_millis(50));
        assert_eq!(drain(&mut client), [], "the others wait for it");
        now = then + Duration::from_millis(60);
        client.handle_input(now, Input::NotSent { wire });
        assert!(wake_at(&mut client).is_some_and(|at| at > now && at <= now + PAUSE), "its pause holds for all");
    }
    // It is there again.
    let (now, wire) = relistened(&mut client);
    let outputs = ack(&mut client, now + PAUSE, wire);
    let listens = outputs.iter().filter(|output| matches!(output, Output::Listen { .. })).count();
    let gaps = outputs.iter().filter(|output| matches!(output, Output::Gap { .. })).count();
    assert_eq!((listens, gaps, outputs.len()), (9, 1, 10), "all that are due follow its answer: {outputs:?}");
}

#[test]
fn a_subscription_that_asks_for_others_makes_place_when_it_ends() {
    let mut client = client(config(Transport::Http));
    let (one, first) = open(&mut client);
    let (_, second) = open(&mut client);
    for wire in [first, second] {
        client.handle_input(ms(1), Input::StreamLost { wire });
    }
    let (now, outputs) = next(&mut client);
    let [Output::Listen { subscription, plan }] = &outputs[..] else { panic!("{outputs:?}") };
    let (asks, asked) = (*subscription, plan.wire());
    client.handle_timeout(now + PAUSE);
    assert_eq!(drain(&mut client), []);
    client.unlisten(now + PAUSE, asks);
    let signal = Output::Signal { wire: asked, signal: CancelSignal::CloseStream };
    assert_eq!(drain(&mut client), [signal, unsubscribed(asks, End::Closed)]);
    client.handle_timeout(now + PAUSE);
    let (other, _) = listened(&mut client);
    assert!(other != asks && (asks == one || other == one));
    // Whoever subscribes meanwhile waits too.
    let third = listen(&mut client, now + PAUSE);
    assert_eq!(drain(&mut client), []);
    let late = now + PAUSE + PAUSE;
    client.handle_timeout(late);
    assert_eq!(drain(&mut client), []);
    client.handle_input(late, Input::LinkUp);
    assert_eq!(listened(&mut client).0, third, "a new link has answered already");
}

#[test]
fn a_silent_link_is_lost_for_the_streams_that_ask_for_signs_of_life() {
    let ways = [(Transport::Stdio, CancelSignal::Notify), (Transport::Http, CancelSignal::CloseStream)];
    for (transport, signal) in ways {
        let mut client = client(config(transport));
        let lively = Config { liveness: Some(Duration::from_millis(500)), ..limits() };
        let id = client.listen(ms(0), filter(), lively, jitter()).expect("below the limit");
        let (_, wire) = listened(&mut client);
        assert_eq!(ack(&mut client, ms(0), wire), [gap(id)]);
        client.refetched(id);
        let (_, patient) = open(&mut client);
        for at in [300, 700, 1100] {
            client.handle_input(ms(at), Input::Heard);
            client.handle_timeout(ms(at));
            assert_eq!(drain(&mut client), [], "any byte of the link will do");
        }
        let (now, outputs) = next(&mut client);
        assert_eq!((now, outputs), (ms(1600), vec![Output::Signal { wire, signal }]), "SUB-8");
        let (now, wire) = relistened(&mut client);
        assert_eq!(ack(&mut client, now, wire), [gap(id)]);
        let delivered = matches!(notice(&mut client, now, patient, 1)[..], [Output::Notice { .. }]);
        assert!(delivered, "the other one has all the time");
    }
}

#[test]
fn a_refetch_that_began_before_a_second_loss_does_not_answer_for_it() {
    let mut client = client(config(Transport::Http));
    let (id, second, now) = recovered(&mut client);
    client.handle_input(now, Input::StreamLost { wire: second });
    let (now, third) = relistened(&mut client);
    assert_eq!(ack(&mut client, now, third), [], "one gap is told at a time");
    assert_eq!(notice(&mut client, now, third, 1), []);
    client.refetched(id);
    assert_eq!(drain(&mut client), [gap(id)], "what was read may be older than the second loss");
    assert_eq!(notice(&mut client, now, third, 2), []);
    client.refetched(id);
    assert_eq!(drain(&mut client), [gap(id)]);
    client.refetched(id);
    let delivered = Output::Notice { subscription: id, notice: 3 };
    assert_eq!(notice(&mut client, now, third, 3), [delivered]);
}

#[test]
fn a_graceful_end_is_the_end_unless_asked_otherwise() {
    let mut client = stdio();
    let (id, wire) = open(&mut client);
    client.handle_input(ms(1), Input::ListenEnded { wire, refused: false });
    assert_eq!(drain(&mut client), [unsubscribed(id, End::Graceful)]);
    assert_eq!(wake_at(&mut client), None);

    let again = Config { reopen_after_end: true, ..limits() };
    let id = client.listen(ms(2), filter(), again, jitter()).expect("below the limit");
    let (_, first) = listened(&mut client);
    assert_eq!(ack(&mut client, ms(2), first), [gap(id)]);
    client.refetched(id);
    client.handle_input(ms(3), Input::ListenEnded { wire: first, refused: false });
    assert_eq!(drain(&mut client), []);
    let (now, second) = relistened(&mut client);
    assert!(second > first);
    assert_eq!(ack(&mut client, now, second), [gap(id)]);
}

#[test]
fn a_refusal_is_not_tried_again() {
    let mut client = stdio();
    let id = listen(&mut client, ms(0));
    let (_, wire) = listened(&mut client);
    client.handle_input(ms(1), Input::ListenEnded { wire, refused: true });
    assert_eq!(drain(&mut client), [unsubscribed(id, End::Refused)]);
    assert_eq!(wake_at(&mut client), None);
}

#[test]
fn a_request_that_was_not_sent_is_sent_again_under_a_new_id() {
    let mut client = stdio();
    let id = listen(&mut client, ms(0));
    let (_, first) = listened(&mut client);
    client.handle_input(ms(0), Input::NotSent { wire: first });
    let (now, second) = relistened(&mut client);
    assert!(second > first);
    assert_eq!(ack(&mut client, now, second), [gap(id)], "its first stream");
    client.handle_input(now, Input::LinkLost);
    client.unlisten(now, id);
    assert_eq!(drain(&mut client), [unsubscribed(id, End::Closed)]);
}

#[test]
fn the_number_of_subscriptions_is_bounded() {
    let mut client = stdio();
    let ids: Vec<SubscriptionId> = (0..MAX_SUBSCRIPTIONS).map(|_| listen(&mut client, ms(0))).collect();
    let refused = client.listen(ms(0), filter(), limits(), jitter()).expect_err("at the limit");
    assert!(refused.to_string().contains("64 subscriptions"), "{refused}");
    client.unlisten(ms(0), ids[0]);
    let next = listen(&mut client, ms(0));
    assert!(!ids.contains(&next), "an ended one makes room, not its name");
    let wires = drain(&mut client);
    let wires = wires.iter().filter(|output| matches!(output, Output::Listen { .. }));
    assert_eq!(wires.count(), MAX_SUBSCRIPTIONS, "the one that ended is not asked for");
}

#[test]
fn what_names_no_listen_request_is_counted() {
    let mut client = stdio();
    let (_, call) = start(&mut client, ms(0), options(Contract::Safe));
    for wire in [WireId::new(u64::MAX), call] {
        client.handle_input(ms(1), Input::Acknowledged { wire });
        client.handle_input(ms(1), Input::Notice { wire, notice: 1, about: None });
        client.handle_input(ms(1), Input::ListenEnded { wire, refused: true });
    }
    assert_eq!(drain(&mut client), []);
    let counters = client.counters();
    assert_eq!((counters.unknown_ids, counters.late_answers), (3, 3));
    assert_eq!(client.in_flight(), 1, "the call lives");
}

#[test]
fn subscriptions_are_told_apart_and_share_the_ids_with_calls() {
    let mut client = stdio();
    let (one, first) = open(&mut client);
    let (_, call) = start(&mut client, ms(0), options(Contract::Safe));
    let two = listen(&mut client, ms(0));
    let (_, second) = listened(&mut client);
    assert!(first < call && call < second, "one sequence of ids");
    assert_eq!(ack(&mut client, ms(0), second), [gap(two)]);
    client.refetched(two);
    assert_eq!(notice(&mut client, ms(1), second, 2), [Output::Notice { subscription: two, notice: 2 }]);
    assert_eq!(notice(&mut client, ms(1), first, 1), [Output::Notice { subscription: one, notice: 1 }]);
    client.handle_input(ms(2), Input::StreamLost { wire: first });
    assert_eq!(notice(&mut client, ms(2), second, 3), [Output::Notice { subscription: two, notice: 3 }]);
}
