//! Decides what is asked of a ledger, and the one answer to each question.

use std::fmt::Debug;
use std::time::Duration;

use crate::{
    Answer, Call, Effect, HORIZON, KeyState, Known, LEASE, RETENTION, START_MS, Subject, Ticket, Upstream, Word,
};

/// A part of the suite. What it returns is what was wrong.
pub type Case = fn(&mut dyn Subject) -> Result<(), String>;

/// Every case, by its name.
pub const CASES: [(&str, Case); 17] = [
    ("a key runs once and is replayed", once),
    ("a refusal is final and leaves nothing else", rejection),
    ("what failed or panicked left nothing and may be tried again", failures),
    ("other arguments are refused and the same ones in another spelling are not", mismatch),
    ("arguments without a canonical form are refused before anything runs", invalid),
    ("a key belongs to one caller and one operation", scopes),
    ("a result expires and its key never runs again", expiry),
    ("what was answered survives a restart", restart),
    ("a key that carries its time is refused beyond the horizon", horizon),
    ("an attempt holds its key until it says what became of it", attempt),
    ("an attempt that fell silent is in doubt, and heard if it speaks late", silence),
    ("what was not sent begins anew", not_sent),
    ("a doubt is ended once, by a person", resolution),
    ("only a system that recognises a request gets it twice", resend),
    ("nothing is sent again once the other system may have forgotten it", window),
    ("a key with an outside effect is compared and held like any other", one_ledger),
    ("nothing that is open is collected", open_stays),
];

/// A time after which no lease is running.
const LATER: Duration = Duration::from_secs(31);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn is<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}: {found:?} instead of {expected:?}")) }
}

/// An attempt that was let begin.
fn sent(what: &str, answer: Answer, number: u32) -> Result<Ticket, String> {
    if let Answer::Send(ticket, found) = answer
        && found == number
    {
        return Ok(ticket);
    }
    Err(format!("{what}: {answer:?} instead of attempt {number}"))
}

fn known(state: KeyState, executions: u64) -> Option<Known> {
    Some(Known { state, executions })
}

fn once(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1");
    is("before", subject.look(&call), None)?;
    is("first", subject.execute(&call, Effect::Commit(7)), Answer::Fresh(7))?;
    for again in ["second", "third"] {
        is(again, subject.execute(&call, Effect::Commit(8)), Answer::Replayed(7))?;
    }
    is("after a refusal", subject.execute(&call, Effect::Reject(9)), Answer::Replayed(7))?;
    is("rows", subject.rows(&call), 1)?;
    is("state", subject.look(&call), known(KeyState::Committed, 1))
}

fn rejection(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1");
    is("first", subject.execute(&call, Effect::Reject(-1)), Answer::Fresh(-1))?;
    is("second", subject.execute(&call, Effect::Commit(8)), Answer::Replayed(-1))?;
    is("rows", subject.rows(&call), 0)?;
    is("state", subject.look(&call), known(KeyState::Rejected, 0))
}

fn failures(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1");
    for (effect, answer) in [(Effect::Abort, Answer::Aborted), (Effect::Panic, Answer::Panicked)] {
        is("failure", subject.execute(&call, effect), answer)?;
        is("rows", subject.rows(&call), 0)?;
        is("state", subject.look(&call), None)?;
    }
    is("retry", subject.execute(&call, Effect::Commit(7)), Answer::Fresh(7))?;
    is("failure of a replay", subject.execute(&call, Effect::Abort), Answer::Replayed(7))?;
    is("rows", subject.rows(&call), 1)
}

fn mismatch(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1").arguments(r#"{"amount":1,"to":"a"}"#);
    is("first", subject.execute(&call, Effect::Commit(7)), Answer::Fresh(7))?;
    for other in [r#"{"amount":2,"to":"a"}"#, r#"{"amount":1}"#, r#"{"amount":"1","to":"a"}"#, "{}"] {
        let other = call.clone().arguments(other);
        is("other arguments", subject.execute(&other, Effect::Commit(8)), Answer::Mismatch)?;
        is("other arguments outside", subject.begin(&other, Upstream::Unknown), Answer::Mismatch)?;
    }
    let same = call.clone().arguments(r#" { "to" : "a" , "amount" : 1.0 } "#);
    is("another spelling", subject.execute(&same, Effect::Commit(8)), Answer::Replayed(7))?;
    is("rows", subject.rows(&call), 1)
}

fn invalid(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1");
    for text in [r#"{"a":1,"a":2}"#, r#"{"a":18446744073709551616}"#, "[]", "{"] {
        let other = call.clone().arguments(text);
        is(text, subject.execute(&other, Effect::Commit(7)), Answer::InvalidArguments)?;
    }
    is("rows", subject.rows(&call), 0)?;
    is("state", subject.look(&call), None)
}

fn scopes(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1");
    let others = [call.clone(), call.clone().principal("tenant-2"), call.operation("refund")];
    for (number, call) in (0..).zip(&others) {
        is("first", subject.execute(call, Effect::Commit(number)), Answer::Fresh(number))?;
    }
    for (number, call) in (0..).zip(&others) {
        is("second", subject.execute(call, Effect::Commit(9)), Answer::Replayed(number))?;
    }
    Ok(())
}

fn expiry(subject: &mut dyn Subject) -> Result<(), String> {
    let (done, refused) = (Call::new("order-1"), Call::new("order-2"));
    is("first", subject.execute(&done, Effect::Commit(7)), Answer::Fresh(7))?;
    is("first", subject.execute(&refused, Effect::Reject(8)), Answer::Fresh(8))?;
    subject.advance(RETENTION - Duration::from_millis(1));
    subject.collect();
    is("at the end", subject.execute(&done, Effect::Commit(1)), Answer::Replayed(7))?;
    subject.advance(Duration::from_millis(1));
    for when in ["before the collection", "after it", "after another one"] {
        is(when, subject.execute(&done, Effect::Commit(1)), Answer::Expired)?;
        is(when, subject.execute(&refused, Effect::Commit(1)), Answer::Expired)?;
        is(when, subject.begin(&done, Upstream::Unknown), Answer::Expired)?;
        subject.collect();
    }
    let other = done.clone().arguments(r#"{"a":1}"#);
    is("other arguments", subject.execute(&other, Effect::Commit(1)), Answer::Mismatch)?;
    is("rows", subject.rows(&done), 1)?;
    is("state", subject.look(&done), known(KeyState::Expired, 1))
}

fn restart(subject: &mut dyn Subject) -> Result<(), String> {
    let (done, refused, outside) = (Call::new("order-1"), Call::new("order-2"), Call::new("order-3"));
    is("first", subject.execute(&done, Effect::Commit(7)), Answer::Fresh(7))?;
    is("first", subject.execute(&refused, Effect::Reject(8)), Answer::Fresh(8))?;
    let ticket = sent("begin", subject.begin(&outside, Upstream::Unknown), 1)?;
    subject.restart();
    is("done", subject.execute(&done, Effect::Commit(1)), Answer::Replayed(7))?;
    is("refused", subject.execute(&refused, Effect::Commit(1)), Answer::Replayed(8))?;
    is("outside", subject.begin(&outside, Upstream::Unknown), Answer::InFlight)?;
    is("report", subject.report(ticket, Word::Commit(9)), Answer::Done)?;
    subject.restart();
    is("outside", subject.begin(&outside, Upstream::Unknown), Answer::Replayed(9))
}

/// A UUID of version 7 with this time, in Unix milliseconds.
fn uuid(millis: i64) -> String {
    format!("{:08x}-{:04x}-7000-8000-000000000000", millis >> 16, millis & 0xffff)
}

fn horizon(subject: &mut dyn Subject) -> Result<(), String> {
    let horizon = i64::try_from(HORIZON.as_millis()).map_err(|error| error.to_string())?;
    let (old, new) = (Call::new(&uuid(START_MS - horizon - 1)), Call::new(&uuid(START_MS)));
    is("old", subject.execute(&old, Effect::Commit(1)), Answer::TooOld)?;
    is("old, outside", subject.begin(&old, Upstream::Unknown), Answer::TooOld)?;
    is("rows", subject.rows(&old), 0)?;
    is("new", subject.execute(&new, Effect::Commit(2)), Answer::Fresh(2))?;
    for _ in 0..32 {
        subject.advance(DAY);
        subject.collect();
    }
    is("new, once it is old", subject.execute(&new, Effect::Commit(3)), Answer::TooOld)?;
    is("its tombstone", subject.look(&new), None)?;
    is("rows", subject.rows(&new), 1)
}

fn attempt(subject: &mut dyn Subject) -> Result<(), String> {
    for (key, word, state) in [
        ("order-1", Word::Commit(7), known(KeyState::Committed, 1)),
        ("order-2", Word::Reject(7), known(KeyState::Rejected, 0)),
    ] {
        let call = Call::new(key);
        let ticket = sent("begin", subject.begin(&call, Upstream::Unknown), 1)?;
        is("state", subject.look(&call), known(KeyState::Started, 0))?;
        is("another", subject.begin(&call, Upstream::Unknown), Answer::InFlight)?;
        is("a decision", subject.resolve(&call, true, 1), Answer::InFlight)?;
        is("report", subject.report(ticket, word), Answer::Done)?;
        is("the same report", subject.report(ticket, word), Answer::Done)?;
        is("another report", subject.report(ticket, Word::Commit(1)), Answer::Stale)?;
        is("a doubt", subject.report(ticket, Word::InDoubt), Answer::Stale)?;
        is("replay", subject.begin(&call, Upstream::Unknown), Answer::Replayed(7))?;
        is("replay", subject.execute(&call, Effect::Commit(1)), Answer::Replayed(7))?;
        is("state", subject.look(&call), state)?;
    }
    Ok(())
}

fn silence(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1");
    let ticket = sent("begin", subject.begin(&call, Upstream::Unknown), 1)?;
    subject.advance(LEASE - Duration::from_millis(1));
    is("just before", subject.begin(&call, Upstream::Unknown), Answer::InFlight)?;
    subject.advance(Duration::from_millis(1));
    for when in ["at the end", "again"] {
        is(when, subject.begin(&call, Upstream::Unknown), Answer::InDoubt)?;
        is(when, subject.execute(&call, Effect::Commit(1)), Answer::InDoubt)?;
    }
    is("state", subject.look(&call), known(KeyState::InDoubt, 0))?;
    is("a late word", subject.report(ticket, Word::Commit(7)), Answer::Done)?;
    is("replay", subject.begin(&call, Upstream::Unknown), Answer::Replayed(7))?;
    is("rows", subject.rows(&call), 0)
}

fn not_sent(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1");
    let first = sent("begin", subject.begin(&call, Upstream::Unknown), 1)?;
    is("report", subject.report(first, Word::NotSent), Answer::Done)?;
    is("state", subject.look(&call), None)?;
    let second = sent("begin anew", subject.begin(&call, Upstream::Unknown), 1)?;
    is("the first one", subject.report(first, Word::Commit(1)), Answer::Stale)?;
    is("report", subject.report(second, Word::Commit(7)), Answer::Done)?;
    is("replay", subject.begin(&call, Upstream::Unknown), Answer::Replayed(7))
}

fn resolution(subject: &mut dyn Subject) -> Result<(), String> {
    for (key, committed) in [("order-1", true), ("order-2", false)] {
        let call = Call::new(key);
        is("too early", subject.resolve(&call, committed, 7), Answer::NotInDoubt)?;
        let ticket = sent("begin", subject.begin(&call, Upstream::Unknown), 1)?;
        is("report", subject.report(ticket, Word::InDoubt), Answer::Done)?;
        is("doubt", subject.begin(&call, Upstream::Unknown), Answer::InDoubt)?;
        is("decision", subject.resolve(&call, committed, 7), Answer::Done)?;
        is("another decision", subject.resolve(&call, !committed, 8), Answer::NotInDoubt)?;
        is("late", subject.report(ticket, Word::Commit(9)), Answer::Stale)?;
        is("replay", subject.execute(&call, Effect::Commit(1)), Answer::Replayed(7))?;
        let state = if committed { known(KeyState::Committed, 1) } else { known(KeyState::Rejected, 0) };
        is("state", subject.look(&call), state)?;
    }
    Ok(())
}

fn resend(subject: &mut dyn Subject) -> Result<(), String> {
    let (call, upstream) = (Call::new("order-1"), Upstream::Idempotent(DAY));
    let first = sent("begin", subject.begin(&call, upstream), 1)?;
    is("while it runs", subject.begin(&call, upstream), Answer::InFlight)?;
    subject.advance(LATER);
    is("a caller who does not know the system", subject.begin(&call, Upstream::Unknown), Answer::InDoubt)?;
    let second = sent("again", subject.begin(&call, upstream), 2)?;
    is("the first one", subject.report(first, Word::Commit(1)), Answer::Stale)?;
    is("the second was not sent", subject.report(second, Word::NotSent), Answer::Done)?;
    is("the first may have been", subject.look(&call), known(KeyState::InDoubt, 0))?;
    let third = sent("once more", subject.begin(&call, upstream), 3)?;
    is("the second one", subject.report(second, Word::Commit(2)), Answer::Stale)?;
    is("report", subject.report(third, Word::Commit(7)), Answer::Done)?;
    is("replay", subject.begin(&call, upstream), Answer::Replayed(7))
}

fn window(subject: &mut dyn Subject) -> Result<(), String> {
    let upstream = Upstream::Idempotent(Duration::from_secs(600));
    let (late, strange) = (Call::new("order-1"), Call::new("order-2"));
    sent("begin", subject.begin(&late, upstream), 1)?;
    sent("begin", subject.begin(&strange, Upstream::Unknown), 1)?;
    subject.advance(LATER);
    is("first sent to who knows whom", subject.begin(&strange, upstream), Answer::InDoubt)?;
    subject.advance(Duration::from_secs(600));
    is("too late", subject.begin(&late, upstream), Answer::InDoubt)?;
    is("state", subject.look(&late), known(KeyState::InDoubt, 0))
}

fn one_ledger(subject: &mut dyn Subject) -> Result<(), String> {
    let call = Call::new("order-1");
    let ticket = sent("begin", subject.begin(&call, Upstream::Unknown), 1)?;
    is("an effect", subject.execute(&call, Effect::Commit(1)), Answer::InFlight)?;
    let other = call.clone().arguments(r#"{"a":1}"#);
    is("other arguments", subject.begin(&other, Upstream::Unknown), Answer::Mismatch)?;
    is("report", subject.report(ticket, Word::InDoubt), Answer::Done)?;
    is("other arguments in doubt", subject.begin(&other, Upstream::Unknown), Answer::Mismatch)?;
    is("rows", subject.rows(&call), 0)
}

fn open_stays(subject: &mut dyn Subject) -> Result<(), String> {
    let (started, doubtful) = (Call::new("order-1"), Call::new("order-2"));
    let ticket = sent("begin", subject.begin(&doubtful, Upstream::Unknown), 1)?;
    is("report", subject.report(ticket, Word::InDoubt), Answer::Done)?;
    for _ in 0..3 {
        subject.advance(RETENTION);
        subject.collect();
    }
    sent("begin", subject.begin(&started, Upstream::Unknown), 1)?;
    subject.collect();
    is("started", subject.begin(&started, Upstream::Unknown), Answer::InFlight)?;
    subject.advance(LATER);
    subject.collect();
    for call in [&started, &doubtful] {
        is("doubt", subject.begin(call, Upstream::Unknown), Answer::InDoubt)?;
        is("state", subject.look(call), known(KeyState::InDoubt, 0))?;
    }
    Ok(())
}
