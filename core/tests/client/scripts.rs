//! Cancellation, answers, progress and clocks of single calls.

use steady_core::client::{CallError, CallOptions, CancelSignal, Config, Input, Outcome, Output, Transport};
use steady_core::id::WireId;
use steady_core::progress::Progress;
use steady_core::retry::{Contract, Verdict};

use super::{answer, client, config, drain, end, ms, options, progress, start, stdio, wake_at};

#[test]
fn statement_02_streamable_http_cancellation_closes_the_request_stream_and_sends_no_cancellation_post() {
    let mut http = client(config(Transport::Http));
    let (call, wire) = start(&mut http, ms(0), options(Contract::Unsafe));
    let (other, other_wire) = start(&mut http, ms(0), options(Contract::Unsafe));
    http.cancel(ms(1), call);
    let outputs = drain(&mut http);
    // The stream is closed, the caller is settled, and there is nothing else: no message of any kind.
    assert_eq!(outputs.len(), 2, "{outputs:?}");
    assert_eq!(outputs[0], Output::Signal { wire, signal: CancelSignal::CloseStream });
    assert_eq!(end(&outputs).outcome, Outcome::Cancelled);
    // The other call does not notice (rule C6).
    http.handle_input(ms(2), answer(other_wire));
    let outputs = drain(&mut http);
    assert!(matches!(outputs[..], [Output::Finished { call, .. }] if call == other));
    assert_eq!(http.in_flight(), 0);
}

#[test]
fn the_cancel_signal_is_the_transports_own_also_after_a_timeout() {
    for (transport, expected) in
        [(Transport::Stdio, CancelSignal::Notify), (Transport::Http, CancelSignal::CloseStream)]
    {
        for timeout in [false, true] {
            let mut client = client(config(transport));
            let (call, wire) = start(&mut client, ms(0), options(Contract::Safe));
            if timeout {
                client.handle_timeout(ms(500))
            } else {
                client.cancel(ms(1), call)
            }
            let outputs = drain(&mut client);
            let [Output::Signal { wire: given_up, signal }, Output::Finished { .. }] = outputs[..] else {
                panic!("{outputs:?}")
            };
            assert_eq!((given_up, signal), (wire, expected));
            client.cancel(ms(3), call);
            client.handle_timeout(ms(9000));
            assert_eq!(drain(&mut client), [], "CALL-1, CALL-5: once");
        }
    }
}

#[test]
fn the_caller_is_settled_locally_and_a_late_answer_is_ignored_and_counted() {
    let mut client = stdio();
    let (call, wire) = start(&mut client, ms(0), options(Contract::Unsafe));
    client.cancel(ms(1), call);
    let finished = end(&drain(&mut client));
    assert_eq!(finished.outcome, Outcome::Cancelled, "nothing waits for the peer");
    assert_eq!(finished.verdict, Some(Verdict::ReconcileFirst), "it may run all the same");
    client.handle_input(ms(2), answer(wire));
    client.handle_input(ms(2), progress(wire, 1.0));
    client.handle_input(ms(2), answer(WireId::new(77)));
    assert_eq!(drain(&mut client), [], "CALL-1");
    let counters = client.counters();
    assert_eq!((counters.late_answers, counters.unknown_ids), (1, 2));
}

#[test]
fn an_answer_beats_a_clock_that_was_not_handled_yet() {
    let mut client = stdio();
    let (call, wire) = start(&mut client, ms(0), options(Contract::Unsafe));
    client.handle_input(ms(9000), answer(wire));
    client.handle_timeout(ms(9000));
    client.cancel(ms(9000), call);
    let outputs = drain(&mut client);
    assert_eq!(outputs.len(), 1, "no signal: the server has answered");
    let finished = end(&outputs);
    assert_eq!((finished.outcome, finished.verdict), (Outcome::Answered(42), None));
}

#[test]
fn a_cancellation_from_the_server_is_ignored_and_the_call_lives() {
    let mut client = stdio();
    let (_, wire) = start(&mut client, ms(0), options(Contract::Unsafe));
    client.handle_input(ms(1), Input::Cancelled { wire });
    assert_eq!(drain(&mut client), [], "rule C9");
    assert_eq!(client.counters().stray_cancellations, 1);
    client.handle_input(ms(2), answer(wire));
    assert_eq!(end(&drain(&mut client)).outcome, Outcome::Answered(42));
}

#[test]
fn statement_05_of_the_client_progress_may_reset_the_idle_clock_never_the_maximum() {
    let mut client = stdio();
    let (_, wire) = start(&mut client, ms(0), options(Contract::Unsafe));
    for (at, value) in [(400, 1.0), (800, 2.0), (1200, 3.0), (1600, 4.0), (1999, 5.0)] {
        client.handle_timeout(ms(at));
        client.handle_input(ms(at), progress(wire, value));
        assert!(matches!(drain(&mut client)[..], [Output::Progress { .. }]), "alive at {at}");
    }
    client.handle_timeout(ms(1999));
    assert_eq!(wake_at(&mut client), Some(ms(2000)));
    client.handle_timeout(ms(2000));
    assert_eq!(end(&drain(&mut client)).outcome, Outcome::MaxTimeout);
    assert_eq!(wake_at(&mut client), None);
}

#[test]
fn progress_at_or_after_the_maximum_does_not_save_the_call() {
    for at in [2000, 2001, 9000] {
        let mut client = stdio();
        let mut options = options(Contract::Unsafe);
        options.limits.idle = None;
        let (_, wire) = start(&mut client, ms(0), options);
        client.handle_input(ms(at), progress(wire, 1.0));
        let outputs = drain(&mut client);
        assert!(matches!(outputs[..], [Output::Signal { .. }, Output::Finished { .. }]), "rule T5: {outputs:?}");
        assert_eq!(end(&outputs).outcome, Outcome::MaxTimeout);
    }
}

#[test]
fn progress_that_does_not_increase_is_no_activity() {
    let mut client = stdio();
    let (_, wire) = start(&mut client, ms(0), options(Contract::Unsafe));
    client.handle_input(ms(100), progress(wire, 5.0));
    assert_eq!(drain(&mut client).len(), 1);
    for value in [5.0, 4.0, -1.0] {
        client.handle_input(ms(400), progress(wire, value));
    }
    client.handle_input(ms(400), progress(WireId::new(9), 6.0));
    assert_eq!(drain(&mut client), []);
    client.handle_timeout(ms(600));
    assert_eq!(end(&drain(&mut client)).outcome, Outcome::IdleTimeout, "rule T2");
    assert_eq!(client.counters().refused_progress, 3);
}

#[test]
fn progress_is_rate_limited_and_the_last_value_precedes_the_end() {
    let mut client = client(Config {
        progress_interval: Config::new(Transport::Stdio).progress_interval,
        ..config(Transport::Stdio)
    });
    let (call, wire) = start(&mut client, ms(0), options(Contract::Unsafe));
    for value in 1..=50 {
        client.handle_input(ms(0), progress(wire, f64::from(value)));
    }
    let shown = |value: f64| Output::Progress { call, value: Progress::new(value).expect("finite") };
    assert_eq!(drain(&mut client), [shown(1.0)], "rule P4");
    assert_eq!(wake_at(&mut client), Some(ms(10)));
    client.handle_timeout(ms(10));
    assert_eq!(drain(&mut client), [shown(50.0)]);
    client.handle_input(ms(11), progress(wire, 51.0));
    // A held value leaves in its time also while the link is down.
    client.handle_input(ms(12), Input::LinkUp);
    client.handle_input(ms(13), progress(wire, 52.0));
    client.handle_input(ms(14), answer(wire));
    let outputs = drain(&mut client);
    assert_eq!(outputs[0], shown(52.0), "PROG-2");
    assert_eq!(end(&outputs[1..]).outcome, Outcome::Answered(42));
}

#[test]
fn calls_over_the_cap_are_refused() {
    let mut client = client(Config { in_flight: 2, ..config(Transport::Stdio) });
    let (first, _) = start(&mut client, ms(0), CallOptions::default());
    let _second = start(&mut client, ms(0), CallOptions::default());
    assert_eq!(client.call(ms(0), "payload", CallOptions::default()), Err(CallError::Full { limit: 2 }));
    client.cancel(ms(0), first);
    assert!(client.call(ms(0), "payload", CallOptions::default()).is_ok());
}

#[test]
fn no_deadline_at_or_before_now_remains_however_late_the_shell_is() {
    let mut client = stdio();
    for at in 0..100 {
        let _call = start(&mut client, ms(at), options(Contract::Safe));
    }
    client.handle_timeout(ms(550));
    assert_eq!(wake_at(&mut client), Some(ms(551)));
    assert_eq!(client.in_flight(), 49);
    client.handle_timeout(ms(540));
    assert_eq!(client.in_flight(), 49, "too early does nothing");
}

#[test]
fn a_link_that_takes_nothing_keeps_no_caller_from_its_end_and_what_it_did_not_take_did_not_leave() {
    let mut client = stdio();
    let (out, wire) = start(&mut client, ms(0), options(Contract::Unsafe));
    let waiting = client.call(ms(0), "payload", options(Contract::Unsafe)).expect("room");
    assert!(client.wants_link());
    assert!(matches!(client.poll_local(), Output::Idle { wake_at: Some(at) } if at == ms(500)));
    client.handle_timeout(ms(500));
    let mut ended = Vec::new();
    while let Output::Finished { call, finished } = client.poll_local() {
        ended.push((call, finished.outcome, finished.verdict));
    }
    assert_eq!(
        ended,
        [
            (out, Outcome::IdleTimeout, Some(Verdict::ReconcileFirst)),
            (waiting, Outcome::IdleTimeout, Some(Verdict::Retry)),
        ]
    );
    assert_eq!(client.poll_link(), Some(Output::Signal { wire, signal: CancelSignal::Notify }));
    assert_eq!(client.poll_link(), None, "nothing of the other: it was never handed out");
    assert!(!client.wants_link());
}

#[test]
fn without_a_link_for_good_every_call_ends_by_what_left() {
    let mut client = stdio();
    let (out, wire) = start(&mut client, ms(0), options(Contract::Safe));
    assert_eq!(client.call_of(wire), Some(out));
    let waiting = client.call(ms(0), "payload", options(Contract::Safe)).expect("room");
    client.give_up(ms(1));
    let outcomes: Vec<_> = drain(&mut client)
        .into_iter()
        .map(|output| {
            let Output::Finished { call, finished } = output else { panic!("{output:?}") };
            (call, finished.outcome)
        })
        .collect();
    assert_eq!(outcomes, [(out, Outcome::Unknown), (waiting, Outcome::NeverSent)]);
    assert_eq!((client.in_flight(), client.call_of(wire)), (0, None));
    assert_eq!(wake_at(&mut client), None);
}
