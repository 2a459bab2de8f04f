//! The swarm keeps its own promises: it is deterministic, it sees what is broken on purpose, and what it finds is small.

use steady_sim::swarm::{Check, Mutant, Options, Script, batch, draw, play};

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
        Mutant::DropsFinal => &[Check::AnsweredInCalm, Check::SilenceAfterCancel],
        Mutant::UnboundedBuffer => &[Check::BufferBound],
        Mutant::NoGrace => &[Check::Grace],
        Mutant::KeyApart | Mutant::VolatileKeys | Mutant::ForgetsKeys => &[Check::OneEffect],
        Mutant::AnswersBeforeCommit => &[Check::DurableAnswer, Check::StableAnswer],
        Mutant::IgnoresArguments => &[Check::KeyArguments, Check::DurableAnswer],
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
        assert_eq!(play(&read, false).expect("it runs").violations, failure.small, "{mutant:?}");
        // Without the fault nothing is broken.
        let healthy = Script { world: steady_sim::swarm::script::World { mutant: None, ..read.world }, ..read };
        assert_eq!(play(&healthy, false).expect("it runs").violations, [], "{mutant:?}: {}", healthy.text());
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
