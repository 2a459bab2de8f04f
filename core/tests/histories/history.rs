//! What all histories share: operations as lines of text, the run of a property, the list it shrinks to, and replay.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use proptest::strategy::{BoxedStrategy, Strategy};
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};

/// The kinds of outputs that a history brought about.
pub(crate) type Seen = BTreeSet<&'static str>;

/// A machine under test with the model that watches it.
pub(crate) trait Machine {
    /// How its files are named.
    const NAME: &'static str;
    /// Operations of one history, at most.
    const LENGTH: usize;
    /// What all histories together must have brought about, or they prove nothing.
    const KINDS: &'static [&'static str];
    /// Wrong machines that the model must catch.
    const MUTANTS: &'static [Self::Mutant];
    type Op: Clone + 'static + Debug + Display + FromStr<Err = String>;
    type Mutant: Copy + Debug + 'static;

    fn op() -> BoxedStrategy<Self::Op>;

    /// Operations that go together, where single ones would seldom come far.
    fn phrase() -> BoxedStrategy<Vec<Self::Op>> {
        Self::op().prop_map(|op| vec![op]).boxed()
    }

    /// Runs the history, on the machine itself or on a wrong one.
    fn check(ops: &[Self::Op], mutant: Option<Self::Mutant>) -> Result<Seen, String>;
}

/// An enumeration that is written and read as words: a name, then its arguments.
macro_rules! ops {
    ($name:ident { $($word:literal => $variant:ident $(($($arg:ident: $kind:ty),+))?,)+ }) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($variant $(($($kind),+))?,)+ }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$variant $(($($arg),+))? => {
                        f.write_str($word)?;
                        $($(write!(f, " {}", $arg)?;)+)?
                        Ok(())
                    })+
                }
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(line: &str) -> Result<Self, String> {
                let mut words = line.split_whitespace();
                let op = match words.next() {
                    $(Some($word) => Self::$variant $(($($crate::history::argument::<$kind>(words.next())?),+))?,)+
                    other => return Err(format!("no such word: {other:?}")),
                };
                words.next().map_or(Ok(op), |more| Err(format!("too much: {more:?}")))
            }
        }
    };
}
pub(crate) use ops;

pub(crate) fn argument<T: FromStr>(word: Option<&str>) -> Result<T, String> {
    word.and_then(|word| word.parse().ok()).ok_or_else(|| format!("bad argument: {word:?}"))
}

/// Ends a check with a reason unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err(format!($($reason)+));
        }
    };
}
pub(crate) use ensure;

/// The machine holds what its model says, in histories that differ from run to run. `PROPTEST_CASES` runs more of them.
pub(crate) fn hold<M: Machine>(cases: u32) {
    let seen = RefCell::default();
    let failure = find::<M>(cases, None, &seen);
    if let Some((reason, ops)) = failure {
        panic!("{}", report::<M>(&reason, &ops));
    }
    let seen = seen.into_inner();
    println!("{}: histories in which each came about: {seen:?}", M::NAME);
    let missing: Vec<_> = M::KINDS.iter().filter(|kind| !seen.contains_key(*kind)).collect();
    assert!(missing.is_empty(), "{}: the histories never came to {missing:?}", M::NAME);
}

/// Every wrong machine is caught, by a history that the right one passes.
pub(crate) fn catch_mutants<M: Machine>() {
    for &mutant in M::MUTANTS {
        let caught = find::<M>(2000, Some(mutant), &RefCell::default());
        let Some((reason, ops)) = caught else { panic!("{}: {mutant:?} is not caught", M::NAME) };
        println!("{} {mutant:?}: {reason}\n{}", M::NAME, lines(&ops));
        guarded::<M>(&ops, None).expect("the right machine passes");
    }
}

/// Runs one written history.
pub(crate) fn replay<M: Machine>(text: &str) -> Result<(), String> {
    let mut ops = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            ops.push(line.parse().map_err(|why| format!("line {}: {why}", number + 1))?);
        }
    }
    if ops.is_empty() {
        return Err("an empty history".to_owned());
    }
    guarded::<M>(&ops, None).map(drop)
}

/// Where this test keeps its files.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories")
}

fn find<M: Machine>(
    cases: u32,
    mutant: Option<M::Mutant>,
    seen: &RefCell<BTreeMap<&'static str, u32>>,
) -> Option<(String, Vec<M::Op>)> {
    let asked = std::env::var("PROPTEST_CASES").ok().filter(|_| mutant.is_none());
    let cases = asked.and_then(|asked| asked.parse().ok()).unwrap_or(cases);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 20_000, ..Config::default() };
    let phrases = proptest::collection::vec(M::phrase(), M::LENGTH / 3..=M::LENGTH);
    let histories = phrases.prop_map(|phrases| phrases.into_iter().flatten().take(M::LENGTH).collect::<Vec<_>>());
    let result = TestRunner::new(config).run(&histories, |ops| {
        let kinds = guarded::<M>(&ops, mutant).map_err(TestCaseError::fail)?;
        for kind in kinds {
            *seen.borrow_mut().entry(kind).or_default() += 1;
        }
        Ok(())
    });
    match result {
        Ok(()) => None,
        Err(TestError::Fail(reason, ops)) => Some(shrink_further::<M>(reason.message().to_owned(), ops, mutant)),
        Err(TestError::Abort(reason)) => panic!("{}: {reason}", M::NAME),
    }
}

/// Leaves out single operations, also of a phrase, as long as it still fails.
fn shrink_further<M: Machine>(
    mut reason: String,
    mut ops: Vec<M::Op>,
    mutant: Option<M::Mutant>,
) -> (String, Vec<M::Op>) {
    let mut at = 0;
    while at < ops.len() {
        let mut fewer = ops.clone();
        fewer.remove(at);
        match guarded::<M>(&fewer, mutant) {
            Ok(_) => at += 1,
            Err(why) => (reason, ops, at) = (why, fewer, 0),
        }
    }
    (reason, ops)
}

/// Runs a history; a panic of the machine is a failure like any other.
fn guarded<M: Machine>(ops: &[M::Op], mutant: Option<M::Mutant>) -> Result<Seen, String> {
    catch_unwind(AssertUnwindSafe(|| M::check(ops, mutant))).unwrap_or_else(|panic| Err(message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the machine panicked: {}", text.unwrap_or("with no message"))
}

fn lines<Op: Display>(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("{op}\n")).collect()
}

/// Keeps the shrunk history as a list and says how to run it again.
fn report<M: Machine>(reason: &str, ops: &[M::Op]) -> String {
    let list = lines(ops);
    let mut hasher = DefaultHasher::new();
    list.hash(&mut hasher);
    let name = format!("{}-{:08x}.txt", M::NAME, hasher.finish() & 0xffff_ffff);
    let path = folder().join("failures").join(&name);
    let kept = std::fs::write(&path, format!("# {}\n{list}", reason.replace('\n', "\n# ")));
    let kept = kept.map_or_else(|error| format!("not kept ({error})"), |()| format!("kept as {}", path.display()));
    format!(
        "{}: {reason}\n--- {kept}\n{list}--- again: cargo nextest run -p mcp-steady-core --test histories -E 'test(replays)'\n\
         --- once it is understood, give it a name in core/tests/histories/regressions",
        M::NAME
    )
}
