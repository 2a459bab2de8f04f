//! Decides what random commands are put to two ledgers, which have to answer alike.

use std::time::Duration;

use crate::{Answer, Call, Effect, Known, Subject, Ticket, Upstream, Word};

/// Something that is asked of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a subject has a method for each")]
pub enum Command {
    /// [`Subject::execute`].
    Execute(Call, Effect),
    /// [`Subject::begin`].
    Begin(Call, Upstream),
    /// [`Subject::report`], of one of the attempts so far.
    Report(Ticket, Word),
    /// [`Subject::resolve`].
    Resolve(Call, bool, i64),
    /// [`Subject::advance`].
    Advance(Duration),
    /// [`Subject::collect`].
    Collect,
    /// [`Subject::restart`].
    Restart,
}

impl Command {
    /// The command that these bits stand for. Few keys, so that they meet.
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        let part = |shift: u32, choices: u64| (bits >> shift) % choices;
        let value = i64::try_from(part(40, 5)).unwrap_or(0);
        let arguments = if part(10, 6) == 0 { r#"{"a":1}"# } else { "{}" };
        let call = Call::new(&format!("order-{}", part(16, 4))).arguments(arguments);
        match part(0, 16) {
            0..4 => Self::Execute(call, effect(part(24, 6), value)),
            4..8 => Self::Begin(call, upstream(part(24, 3))),
            8..11 => Self::Report(usize::try_from(part(24, 1 << 16)).unwrap_or(0), word(part(44, 5), value)),
            11 => Self::Resolve(call, part(24, 2) == 0, value),
            12 | 13 => Self::Advance(Duration::from_secs(
                [1, 31, 300, 3000, 90_000][usize::try_from(part(24, 5)).unwrap_or(0)],
            )),
            14 => Self::Collect,
            _ => Self::Restart,
        }
    }
}

fn effect(choice: u64, value: i64) -> Effect {
    match choice {
        0..3 => Effect::Commit(value),
        3 => Effect::Reject(value),
        4 => Effect::Abort,
        _ => Effect::Panic,
    }
}

fn upstream(choice: u64) -> Upstream {
    match choice {
        0 => Upstream::Unknown,
        1 => Upstream::Idempotent(Duration::from_secs(600)),
        _ => Upstream::Idempotent(Duration::from_secs(24 * 60 * 60)),
    }
}

fn word(choice: u64, value: i64) -> Word {
    match choice {
        0 | 1 => Word::Commit(value),
        2 => Word::Reject(value),
        3 => Word::InDoubt,
        _ => Word::NotSent,
    }
}

/// One of the two, and the attempts that it has begun.
struct Side<'a> {
    subject: &'a mut dyn Subject,
    tickets: Vec<Ticket>,
}

impl Side<'_> {
    fn answer(&mut self, command: &Command) -> Option<Answer> {
        let answer = match command {
            Command::Execute(call, effect) => self.subject.execute(call, *effect),
            Command::Begin(call, upstream) => self.subject.begin(call, *upstream),
            Command::Report(which, word) => {
                let ticket = *self.tickets.get(which.checked_rem(self.tickets.len())?)?;
                self.subject.report(ticket, *word)
            }
            Command::Resolve(call, committed, value) => self.subject.resolve(call, *committed, *value),
            Command::Advance(by) => return self.nothing(|subject| subject.advance(*by)),
            Command::Collect => return self.nothing(|subject| subject.collect()),
            Command::Restart => return self.nothing(|subject| subject.restart()),
        };
        let Answer::Send(ticket, number) = answer else { return Some(answer) };
        // Each numbers its tickets as it likes.
        self.tickets.push(ticket);
        Some(Answer::Send(self.tickets.len(), number))
    }

    fn nothing(&mut self, work: impl FnOnce(&mut dyn Subject)) -> Option<Answer> {
        work(self.subject);
        None
    }

    fn keys(&mut self) -> Vec<(Option<Known>, u64)> {
        let calls = (0..4).map(|number| Call::new(&format!("order-{number}")));
        calls.map(|call| (self.subject.look(&call), self.subject.rows(&call))).collect()
    }
}

/// Puts the same commands to both, and compares each answer and, after each, what is known of every key.
///
/// # Errors
///
/// The first difference.
pub fn compare(left: &mut dyn Subject, right: &mut dyn Subject, commands: &[Command]) -> Result<(), String> {
    let mut left = Side { subject: left, tickets: Vec::new() };
    let mut right = Side { subject: right, tickets: Vec::new() };
    for (step, command) in commands.iter().enumerate() {
        let answers = (left.answer(command), right.answer(command));
        if answers.0 != answers.1 {
            return Err(format!("step {step}, {command:?}: {:?} and {:?}", answers.0, answers.1));
        }
        let keys = (left.keys(), right.keys());
        if keys.0 != keys.1 {
            return Err(format!("after step {step}, {command:?}: {:?} and {:?}", keys.0, keys.1));
        }
    }
    Ok(())
}
