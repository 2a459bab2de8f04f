//! The swarm keeps its own promises: it is deterministic, it sees what is broken on purpose, and what it finds is small.

use std::collections::BTreeSet;

use steady_sim::swarm::script::Shape;
use steady_sim::swarm::{Check, Mutant, Options, Script, batch, draw, play, play_twice};

/// As many as verify runs.
const SEEDS: u64 = 200;
/// Most events of what a mutant's failure shrinks to.
const HANDFUL: usize = 8;

fn options(end: u64, jobs: usize, mutant: Option<Mutant>) -> Options {
    Options { first: 0, end, jobs, mutant }
}

/// What each mutant breaks: another promise would be found by chance.
fn breaks(mutant: Mutant) -> &'static [Check] {
    match mutant {
        Mutant::AnswersAfterCancel => &[Check::SilenceAfterCancel],
        Mutant::IgnoresDisconnect => &[Check::SilenceAfterCancel, Check::Grace],
        Mutant::AnswersTwice => &[Check::OneFinal],
        Mutant::RepeatsProgress => &[Check::ProgressIncreases],
        // What waits behind the final in its pipe waits for good.
        Mutant::DropsFinal => &[Check::AnsweredInCalm, Check::SilenceAfterCancel, Check::NothingMissed],
        Mutant::UnboundedBuffer => &[Check::BufferBound],
        Mutant::NoGrace => &[Check::Grace],
        Mutant::KeyApart | Mutant::VolatileKeys | Mutant::ForgetsKeys => &[Check::OneEffect],
        Mutant::AnswersBeforeCommit => &[Check::DurableAnswer, Check::StableAnswer],
        Mutant::IgnoresArguments | Mutant::ComparesText => &[Check::KeyArguments],
        Mutant::StaysPoisoned => &[Check::AnsweredInCalm],
        Mutant::Unsteady => &[Check::SameRun],
        Mutant::MutableResult => &[Check::StableAnswer],
        Mutant::ResendsUnsafe => &[Check::UnsafeOnce, Check::Matrix],
        Mutant::NewKey => &[Check::SameBytes, Check::OneEffect],
        Mutant::NoMaximum => &[Check::Deadline],
        Mutant::PostsCancel => &[Check::CancelSignal],
        Mutant::SaysNeverSent => &[Check::Matrix],
        Mutant::ReusesIds => &[Check::FreshId],
        Mutant::OneAttemptMore => &[Check::Attempts],
        Mutant::EndsTwice => &[Check::OneOutcome],
        Mutant::NeverEnds => &[Check::ComesToRest],
        Mutant::Panics => &[Check::NoPanic],
        Mutant::AsksClient => &[Check::ServerSpeaksWhenAsked],
        // Its reader never knows what there is.
        Mutant::ListensUnacknowledged => &[Check::ListenOrder, Check::NothingMissed],
        Mutant::LosesChanges | Mutant::SwallowsGaps => &[Check::NothingMissed],
        Mutant::TasksOfProcess | Mutant::TaskPerCall => &[Check::TaskKept],
        Mutant::CancelIsEnd => &[Check::TaskEnd],
        Mutant::LeaseNotFenced => &[Check::TaskLease],
        Mutant::LeaseForever => &[Check::TasksInCalm],
        Mutant::StartsOver => &[Check::TaskProgress],
        Mutant::CollectsTombstones => &[Check::OneEffect],
    }
}

#[test]
fn each_mutant_is_found_and_shrinks_to_a_handful_of_events() {
    for mutant in Mutant::ALL {
        let report = batch(&options(SEEDS, 2, Some(mutant)), &|_| {}).expect("it runs");
        let failure = report.failure.unwrap_or_else(|| panic!("{mutant:?} is not found in {SEEDS} seeds"));
        let first = failure.small.first().unwrap_or_else(|| panic!("{mutant:?} shrinks to what breaks nothing"));
        assert!(breaks(mutant).contains(&first.check), "{mutant:?} is found as {first:?}");
        let events = failure.script.events.len();
        assert!(events <= HANDFUL, "{mutant:?} shrinks to {events} events:\n{}", failure.script.text());
        // What is kept is the script, which says everything.
        let read = Script::parse(&failure.script.text()).expect("it reads what it writes");
        assert_eq!(play_twice(&read, false).expect("it runs").violations, failure.small, "{mutant:?}");
        // Without the fault nothing is broken.
        let healthy = Script { world: steady_sim::swarm::script::World { mutant: None, ..read.world }, ..read };
        assert_eq!(play_twice(&healthy, false).expect("it runs").violations, [], "{mutant:?}: {}", healthy.text());
    }
}

#[test]
fn every_promise_is_broken_by_some_mutant() {
    let mut open: BTreeSet<Check> = Check::ALL.into_iter().collect();
    for seed in 0..40 {
        for mutant in Mutant::ALL {
            if !breaks(mutant).iter().any(|check| open.contains(check)) {
                continue;
            }
            let run = play_twice(&draw(seed, Some(mutant)), false).expect("it runs");
            run.violations.iter().for_each(|broken| _ = open.remove(&broken.check));
        }
    }
    assert_eq!(open, BTreeSet::new(), "nothing shows that these can fail");
}

#[test]
fn what_a_faulty_server_says_over_http_comes_to_its_client() {
    let heard = |mutant| {
        (0..20).any(|seed| {
            let mut script = draw(seed, Some(mutant));
            script.world.clients.fill(Shape::Http);
            let run = play(&script, false).expect("it runs");
            run.coverage.contains_key("client: progress that did not increase")
        })
    };
    assert!(heard(Mutant::RepeatsProgress));
    assert!(!heard(Mutant::AnswersTwice), "only the fault does it");
    // A stream that ends without its final is a loss, as any other: `DropsFinal` breaks nothing there.
    for mutant in [Mutant::AnswersTwice, Mutant::AsksClient, Mutant::ListensUnacknowledged] {
        let found = (0..40).any(|seed| {
            let mut script = draw(seed, Some(mutant));
            script.world.clients.fill(Shape::Http);
            let run = play(&script, false).expect("it runs");
            run.violations.iter().any(|broken| breaks(mutant).contains(&broken.check))
        });
        assert!(found, "{mutant:?} over HTTP alone");
    }
}

#[test]
fn seeds_that_do_not_begin_at_nought_show_all_that_has_to_be_seen() {
    for first in [1000, 5200, 70_000] {
        let options = Options { first, end: first + SEEDS, jobs: 2, mutant: None };
        let report = batch(&options, &|_| {}).expect("it runs");
        assert!(report.holds(), "from {first} on: {:?} {:?}", report.missing, report.failure);
    }
}

#[test]
fn a_run_is_the_same_however_many_threads_there_are() {
    let run = |jobs| {
        let report = batch(&options(24, jobs, None), &|_| {}).expect("it runs");
        assert!(report.failure.is_none(), "{:?}", report.failure);
        assert_eq!(report.run_twice, 3, "one in ten is run twice");
        (report.hash, report.requests, report.coverage)
    };
    assert_eq!(run(1), run(3));
}

#[test]
fn another_event_is_another_trace() {
    let mut script = draw(3, None);
    let whole = play(&script, false).expect("it runs");
    assert_eq!(play(&script, true).expect("it runs").hash, whole.hash, "recording changes nothing");
    script.events.pop();
    assert_ne!(play(&script, false).expect("it runs").hash, whole.hash);
}

#[test]
fn every_script_survives_its_text() {
    for seed in 0..50 {
        let script = draw(seed, None);
        assert_eq!(Script::parse(&script.text()), Ok(script), "seed {seed}");
    }
}

#[test]
fn a_wrong_script_names_the_line_and_the_key() {
    let world = draw(1, None).text().lines().next().expect("a world").to_owned();
    let says = |text: &str| Script::parse(text).expect_err("it is wrong").to_string();
    assert!(says("").starts_with("line 1: the file is empty"));
    assert!(says("# nothing\n\n").starts_with("line 1: the file is empty"));
    let unknown = world.replacen("\"replicas\"", "\"replica\"", 1);
    assert!(says(&unknown).contains("unknown field `replica`"), "{}", says(&unknown));
    let none = world.replacen("\"replicas\":", "\"replicas\":0, \"x\":", 1);
    assert!(says(&none).starts_with("line 1: "), "{}", says(&none));
    let lines = |event: &str| says(&format!("# a comment\n{world}\n\n{{\"wait\":{{\"ms\":1}}}}\n{event}\n"));
    assert!(lines("{\"wiat\":{\"ms\":1}}").starts_with("line 5: unknown variant `wiat`"), "{}", lines("{\"wiat\":{}}"));
    assert!(lines("{\"wait\":{\"sm\":1}}").contains("unknown field `sm`"));
    assert!(lines("{\"wait\":{\"ms\":99999999}}").contains("ms is 99999999, and must be 0 to 3600000"));
    assert!(lines("{\"cut\":{\"client\":16}}").contains("client is 16"));
    assert!(lines("{\"cut\":{\"client\":-1}}").starts_with("line 5: "));
    assert!(lines("{\"cut\"").starts_with("line 5: EOF"), "{}", lines("{\"cut\""));
    assert!(lines("\u{0}").starts_with("line 5: "));
}
