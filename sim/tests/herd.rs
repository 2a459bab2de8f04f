//! Ten thousand clients lose one server at the same instant: they do not come back in step, and all of them come back.

use std::time::Duration;

use steady_core::backoff::Backoff;
use steady_sim::herd::{Herd, HerdReport, Retry, run, table};

fn lose_for(seconds: u64, backoff: Backoff) -> HerdReport {
    let report = run(&Herd { outage: Duration::from_secs(seconds), backoff, ..Herd::default() });
    assert_eq!((report.clients, report.back), (10_000, 10_000));
    assert_eq!((report.not_new, report.before_refetch), (0, 0));
    report
}

fn keep_their_share(report: &HerdReport) {
    for windows in &report.attempts {
        let (busiest, allowed) = (windows.busiest, windows.allowed);
        assert!(windows.keeps_its_share(), "attempt {}: {busiest} of {allowed}", windows.attempt);
    }
    assert!(report.allowed_back_ms.is_some_and(|allowed| report.last_back_ms <= allowed), "{} ms", report.last_back_ms);
    assert!(report.holds());
}

#[test]
fn row_80_ten_thousand_clients_keep_to_the_share_of_full_jitter_and_all_are_back_within_the_cap() {
    for seconds in [0, 1, 20] {
        let report = lose_for(seconds, Backoff::default());
        keep_their_share(&report);
        assert_eq!(report.attempts[0].policy_permille, 400, "250 ms: 40 % in 100 ms, and that is said");
        let first_pauses_are_used = (380..=430).contains(&report.attempts[0].share_permille);
        assert!(first_pauses_are_used, "{}", report.attempts[0].share_permille);
        assert!(report.attempts.len() >= if seconds == 20 { 7 } else { 1 });
    }
}

#[test]
fn a_hundred_thousand_clients_keep_to_their_share_wherever_a_window_begins() {
    let report = run(&Herd { clients: 100_000, outage: Duration::from_secs(10), ..Herd::default() });
    assert!(report.holds());
    for windows in &report.attempts {
        let (busiest, allowed) = (windows.busiest_anywhere, windows.allowed);
        assert!(busiest <= allowed, "attempt {}: {busiest} of {allowed}", windows.attempt);
    }
}

#[test]
fn the_policy_for_fleets_puts_a_twentieth_into_the_busiest_window() {
    for seconds in [0, 1, 20] {
        let report = lose_for(seconds, Backoff::FLEET);
        keep_their_share(&report);
        assert_eq!(report.attempts[0].policy_permille, 50);
    }
}

#[test]
fn a_fixed_retry_of_one_second_is_caught_with_the_whole_fleet_in_one_window() {
    for seconds in [0, 1, 20] {
        let fixed = Retry::Fixed(Duration::from_secs(1));
        let report = run(&Herd { outage: Duration::from_secs(seconds), retry: fixed, ..Herd::default() });
        assert!(!report.holds());
        for windows in &report.attempts {
            assert_eq!(
                (windows.share_permille, windows.keeps_its_share()),
                (1000, false),
                "attempt {}",
                windows.attempt
            );
        }
        assert_eq!(report.back, 10_000, "they are served all the same, by a server without limits");
    }
}

#[test]
fn a_client_that_hands_out_notices_before_it_has_read_what_it_missed_is_caught() {
    let report = run(&Herd { clients: 100, hasty: true, ..Herd::default() });
    assert_eq!(report.back, 100);
    assert_eq!((report.before_refetch, report.holds()), (100, false));
}

#[test]
fn replicas_share_the_fleet_and_what_is_over_their_limit_asks_again() {
    let herd = Herd { clients: 20_000, replicas: 10, outage: Duration::from_secs(10), ..Herd::default() };
    let free = run(&herd);
    assert!(free.holds() && free.load.refused_full == 0, "{:?}", free.load);
    // Ceilings are 4 s and 8 s by then: 50 of 2,000 in 100 ms at most, and what chance adds over ten replicas.
    assert!((25..=100).contains(&free.load.busiest_open), "{:?}", free.load);
    let narrow = run(&Herd { accepts: Some(10), ..herd });
    assert!(narrow.load.refused_full > 0 && narrow.allowed_back_ms.is_none(), "{:?}", narrow.load);
    assert_eq!(narrow.back, 20_000, "all are back in the end");
    assert!(narrow.last_back_ms > free.last_back_ms, "{} ms, {} ms", narrow.last_back_ms, free.last_back_ms);
}

#[test]
fn the_load_factor_is_that_of_the_policy_whatever_the_size_of_the_fleet() {
    let factor = |clients, replicas, retry, backoff| {
        run(&Herd { clients, replicas, retry, backoff, outage: Duration::ZERO, ..Herd::default() }).load.peak_permille
    };
    let default = Backoff::default();
    assert_eq!(factor(10_000, 1, Retry::NoJitter, default), 10_000, "all in one window: ten times the even rate");
    for (clients, replicas) in [(10_000, 1), (100_000, 10)] {
        let (half, full) = (Retry::EqualJitter, Retry::Jittered);
        // From 126 ms to 200 ms of the 125 that half jitter leaves; 100 ms of 250, and of 2000.
        for (retry, backoff, expected) in [(half, default, 5920), (full, default, 4000), (full, Backoff::FLEET, 500)] {
            let found = factor(clients, replicas, retry, backoff);
            let about = expected * 19 / 20..expected * 5 / 4;
            assert!(about.contains(&found), "{clients} {retry:?} {backoff:?}: {found}");
        }
    }
}

#[test]
fn the_table_holds_for_what_ships_and_not_for_pauses_without_jitter_in_its_place() {
    let rows = table::rows(2000, 2);
    assert!(table::holds(&rows), "{}", table::markdown(&rows));
    let mut swapped = rows.clone();
    for same in swapped.chunks_mut(3) {
        (same[0].at_once_permille, same[2].at_once_permille) = (same[2].at_once_permille, same[0].at_once_permille);
    }
    assert!(!table::holds(&swapped), "the shipped jitter in the place of none");
}

#[test]
fn a_small_fleet_holds_and_one_in_step_is_told_from_chance_from_fifty_on() {
    for clients in [1, 2, 5, 10, 50, 100, 300, 1000, 3000] {
        for seconds in [0, 1, 10] {
            let herd = Herd { clients, outage: Duration::from_secs(seconds), ..Herd::default() };
            let report = run(&herd);
            assert!(report.holds(), "{clients} clients, {seconds} s: {:?}", report.attempts);
            let fixed = run(&Herd { retry: Retry::Fixed(Duration::from_secs(1)), ..herd });
            assert!(clients < 50 || !fixed.attempts[0].keeps_its_share(), "{clients} clients in step, {seconds} s");
        }
    }
}
