//! Lost links and streams, and what may be sent again.

use std::time::Duration;

use steady_core::backoff::Backoff;
use steady_core::client::{CallOptions, Config, Input, Outcome, Output, Transport};
use steady_core::id::{Attempt, CallId, WireId};
use steady_core::retry::{BudgetConfig, Contract, Verdict};
use steady_core::time::Instant;

use super::{Calls, answer, client, config, drain, end, keyed, limits, ms, options, progress, start, stdio, wake_at};

/// The next attempt that goes out.
fn resent(client: &mut Calls) -> (CallId, WireId, Attempt) {
    let outputs = drain(client);
    let [Output::Send { call, wire, attempt, payload: "payload" }] = outputs[..] else { panic!("{outputs:?}") };
    (call, wire, attempt)
}

fn relink(client: &mut Calls, now: Instant) {
    client.handle_input(now, Input::LinkLost);
    client.handle_input(now, Input::LinkUp);
    client.handle_timeout(now);
}

#[test]
fn a_lost_link_leaves_an_unsafe_call_unknown_and_it_is_not_sent_again() {
    let mut client = stdio();
    let (_, wire) = start(&mut client, ms(0), options(Contract::Unsafe));
    relink(&mut client, ms(1));
    let outputs = drain(&mut client);
    let finished = end(&outputs);
    assert_eq!(outputs.len(), 1, "CALL-4: no send; CALL-5: nobody is left to signal");
    assert_eq!((finished.outcome, finished.verdict), (Outcome::Unknown, Some(Verdict::ReconcileFirst)));
    client.handle_input(ms(2), answer(wire));
    assert_eq!((drain(&mut client), client.counters().late_answers), (vec![], 1));
}

#[test]
fn a_call_that_was_not_sent_is_sent_again_whatever_its_class() {
    for contract in [Contract::Safe, keyed(), Contract::Unsafe] {
        let mut client = stdio();
        let (call, mut wire) = start(&mut client, ms(0), options(contract));
        for attempt in 2..=3 {
            client.handle_input(ms(1), Input::NotSent { wire });
            client.handle_timeout(ms(1));
            let (same, fresh, number) = resent(&mut client);
            assert!(fresh > wire, "CALL-2: a fresh id");
            assert_eq!((same, number.number()), (call, attempt));
            wire = fresh;
        }
        client.handle_input(ms(1), Input::NotSent { wire });
        assert_eq!(end(&drain(&mut client)).outcome, Outcome::NeverSent, "the attempts are spent");
        assert_eq!(client.counters().retries, 2);
    }
}

#[test]
fn an_unsafe_call_that_may_have_been_sent_once_is_not_sent_again_for_a_later_proof() {
    let mut http = client(config(Transport::Http));
    let (_, first) = start(&mut http, ms(0), options(keyed()));
    http.handle_input(ms(1), Input::StreamLost { wire: first });
    http.handle_timeout(ms(1));
    let (_, second, _) = resent(&mut http);
    http.handle_input(ms(2), Input::NotSent { wire: second });
    http.handle_timeout(ms(2));
    let (call, _, _) = resent(&mut http);
    // The first attempt may have run, whatever is known of the later ones.
    http.cancel(ms(3), call);
    let finished = end(&drain(&mut http));
    assert_eq!(finished.verdict, Some(Verdict::RetrySameKey));
    http.handle_input(ms(4), answer(first));
    assert_eq!((drain(&mut http), http.counters().late_answers), (vec![], 1), "rule C4");
}

#[test]
fn a_lost_stream_is_a_retry_with_the_same_payload_for_safe_and_keyed_calls() {
    for contract in [Contract::Safe, keyed()] {
        let mut http = client(config(Transport::Http));
        let (call, first) = start(&mut http, ms(0), options(contract));
        let (_, other) = start(&mut http, ms(0), options(Contract::Unsafe));
        http.handle_input(ms(1), Input::StreamLost { wire: first });
        http.handle_input(ms(1), Input::StreamLost { wire: first });
        http.handle_timeout(ms(1));
        let (same, second, attempt) = resent(&mut http);
        assert_eq!((same, attempt), (call, Attempt::FIRST.next()));
        assert!(second > other, "CALL-2");
        http.handle_input(ms(2), answer(first));
        assert_eq!(drain(&mut http), [], "the answer of the lost attempt is late");
        http.handle_input(ms(3), answer(second));
        assert_eq!(end(&drain(&mut http)).outcome, Outcome::Answered(42));
    }
}

#[test]
fn one_deadline_covers_all_attempts_and_pauses() {
    let backoff = Backoff { base: Duration::from_millis(600), cap: Duration::from_millis(600) };
    let mut http = client(Config { backoff, ..config(Transport::Http) });
    let call_options = CallOptions { attempts: 100, limits: limits(900, 2000), ..options(Contract::Safe) };
    let (call, mut wire) = start(&mut http, ms(0), call_options);
    let (mut now, mut attempts) = (ms(0), 1);
    let outcome = loop {
        // Each attempt shows a little progress and loses its stream.
        http.handle_input(now, progress(wire, 1.0));
        http.handle_input(now, Input::StreamLost { wire });
        let next = loop {
            now = wake_at(&mut http).expect("a clock runs");
            assert!(now <= ms(2000), "CALL-3: {now}");
            http.handle_timeout(now);
            let outputs = drain(&mut http);
            match &outputs[..] {
                [] | [Output::Progress { .. }] => {}
                [Output::Send { call: same, wire: fresh, .. }] => {
                    assert_eq!(*same, call);
                    (wire, attempts) = (*fresh, attempts + 1);
                    break None;
                }
                other => break Some(end(other).outcome),
            }
        };
        if let Some(outcome) = next {
            break outcome;
        }
    };
    assert_eq!((outcome, now), (Outcome::MaxTimeout, ms(2000)));
    assert!(attempts > 2, "{attempts} attempts under one maximum");
}

#[test]
fn a_new_attempt_counts_its_progress_from_its_own_start() {
    let mut http = client(config(Transport::Http));
    let (_, first) = start(&mut http, ms(0), options(Contract::Safe));
    http.handle_input(ms(300), progress(first, 50.0));
    assert_eq!(drain(&mut http).len(), 1);
    http.handle_input(ms(300), Input::StreamLost { wire: first });
    http.handle_timeout(ms(300));
    let mut second = None;
    for output in drain(&mut http) {
        if let Output::Send { wire, .. } = output {
            second = Some(wire);
        }
    }
    let second = second.expect("sent again");
    // A fresh token, a fresh sequence (rule P2): 1 is activity although the first attempt had come to 50.
    http.handle_input(ms(700), progress(second, 1.0));
    http.handle_timeout(ms(800));
    assert!(matches!(drain(&mut http)[..], [Output::Progress { .. }]), "alive");
    assert_eq!(http.counters().refused_progress, 0);
}

#[test]
fn a_pause_ends_without_a_signal_when_its_call_does() {
    let backoff = Backoff { base: Duration::from_secs(3600), cap: Duration::from_secs(3600) };
    let mut http = client(Config { backoff, ..config(Transport::Http) });
    let (call, wire) = start(&mut http, ms(0), options(Contract::Safe));
    http.handle_input(ms(1), Input::StreamLost { wire });
    http.cancel(ms(2), call);
    let outputs = drain(&mut http);
    assert_eq!((outputs.len(), end(&outputs).outcome), (1, Outcome::Cancelled), "CALL-5: no attempt is out");
}

#[test]
fn a_call_waits_for_the_link_under_its_own_clocks() {
    let mut client = stdio();
    client.handle_input(ms(0), Input::LinkLost);
    let call = client.call(ms(0), "payload", options(Contract::Unsafe)).expect("below the cap");
    let other = client.call(ms(0), "payload", options(Contract::Unsafe)).expect("below the cap");
    client.cancel(ms(10), other);
    let finished = end(&drain(&mut client));
    assert_eq!((finished.outcome, finished.verdict), (Outcome::Cancelled, Some(Verdict::Retry)), "no byte of it left");
    assert_eq!(wake_at(&mut client), Some(ms(500)), "the link is waited for without spinning");
    client.handle_input(ms(400), Input::LinkUp);
    assert_eq!(resent(&mut client).0, call);
    client.handle_timeout(ms(500));
    assert_eq!(end(&drain(&mut client)).outcome, Outcome::IdleTimeout, "CALL-3: counted from the call");
}

#[test]
fn a_held_value_leaves_in_time_although_the_link_is_down() {
    let interval = Duration::from_millis(10);
    let mut client = client(Config { progress_interval: interval, ..config(Transport::Stdio) });
    let (_, wire) = start(&mut client, ms(0), options(Contract::Safe));
    client.handle_input(ms(1), progress(wire, 1.0));
    client.handle_input(ms(2), progress(wire, 2.0));
    assert_eq!(drain(&mut client).len(), 1);
    client.handle_input(ms(3), Input::LinkLost);
    assert_eq!(wake_at(&mut client), Some(ms(11)));
    client.handle_timeout(ms(11));
    assert!(matches!(drain(&mut client)[..], [Output::Progress { .. }]), "PROG-2");
}

#[test]
fn the_shared_budget_denies_retries_when_everything_fails() {
    let budget = BudgetConfig { earn_permille: 0, reserve_per_second: 0, capacity: 3 };
    let mut client = client(Config { budget, ..config(Transport::Stdio) });
    for _ in 0..10 {
        let _call = start(&mut client, ms(0), options(Contract::Safe));
    }
    relink(&mut client, ms(1));
    let outputs = drain(&mut client);
    let unknown = outputs.iter().filter(|output| matches!(output, Output::Finished { .. })).count();
    let sent = outputs.iter().filter(|output| matches!(output, Output::Send { .. })).count();
    assert_eq!((unknown, sent), (7, 3), "{outputs:?}");
    assert_eq!((client.counters().retries, client.in_flight()), (3, 3));
}

#[test]
fn one_attempt_is_one_attempt() {
    let mut client = stdio();
    let once = CallOptions { attempts: 1, ..options(Contract::Safe) };
    let _call = start(&mut client, ms(0), once);
    relink(&mut client, ms(1));
    let finished = end(&drain(&mut client));
    assert_eq!(
        (finished.outcome, finished.verdict),
        (Outcome::Unknown, Some(Verdict::Retry)),
        "the caller's to decide"
    );
}

#[test]
fn a_request_that_nobody_took_yet_is_taken_back_when_its_call_ends() {
    // The link goes, or the caller gives up, before the shell has drained what is to be sent.
    let mut lost = client(config(Transport::Stdio));
    lost.call(ms(0), "payload", options(Contract::Unsafe)).expect("room");
    lost.handle_input(ms(0), Input::LinkLost);
    let outputs = drain(&mut lost);
    assert!(outputs.iter().all(|output| !matches!(output, Output::Send { .. })), "{outputs:?}");
    let mut given_up = client(config(Transport::Stdio));
    let call = given_up.call(ms(0), "payload", options(Contract::Unsafe)).expect("room");
    given_up.cancel(ms(0), call);
    let outputs = drain(&mut given_up);
    assert!(matches!(outputs[..], [Output::Finished { .. }]), "nothing sent, nobody to signal: {outputs:?}");
    assert_eq!(end(&outputs).verdict, Some(Verdict::Retry), "it did not run");
}
