//! Backoff, retry and following, as far as they are functions of a few values: over all of those, or to the fixed point.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use steady_core::backoff::{Backoff, Jitter};
use steady_core::follow::{self, Follow};
use steady_core::id::{Attempt, ClientId};
use steady_core::idempotency::Key;
use steady_core::retry::{BudgetConfig, BudgetEvent, Contract, RetryBudget, SendPhase};
use steady_core::time::Instant;

use super::invariants::{
    backoff_1_a_pause_is_within_its_ceiling, backoff_2_ceilings_grow_to_the_cap, backoff_3_asking_twice_gives_the_same,
    follow_1_over_is_never_left, follow_2_one_question_at_a_time, follow_3_deadlines_lie_ahead,
    retry_1_unsafe_is_reconciled, retry_2_conditional_is_repeated_to_the_byte, retry_3_never_sent_may_be_retried,
    retry_4_the_level_is_bounded,
};
use super::searched::Searched;

#[test]
fn every_pause_of_many_clients() {
    let millis = Duration::from_millis;
    let shapes = [(250, 8000), (0, 8000), (9000, 1000), (1, u64::MAX / 2_000_000)];
    for backoff in shapes.map(|(base, cap)| Backoff { base: millis(base), cap: millis(cap) }) {
        for client in 0..50 {
            let mut jitter = Jitter::seeded(ClientId::new(client), client % 3);
            let mut attempt = Attempt::FIRST;
            for _ in 0..40 {
                let (at, ceiling) = ((backoff, client, attempt), backoff.ceiling(attempt));
                let pause = backoff.delay(attempt, &mut jitter);
                backoff_1_a_pause_is_within_its_ceiling(pause, ceiling, backoff.cap, &at);
                backoff_2_ceilings_grow_to_the_cap((ceiling, backoff.ceiling(attempt.next())), None, &at);
                let mut again = Jitter::seeded(ClientId::new(client), client % 3);
                backoff_3_asking_twice_gives_the_same(pause, backoff.delay(attempt, &mut again), &at);
                attempt = attempt.next();
            }
        }
    }
}

#[test]
fn the_ceiling_of_every_attempt() {
    let backoff = Backoff::default();
    let (mut last, mut attempt) = (Duration::ZERO, Attempt::FIRST);
    for number in 0..=u32::from(u16::MAX) {
        let ceiling = backoff.ceiling(attempt);
        let huge = number > 100;
        backoff_2_ceilings_grow_to_the_cap((last, ceiling), huge.then_some(backoff.cap), &attempt);
        (last, attempt) = (ceiling, attempt.next());
    }
}

#[test]
fn every_cell_of_the_retry_matrix() {
    let key = Key::parse("order-7").expect("a key");
    for contract in [Contract::Safe, Contract::Conditional(key.clone()), Contract::Unsafe] {
        for phase in [SendPhase::NeverSent, SendPhase::MaybeSent] {
            let (safety, verdict) = (contract.safety(), contract.verdict(phase));
            let at = (&contract, phase);
            retry_1_unsafe_is_reconciled(safety, phase, verdict, &at);
            let stored = contract.key().unwrap_or(&key);
            retry_2_conditional_is_repeated_to_the_byte((safety, verdict), (&key, stored), &at);
            retry_3_never_sent_may_be_retried(phase, verdict, &at);
        }
    }
}

#[test]
fn every_level_of_a_small_budget() {
    let (now, events) = (Instant::ZERO, [BudgetEvent::CallStarted, BudgetEvent::RetryWanted]);
    for capacity in 0..3 {
        let start = RetryBudget::new(now, BudgetConfig { earn_permille: 400, reserve_per_second: 0, capacity });
        let mut searched = Searched::begin();
        let (mut seen, mut queue) = (HashSet::new(), VecDeque::from([start.clone()]));
        searched.state(seen.insert(start));
        while let Some(before) = queue.pop_front() {
            for event in events {
                let mut after = before.clone();
                let effect = after.handle(now, event);
                let available = (before.available(), after.available());
                retry_4_the_level_is_bounded(available, capacity, effect, &(&before, event));
                searched.transitions += 1;
                if searched.state(seen.insert(after.clone())) {
                    queue.push_back(after);
                }
            }
        }
        searched.report(&format!("a retry budget of {capacity}"));
        assert!(searched.states > 2 * capacity as usize, "{} levels", searched.states);
    }
}

#[test]
fn every_sequence_of_a_client_that_follows() {
    let ns = Duration::from_nanos;
    let seen_running = |interval| follow::Event::Seen { terminal: false, interval };
    let events = [
        seen_running(Some(ns(3))),
        seen_running(None),
        follow::Event::Seen { terminal: true, interval: None },
        follow::Event::Notified { terminal: false, interval: None },
        follow::Event::Notified { terminal: true, interval: None },
        follow::Event::Failed,
        follow::Event::Gone,
        follow::Event::Stop,
        follow::Event::Clock,
    ];
    // Without pauses in the backoff the number of failures does not count: time and state are all there is.
    let backoff = Backoff { base: ns(0), cap: ns(0) };
    let config = follow::Config { shortest: ns(1), longest: ns(5), usual: ns(4), backoff, maximum: Some(ns(12)) };
    let start = Follow::start(Instant::ZERO, config, Jitter::seeded(ClientId::new(7), 0));
    let mut searched = Searched::begin();
    let (mut seen, mut queue) = (HashSet::new(), VecDeque::from([(Instant::ZERO, start)]));
    while let Some((now, before)) = queue.pop_front() {
        if !searched.state(seen.insert((now, before.state()))) {
            continue;
        }
        for event in events {
            let mut after = before.clone();
            let effect = after.handle(now, event);
            searched.transitions += 1;
            let at = (now, &before, event, effect, &after);
            follow_1_over_is_never_left(before.state(), after.state(), &at);
            follow_2_one_question_at_a_time(before.state(), effect, &at);
            if let follow::Effect::Wait { until } = effect {
                follow_3_deadlines_lie_ahead(now, Some(until), &at);
            }
            if event == follow::Event::Clock {
                follow_3_deadlines_lie_ahead(now, after.wake_at(), &at);
            }
            queue.extend([Some(now), after.wake_at()].into_iter().flatten().map(|then| (then, after.clone())));
        }
    }
    searched.report("a client that follows a task");
    assert!(searched.states > 20, "{} states", searched.states);
}
