//! What each checker accepts, and what it must refuse with its id: a checker that cannot fail checks nothing.

use std::panic::catch_unwind;
use std::time::Duration;

use steady_core::follow;
use steady_core::id::WireId;
use steady_core::legacy::Effect as Session;
use steady_core::legacy::Revision::{V2025_03_26, V2025_11_25};
use steady_core::mrtr::StateError;
use steady_core::outbound::Lost;
use steady_core::request::Terminal::{Cancelled, Completed, IdleTimeout, Lost as Gone};
use steady_core::retry::{BudgetEffect, Safety, SendPhase, Verdict};
use steady_core::subscription::{End, State};
use steady_core::task::{Effect, Record, Revision, Status};
use steady_core::time::Instant;

use super::invariants;

/// Runs a checker and says with which id it panicked, if it did.
fn refusal(check: impl FnOnce() + std::panic::UnwindSafe) -> Option<String> {
    let panic = catch_unwind(check).err()?;
    let text =
        panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|&text| text.into()));
    Some(text.expect("a panic with a text"))
}

/// The id in a checker's name: `req_1_one_terminal_state` is `REQ-1`.
fn id(checker: &str) -> String {
    let mut words = checker.split('_');
    let (prefix, number) = (words.next().expect("a prefix"), words.next().expect("a number"));
    format!("{}-{number}", prefix.to_uppercase())
}

/// A test for each checker: a value that holds, and values that do not.
macro_rules! refused {
    ($($checker:ident: $right:tt, not $($wrong:tt),+;)*) => {
        $(
            #[test]
            fn $checker() {
                let id = id(stringify!($checker));
                assert_eq!(refusal(|| call!($checker $right)), None, "{id} holds");
                $(
                    let said = refusal(|| call!($checker $wrong)).expect(concat!("refused: ", stringify!($wrong)));
                    assert!(said.contains(&format!("{id}: ")), "{id}: {said}");
                )+
            }
        )*
    };
}

macro_rules! call {
    ($checker:ident ($($argument:expr),*)) => { invariants::$checker($($argument),*, &"a wrong value") };
}

const NS: fn(u64) -> Instant = Instant::from_nanos;
const MS: fn(u64) -> Duration = Duration::from_millis;

const fn record(revision: u64, status: Status, cancel_requested: bool) -> Record {
    Record { revision: Revision::new(revision), status, cancel_requested }
}

const WORKS: Record = record(1, Status::Working, false);
const ENDED: State = State::Ended(End::Graceful);
const OPEN: State = State::Open { since: Instant::ZERO, heard: Instant::ZERO };
const WAITING: State = State::Waiting { until: Instant::ZERO };

fn lost(progress: u64) -> Option<Lost> {
    Some(Lost { progress, topics: Vec::new() })
}

refused! {
    req_1_one_terminal_state: (Some(Completed), Some(Completed)), not (Some(Completed), Some(Cancelled)), (Some(Gone), None);
    req_2_one_right_to_answer: (None, Some(Completed), true),
        not (Some(Completed), Some(Completed), true), (None, Some(Cancelled), true), (None, None, true);
    req_3_only_accepted_progress_moves_the_clock: (true, (Some(NS(1)), Some(NS(2)))), not (false, (Some(NS(1)), Some(NS(2))));
    srv_1_a_deadline_answers_one_error: (IdleTimeout, true), not (IdleTimeout, false), (Cancelled, true), (Gone, true);
    deadline_1_the_maximum_is_written_once: (Some(NS(4)), Some(NS(4))), not (Some(NS(4)), Some(NS(5))), (Some(NS(4)), None);
    deadline_2_nothing_saves_after_the_maximum: ((NS(3), Some(NS(4))), (&1, &2)), not ((NS(4), Some(NS(4))), (&1, &2));
    prog_1_values_increase: (Some(1.0), 2.0), not (Some(2.0), 2.0), (Some(2.0), 1.0);
    prog_2_what_is_held_is_passed_on: ((true, false), true, false), not ((true, false), false, false);
    prog_3_nothing_passes_after_the_end: (true, false), not (true, true);
    out_1_within_the_capacity: (4, 4), not (5, 4);
    out_2_a_final_is_popped_once: (&1, &1), not (&1, &2), (&1, &0), (&0, &1);
    out_3_nothing_follows_the_end: (false), not (true);
    out_4_progress_keeps_its_order: (None, 2.0), not (Some(2.0), 2.0), (Some(3.0), 2.0);
    out_5_a_loss_is_reported_once: (lost(2), (lost(2), None)),
        not (lost(2), (None, None)), (lost(2), (lost(2), lost(2))), (lost(0), (lost(0), None));
    coord_1_no_more_than_the_cap: (2, 2), not (3, 2);
    coord_2_an_id_names_one_request: (true, false), not (true, true);
    coord_3_a_cancelled_request_is_gone: (true, false), not (true, true);
    coord_4_no_due_deadline_remains: (NS(3), Some(NS(4))), not (NS(4), Some(NS(4)));
    coord_5_only_an_open_listen_is_ended: (true, true), not (false, true), (true, false);
    call_1_one_outcome: (0), not (1);
    call_2_a_fresh_wire_id: ([1, 2].map(WireId::new), WireId::new(3)), not ([1, 2].map(WireId::new), WireId::new(2));
    call_3_one_deadline_over_all_attempts: (NS(4), NS(3)), not (NS(4), NS(4));
    call_4_unsafe_is_never_sent_again: (Safety::Unsafe, false), not (Safety::Unsafe, true);
    call_5_one_signal_for_a_running_attempt: (true, true, 1),
        not (true, true, 2), (true, true, 0), (true, false, 1), (false, true, 1);
    sub_1_only_an_acknowledged_stream_delivers: (OPEN), not (WAITING), (ENDED);
    sub_2_a_recovery_is_a_new_request: ((WireId::new(1), WireId::new(2)), ("{}", "{}"), false),
        not ((WireId::new(1), WireId::new(1)), ("{}", "{}"), false), ((WireId::new(1), WireId::new(2)), ("{}", "{ }"), false),
            ((WireId::new(1), WireId::new(2)), ("{}", "{}"), true);
    sub_3_a_stream_that_opens_is_read_afresh: (true, true), not (true, false), (false, true);
    sub_4_an_end_is_an_end: (OPEN, ENDED, true), not (ENDED, WAITING, false), (OPEN, WAITING, true);
    sub_5_no_due_deadline_remains: (NS(3), Some(NS(4))), not (NS(4), Some(NS(4)));
    sub_6_a_pause_is_within_its_ceiling: (Duration::from_nanos(1), Duration::ZERO), not (MS(2), MS(1));
    sub_7_one_question_at_a_time: (true, 1), not (true, 2);
    sub_8_only_silence_ends_an_open_stream: (MS(2), Some(MS(2)), true), not (MS(1), Some(MS(2)), true), (MS(9), None, true);
    task_1_a_terminal_status_stays: ((Status::Working, false), (Status::Failed, false)),
        not ((Status::Failed, false), (Status::Working, false)), ((Status::Failed, false), (Status::Failed, true));
    task_2_a_cancel_request_keeps_the_status: (Status::Working, Status::Working), not (Status::Working, Status::Cancelled);
    task_3_only_what_the_store_has: (WORKS, Some(WORKS)), not (WORKS, None), (WORKS, Some(record(1, Status::Failed, false)));
    task_4_the_first_end_wins: (Status::Failed, Effect::TooLate(Status::Failed)),
        not (Status::Failed, Effect::Persist(WORKS)), (Status::Failed, Effect::TooLate(Status::Completed));
    task_5_cancelled_needs_an_observed_intent: ((Status::Working, Status::Cancelled), true, true),
        not ((Status::Working, Status::Cancelled), false, true), ((Status::Working, Status::Cancelled), true, false);
    task_6_one_write_at_a_time: (None, Some(Revision::new(0)), WORKS),
        not (Some(WORKS), None, record(2, Status::Failed, false)), (None, Some(Revision::new(1)), WORKS);
    task_7_no_change_is_forgotten: ((Status::Working, false), Some(WORKS)),
        not ((Status::Working, true), Some(WORKS)), ((Status::Working, false), None);
    follow_1_over_is_never_left: (follow::State::Asking, follow::State::Over(follow::End::Gone)),
        not (follow::State::Over(follow::End::Gone), follow::State::Asking);
    follow_2_one_question_at_a_time: (follow::State::Asking, follow::Effect::Nothing), not (follow::State::Asking, follow::Effect::Ask);
    follow_3_deadlines_lie_ahead: (NS(3), Some(NS(4))), not (NS(4), Some(NS(4)));
    backoff_1_a_pause_is_within_its_ceiling: (MS(1), MS(2), MS(2)), not (MS(3), MS(2), MS(2)), (MS(1), MS(3), MS(2));
    backoff_2_ceilings_grow_to_the_cap: ((MS(1), MS(2)), Some(MS(2))), not ((MS(2), MS(1)), None), ((MS(1), MS(2)), Some(MS(3)));
    backoff_3_asking_twice_gives_the_same: (MS(1), MS(1)), not (MS(1), MS(2));
    retry_1_unsafe_is_reconciled: (Safety::Unsafe, SendPhase::MaybeSent, Verdict::ReconcileFirst),
        not (Safety::Unsafe, SendPhase::MaybeSent, Verdict::Retry), (Safety::Unsafe, SendPhase::MaybeSent, Verdict::RetrySameKey);
    retry_2_conditional_is_repeated_to_the_byte: ((Safety::Conditional, Verdict::RetrySameKey), (&"a", &"a")),
        not ((Safety::Conditional, Verdict::Retry), (&"a", &"a")), ((Safety::Conditional, Verdict::RetrySameKey), (&"a", &"b"));
    retry_3_never_sent_may_be_retried: (SendPhase::NeverSent, Verdict::Retry), not (SendPhase::NeverSent, Verdict::ReconcileFirst);
    retry_4_the_level_is_bounded: ((2, 1), 2, BudgetEffect::Granted),
        not ((2, 3), 2, BudgetEffect::Earned), ((2, 2), 2, BudgetEffect::Granted), ((2, 1), 2, BudgetEffect::Denied),
            ((0, 0), 2, BudgetEffect::Granted), ((2, 1), 2, BudgetEffect::Earned);
    hub_1_the_acknowledgement_comes_first: (false, true, false), not (true, true, false), (false, false, true);
    hub_2_only_what_is_watched: (true, true), not (false, true);
    hub_3_nothing_is_lost: (Some(1), Some(1)), not (Some(1), Some(2)), (Some(1), None), (None, Some(1));
    hub_4_what_waits_is_bounded: ((1, 1), (3, 3)), not ((2, 1), (3, 3)), ((1, 1), (4, 3));
    hub_5_an_end_is_an_end: (true, false), not (true, true);
    hub_6_a_waiter_is_woken_once: (true, true, true), not (true, true, false), (false, true, true), (true, false, true);
    leg_1_no_handler_without_a_handshake: (true, true), not (false, true);
    leg_2_no_change_before_the_client_is_ready: (true, Session::Announce), not (false, Session::Announce);
    leg_3_batches_of_one_revision: (Some(V2025_03_26), Session::Unpack),
        not (Some(V2025_11_25), Session::Unpack), (None, Session::Unpack), (Some(V2025_03_26), Session::Nothing);
    leg_4_the_end_stays: (true, true), not (true, false);
    seal_1_it_opens_for_its_own_alone: (&Err::<(), _>(StateError::OtherCaller)), not (&Ok(())), (&Err::<(), _>(StateError::Expired));
    seal_2_no_changed_text_opens: (&Err::<(), _>(StateError::Forged)), not (&Ok(())), (&Err::<(), _>(StateError::Expired));
    seal_3_a_failure_spends_nothing: (&Err::<(), _>(StateError::Expired), 0), not (&Err::<(), _>(StateError::Expired), 1), (&Ok(()), 0);
}

#[test]
fn the_id_is_in_the_name() {
    assert_eq!(id("backoff_3_asking_twice_gives_the_same"), "BACKOFF-3");
}
