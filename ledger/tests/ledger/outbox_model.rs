//! Any sequence of effects, claims, reports, decisions, pauses and restarts agrees with a list.

use std::num::NonZeroU16;
use std::time::Duration;

use proptest::prelude::*;
use steady_ledger::{Backoff, Delivery, Durability, Message, Outbox, Report, Target, Upstream, WallTime};

use super::clock::TestClock;
use super::*;

const START: i64 = 1_790_000_000_000;
const LEASE: i64 = 30_000;
const MARGIN: i64 = 60_000;
const WINDOW: i64 = 250_000;
const ATTEMPTS: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum Word {
    Delivered,
    Retry,
    Reject,
    InDoubt,
    NotSent,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Leave {
        line: Option<u8>,
        deadline: Option<i64>,
        messages: u8,
    },
    Claim(u32),
    /// What the holder of an earlier delivery says, counted from the latest.
    Say {
        back: usize,
        word: Word,
    },
    Requeue {
        message: usize,
        deadline: Option<i64>,
    },
    Skip(usize),
    Pass(i64),
    Collect,
    Reopen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Pending,
    Sending,
    Delivered,
    Dead,
    InDoubt,
    Skipped,
    Gone,
}

/// A message as the list knows it. `holder` is the delivery that has a say, `unsure` those that nobody knows about.
#[derive(Debug)]
struct Known {
    line: Option<u8>,
    standing: Standing,
    next: i64,
    sent: i64,
    lease_until: i64,
    deadline: Option<i64>,
    attempts: u32,
    holder: Option<usize>,
    unsure: Vec<(usize, i64)>,
}

struct Model {
    now: i64,
    idempotent: bool,
    messages: Vec<Known>,
    deliveries: usize,
}

impl Model {
    fn is_known(&self, message: &Known, lease: i64) -> bool {
        let first = message.unsure.first().map(|(_, since)| *since);
        first.is_none_or(|first| self.idempotent && self.now + lease + MARGIN < first + WINDOW)
    }

    fn leave(&mut self, line: Option<u8>, deadline: Option<i64>) {
        let (next, sent) = (self.now, self.now);
        self.messages.push(Known {
            line,
            standing: Standing::Pending,
            next,
            sent,
            lease_until: 0,
            deadline,
            attempts: 0,
            holder: None,
            unsure: Vec::new(),
        });
    }

    /// Nobody knows what became of what is being sent.
    fn lose(&mut self, place: usize) {
        let message = &mut self.messages[place];
        let (lease, holder, sent) = (message.lease_until - message.sent, message.holder.unwrap(), message.sent);
        message.unsure.push((holder, sent));
        let message = &self.messages[place];
        let again = message.attempts < ATTEMPTS && self.is_known(message, lease);
        let (standing, next) = if again { (Standing::Pending, self.now) } else { (Standing::InDoubt, message.next) };
        self.stand(place, standing, next);
    }

    fn stand(&mut self, place: usize, standing: Standing, next: i64) {
        let message = &mut self.messages[place];
        message.standing = standing;
        message.next = message.deadline.map_or(next, |deadline| deadline.min(next));
    }

    fn is_first(&self, place: usize) -> bool {
        let line = self.messages[place].line;
        let is_done =
            |known: &Known| matches!(known.standing, Standing::Delivered | Standing::Skipped | Standing::Gone);
        line.is_none() || self.messages[..place].iter().all(|known| known.line != line || is_done(known))
    }

    /// The places of what is handed out.
    fn claim(&mut self, max: u32) -> Vec<usize> {
        for place in 0..self.messages.len() {
            let message = &self.messages[place];
            if message.standing == Standing::Sending && self.now >= message.lease_until {
                self.lose(place);
            }
        }
        let is_due = |place: &usize| {
            let message = &self.messages[*place];
            message.standing == Standing::Pending && message.next <= self.now && self.is_first(*place)
        };
        let mut due: Vec<usize> = (0..self.messages.len()).filter(is_due).collect();
        due.sort_by_key(|place| (self.messages[*place].next, *place));
        let mut claimed = Vec::new();
        for place in due {
            if claimed.len() == max as usize {
                break;
            }
            let (message, now) = (&self.messages[place], self.now);
            let lease_until = message.deadline.map_or(now + LEASE, |deadline| deadline.min(now + LEASE));
            if message.deadline.is_some_and(|deadline| now >= deadline) {
                let sure = message.unsure.is_empty();
                self.stand(place, if sure { Standing::Dead } else { Standing::InDoubt }, now);
            } else if self.is_known(message, lease_until - now) {
                let message = &mut self.messages[place];
                message.standing = Standing::Sending;
                (message.sent, message.lease_until) = (now, lease_until);
                message.attempts += 1;
                message.holder = Some(self.deliveries);
                self.deliveries += 1;
                claimed.push(place);
            } else {
                self.stand(place, Standing::InDoubt, now);
            }
        }
        claimed
    }

    fn say(&mut self, place: usize, (delivery, attempt): (usize, u32), word: Word) -> bool {
        let now = self.now;
        let message = &mut self.messages[place];
        if message.holder != Some(delivery) {
            return false;
        }
        match (word, message.standing) {
            (_, Standing::Skipped | Standing::Gone) => return false,
            (_, Standing::Delivered) => return matches!(word, Word::Delivered),
            (_, Standing::Dead) => return matches!(word, Word::Reject | Word::Retry),
            (Word::Delivered, _) => message.standing = Standing::Delivered,
            (Word::Reject, _) => message.standing = Standing::Dead,
            (Word::InDoubt, Standing::Sending) => self.lose(place),
            (Word::InDoubt, _) => {}
            (Word::Retry | Word::NotSent, standing) => {
                let own = [delivery] == message.unsure.iter().map(|(unsure, _)| *unsure).collect::<Vec<_>>()[..];
                if standing != Standing::Sending && !own {
                    return true;
                }
                if own {
                    message.unsure.clear();
                }
                let sure = message.unsure.is_empty();
                if matches!(word, Word::NotSent) {
                    message.attempts = attempt - 1;
                    (message.standing, message.next) = (Standing::Pending, now);
                } else if message.attempts < ATTEMPTS {
                    self.stand(place, Standing::Pending, now);
                } else {
                    message.standing = if sure { Standing::Dead } else { Standing::InDoubt };
                }
            }
        }
        true
    }

    fn requeue(&mut self, place: usize, deadline: Option<i64>) -> bool {
        let message = &mut self.messages[place];
        let stuck = matches!(message.standing, Standing::Dead | Standing::InDoubt);
        if stuck {
            (message.standing, message.next) = (Standing::Pending, self.now);
            (message.deadline, message.attempts, message.holder) = (deadline, 0, None);
            message.unsure.clear();
        }
        stuck
    }

    fn skip(&mut self, place: usize) -> bool {
        let message = &mut self.messages[place];
        let may = matches!(message.standing, Standing::Pending | Standing::Dead | Standing::InDoubt);
        if may {
            (message.standing, message.holder) = (Standing::Skipped, None);
        }
        may
    }

    fn collect(&mut self) {
        for message in &mut self.messages {
            if matches!(message.standing, Standing::Delivered | Standing::Skipped) {
                message.standing = Standing::Gone;
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let deadline = || proptest::option::weighted(0.2, prop_oneof![Just(LEASE / 2), Just(2 * LEASE)]);
    let word = prop_oneof![
        3 => Just(Word::Delivered),
        2 => Just(Word::Retry),
        1 => Just(Word::Reject),
        2 => Just(Word::InDoubt),
        1 => Just(Word::NotSent),
    ];
    let leave = (proptest::option::weighted(0.8, 0..2u8), deadline(), 1..3u8)
        .prop_map(|(line, deadline, messages)| Step::Leave { line, deadline, messages });
    let requeue = (0..8usize, deadline()).prop_map(|(message, deadline)| Step::Requeue { message, deadline });
    let step = prop_oneof![
        5 => leave,
        8 => (0..4u32).prop_map(Step::Claim),
        8 => (0..4usize, word).prop_map(|(back, word)| Step::Say { back, word }),
        2 => requeue,
        1 => (0..8usize).prop_map(Step::Skip),
        5 => prop_oneof![Just(1i64), Just(LEASE - 1), Just(LEASE), Just(50_000)].prop_map(Step::Pass),
        1 => Just(Step::Collect),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..50)
}

/// The message at a place. Each effect here leaves its messages under a key of its own.
fn place(delivery: &Delivery) -> usize {
    str::from_utf8(delivery.payload()).unwrap().parse().unwrap()
}

fn report(delivery: &Delivery, word: Word) -> bool {
    let reported = delivery.report(match word {
        Word::Delivered => Report::Delivered,
        Word::Retry => Report::Retry { reason: "503" },
        Word::Reject => Report::Reject { reason: "no" },
        Word::InDoubt => Report::InDoubt { reason: "timeout" },
        Word::NotSent => Report::NotSent,
    });
    answered(reported)
}

/// Whether it was taken; else it was refused because of how the message stands.
fn answered(result: Result<(), LedgerError>) -> bool {
    match result {
        Ok(()) => true,
        Err(error) => {
            assert!(matches!(error, LedgerError::Stale | LedgerError::NotStuck), "{error:?}");
            false
        }
    }
}

/// How each message stands in the file; none for those that are gone.
fn stored(shop: &Shop, count: usize) -> Vec<Option<i64>> {
    let conn = shop.stranger();
    let mut statement = conn.prepare("SELECT key, ordinal, state FROM ledger_outbox").unwrap();
    let mut states = vec![None; count];
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, u32>(1)?, row.get(2)?)));
    for row in rows.unwrap() {
        let (key, ordinal, state) = row.unwrap();
        let first: usize = key.trim_start_matches("order-").parse().unwrap();
        states[first + ordinal as usize] = Some(state);
    }
    states
}

const fn code(standing: Standing) -> Option<i64> {
    match standing {
        Standing::Pending => Some(1),
        Standing::Sending => Some(2),
        Standing::Delivered => Some(3),
        Standing::Dead => Some(4),
        Standing::InDoubt => Some(5),
        Standing::Skipped => Some(6),
        Standing::Gone => None,
    }
}

struct Run {
    shop: Shop,
    clock: TestClock,
    outbox: Outbox,
    model: Model,
    deliveries: Vec<Delivery>,
    ids: Vec<steady_ledger::MessageId>,
}

impl Run {
    fn start(idempotent: bool) -> Self {
        let clock = TestClock::at(START);
        let shop = Shop::open_with(Self::options(&clock));
        let model = Model { now: START, idempotent, messages: Vec::new(), deliveries: 0 };
        let outbox = Self::outbox(&shop.ledger, idempotent);
        Self { shop, clock, outbox, model, deliveries: Vec::new(), ids: Vec::new() }
    }

    fn options(clock: &TestClock) -> Options {
        Options { clock: clock.clock(), durability: Durability::ProcessCrash, ..options() }
    }

    /// A target that pauses for no time, so that the list knows when a message comes back.
    fn outbox(ledger: &Ledger, idempotent: bool) -> Outbox {
        let mut target = Target::new("bank");
        target.backoff = Backoff { base: Duration::ZERO, cap: Duration::ZERO };
        target.attempts = NonZeroU16::new(3).unwrap();
        if idempotent {
            target.upstream = Upstream::Idempotent { window: Duration::from_millis(WINDOW.unsigned_abs()) };
        }
        ledger.outbox(target)
    }

    fn leave(&mut self, line: Option<u8>, deadline: Option<i64>, messages: u8) {
        let first = self.model.messages.len();
        let deadline = deadline.map(|millis| self.model.now + millis);
        let message = |number: usize| {
            let mut message = Message::new("bank", format!("{}", first + number));
            message.ordering_key = line.map(|line| format!("line-{line}").into());
            message.deadline = deadline.map(WallTime::from_unix_millis);
            message
        };
        let messages: Vec<_> = (0..usize::from(messages)).map(message).collect();
        messages.iter().for_each(|_| self.model.leave(line, deadline));
        let effect = move |tx: &mut EffectTx<'_>| -> Result<i64, EffectError<i64>> {
            for message in &messages {
                tx.enqueue(message.clone())?;
            }
            Ok(0)
        };
        let order = key(&format!("order-{first}"));
        self.shop.ledger.execute(&Request::new(&scope(), &order, "{}"), effect).unwrap().into_inner();
    }

    /// The id of a message, which only a delivery or a list of what is stuck tells.
    fn learn(&mut self) {
        let listed = self.outbox.stuck(100).unwrap().into_iter().map(|stuck| stuck.id);
        let handed = self.deliveries.iter().map(|delivery| delivery.id().clone());
        self.ids = listed.chain(handed).collect();
    }

    fn id(&mut self, place: usize) -> Option<steady_ledger::MessageId> {
        self.learn();
        let is_it = |id: &&steady_ledger::MessageId| {
            let first: usize = id.key.as_str().trim_start_matches("order-").parse().unwrap();
            first + id.ordinal as usize == place
        };
        self.ids.iter().find(is_it).cloned()
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Leave { line, deadline, messages } => self.leave(line, deadline, messages),
            Step::Claim(max) => {
                let claimed = self.outbox.claim(max, Duration::from_millis(LEASE.unsigned_abs())).unwrap();
                let seen: Vec<_> = claimed.iter().map(place).collect();
                assert_eq!(seen, self.model.claim(max));
                self.deliveries.extend(claimed);
            }
            Step::Say { back, word } => {
                let Some(number) = self.deliveries.len().checked_sub(back + 1) else { return };
                let delivery = &self.deliveries[number];
                let expected = self.model.say(place(delivery), (number, delivery.attempt()), word);
                assert_eq!(report(delivery, word), expected);
            }
            Step::Requeue { message, deadline } => {
                let Some(id) = self.id(message) else { return };
                let deadline = deadline.map(|millis| self.model.now + millis);
                let seen = self.outbox.requeue(&id, deadline.map(WallTime::from_unix_millis), "ops", "");
                assert_eq!(answered(seen), self.model.requeue(message, deadline));
            }
            Step::Skip(message) => {
                let Some(id) = self.id(message) else { return };
                assert_eq!(answered(self.outbox.skip(&id, "ops", "")), self.model.skip(message));
            }
            Step::Pass(millis) => {
                self.clock.pass(millis);
                self.model.now += millis;
            }
            Step::Collect => {
                self.shop.ledger.collect(100).unwrap();
                self.model.collect();
            }
            Step::Reopen => {
                self.shop.ledger = Ledger::open(self.shop.path(), Self::options(&self.clock)).unwrap();
                self.outbox = Self::outbox(&self.shop.ledger, self.model.idempotent);
            }
        }
    }
}

/// The check that ends each run of the model finds what it is there for.
#[test]
fn a_check_finds_a_line_without_a_first_a_wrong_count_and_an_attempt_of_nobody() {
    let spoilt = [
        ("UPDATE ledger_outbox SET head = 0", "ledger_outbox 1"),
        ("UPDATE ledger_outbox SET head = id = 2", "ledger_outbox 1"),
        ("UPDATE ledger_meta SET outbox_open = 7", "ledger_meta 7"),
        (
            "INSERT INTO ledger_attempt SELECT principal, operation, key, zeroblob(16), 1, 0, 0, NULL FROM ledger_key",
            "ledger_attempt order-0",
        ),
    ];
    for (sql, place) in spoilt {
        let mut run = Run::start(false);
        run.leave(Some(1), None, 2);
        assert!(run.shop.ledger.check(|_, _| ()).unwrap().is_sound());
        run.shop.stranger().execute(sql, []).unwrap();
        let findings = run.shop.ledger.check(|_, _| ()).unwrap().findings;
        assert_eq!(findings.iter().map(|finding| &*finding.place).collect::<Vec<_>>(), [place], "{sql}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_outbox_agrees_with_a_list(idempotent in any::<bool>(), steps in steps()) {
        let mut run = Run::start(idempotent);
        for step in steps {
            run.step(step);
            let expected: Vec<_> = run.model.messages.iter().map(|known| code(known.standing)).collect();
            prop_assert_eq!(stored(&run.shop, expected.len()), expected);
        }
        let checked = run.shop.ledger.check(|_, _| ()).unwrap();
        prop_assert!(checked.is_sound(), "{:?}", checked);
    }
}
