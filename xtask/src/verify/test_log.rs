//! Reads the line of each test from what a test runner prints.
//!
//! The two runners have their own parsers, chosen by who ran, because the
//! output of a failing test is printed between the lines and could look like
//! a line of the other kind.

use std::collections::BTreeMap;

/// Each test that ran, by `binary name` or `name`, and whether it passed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestResults {
    passed: BTreeMap<String, bool>,
}

impl TestResults {
    /// Reads the output of `cargo nextest run --status-level all`.
    pub(crate) fn from_nextest(output: &str) -> Self {
        let mut results = Self::default();
        output.lines().filter_map(nextest_line).for_each(|(name, passed)| results.add(name, passed));
        results
    }

    /// Reads the output of `cargo test`.
    pub(crate) fn from_cargo_test(output: &str) -> Self {
        let mut results = Self::default();
        output.lines().filter_map(cargo_test_line).for_each(|(name, passed)| results.add(name, passed));
        results
    }

    /// The tests whose own name starts with `prefix`, and whether they passed.
    pub(crate) fn with_prefix(&self, prefix: &str) -> Vec<(&str, bool)> {
        let all = self.passed.iter().map(|(name, passed)| (name.as_str(), *passed));
        all.filter(|(name, _)| own_name(name).starts_with(prefix)).collect()
    }

    /// How many tests ran.
    pub(crate) fn len(&self) -> usize {
        self.passed.len()
    }

    /// A test that fails once has failed: names may come twice, from a retry,
    /// from the summary, or from two test binaries.
    fn add(&mut self, name: &str, passed: bool) {
        let all = self.passed.entry(name.to_string()).or_insert(true);
        *all &= passed;
    }
}

/// The last part of `binary path::to::name`.
fn own_name(name: &str) -> &str {
    name.rsplit([':', ' ']).next().unwrap_or(name)
}

/// `        PASS [   0.009s] (1/4) package::binary path::name`; anything but a
/// pass, a leak of handles and the news about a running test is a failure.
fn nextest_line(line: &str) -> Option<(&str, bool)> {
    let (status, rest) = line.trim_start().split_once(" [")?;
    if !status.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || " /+-".contains(c)) {
        return None;
    }
    let (time, rest) = rest.split_once("] ")?;
    let timed = time.trim().strip_prefix('>').unwrap_or(time).trim().strip_suffix('s')?;
    timed.trim().parse::<f64>().ok()?;
    let mut words = rest.split_whitespace();
    let mut binary = words.next()?;
    if binary.starts_with('(') {
        // `(1/4)`, or `( 1/40)` in a longer run.
        while !binary.ends_with(')') {
            binary = words.next()?;
        }
        binary = words.next()?;
    }
    let at = rest.find(binary)?;
    let name = rest[at..].trim_end();
    match status.trim() {
        "SLOW" | "START" | "SKIP" | "SETUP PASS" => None,
        "PASS" | "LEAK" => Some((name, true)),
        _ => Some((name, false)),
    }
}

/// `test path::name ... ok`, also with ` - should panic` and with the time of
/// a doc test; an ignored test did not run.
fn cargo_test_line(line: &str) -> Option<(&str, bool)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    let passed = result == "ok" || result.starts_with("ok <");
    let ignored = result.starts_with("ignored");
    (!ignored).then_some((name, passed))
}

#[cfg(test)]
mod tests {
    use super::TestResults;

    const NEXTEST: &str = "\
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.41s
    Starting 6 tests across 2 binaries (1 test skipped)
        PASS [   0.009s] (1/6) nx tests::statement_01_a
        SKIP [         ] ( 1/6) nx tests::statement_03_b
        FAIL [   0.147s] (2/6) nx::race tests::statement_01_b
  stdout ───

    running 1 test
    test tests::statement_07_told_by_the_test ... ok

        SLOW [> 60.000s] (─────────) nx tests::statement_02_b
        PASS [  61.142s] (3/6) nx tests::statement_02_b
     SIGABRT [   0.009s] (4/6) nx tests::statement_04_abort
        LEAK [   0.109s] ( 5/60) nx tests::statement_05_leak
     TIMEOUT [  90.000s] nx tests::statement_06_hangs
  TRY 1 FAIL [   0.009s] nx tests::statement_08_flaky
  TRY 2 PASS [   0.009s] nx tests::statement_08_flaky
────────────
     Summary [   0.158s] 6 tests run: 2 passed, 2 failed, 1 skipped
        FAIL [   0.147s] (2/6) nx::race tests::statement_01_b
";

    #[test]
    fn nextest_lines_are_read() {
        let results = TestResults::from_nextest(NEXTEST);
        let one = [("nx tests::statement_01_a", true), ("nx::race tests::statement_01_b", false)];
        assert_eq!(results.with_prefix("statement_01_"), one);
        assert_eq!(results.with_prefix("statement_02_"), [("nx tests::statement_02_b", true)]);
        assert_eq!(results.with_prefix("statement_03_"), [], "a skipped test did not run");
        assert_eq!(results.with_prefix("statement_04_"), [("nx tests::statement_04_abort", false)]);
        assert_eq!(results.with_prefix("statement_05_"), [("nx tests::statement_05_leak", true)]);
        assert_eq!(results.with_prefix("statement_06_"), [("nx tests::statement_06_hangs", false)]);
        assert_eq!(results.with_prefix("statement_07_"), [], "a test cannot speak for another");
        assert_eq!(results.with_prefix("statement_08_"), [("nx tests::statement_08_flaky", false)]);
        assert_eq!(results.len(), 7);
    }

    const CARGO_TEST: &str = "\
     Running unittests src/lib.rs (target/debug/deps/nx-72ee6507dc2c5010)

running 4 tests
test tests::statement_01_a ... ok
test tests::statement_01_b ... FAILED
test tests::statement_02_b - should panic ... ok
test tests::statement_03_b ... ignored
test tests::statement_04_b ... ignored, too slow

---- tests::statement_01_b stdout ----
    test tests::statement_05_b ... ok

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.12s
   Doc-tests nx

running 1 test
test src/lib.rs - statement_06_doc (line 8) ... ok
";

    #[test]
    fn cargo_test_lines_are_read() {
        let results = TestResults::from_cargo_test(CARGO_TEST);
        let one = [("tests::statement_01_a", true), ("tests::statement_01_b", false)];
        assert_eq!(results.with_prefix("statement_01_"), one);
        assert_eq!(results.with_prefix("statement_02_"), [("tests::statement_02_b", true)]);
        for absent in ["statement_03_", "statement_04_", "statement_05_", "statement_06_"] {
            assert_eq!(results.with_prefix(absent), [], "{absent}");
        }
        assert_eq!(results.len(), 4);
    }

    #[test]
    fn a_prefix_is_that_of_the_own_name() {
        let results = TestResults::from_cargo_test("test statement_01_module::other ... ok\n");
        assert_eq!(results.with_prefix("statement_01_"), []);
        assert_eq!(results.with_prefix("other").len(), 1);
    }
}
