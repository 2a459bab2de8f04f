//! The table of limits: each row is read from the default value of the type that holds the limit.

mod inner;
mod outer;

use std::fmt::Write as _;
use std::time::Duration;

use steady_core::kernel::tasks::Rate;

/// One limit.
struct Limit {
    /// Type and member, as a program writes them.
    name: &'static str,
    value: String,
    unit: &'static str,
    full: &'static str,
}

/// The limits of one type; its source file is what the heading links to.
struct Group {
    title: &'static str,
    source: &'static str,
    limits: Vec<Limit>,
}

pub(super) fn table() -> String {
    let mut text = String::from("| limit | default | unit | what happens when it is reached |\n|---|---|---|---|\n");
    for Group { title, source, limits } in groups() {
        for Limit { name, value, unit, full } in limits {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "| [`{title}`](../{source})`.{name}` | {value} | {unit} | {full} |");
        }
    }
    text
}

fn groups() -> Vec<Group> {
    let mut groups = vec![
        inner::requests(),
        inner::server(),
        inner::outbound(),
        inner::hub(),
        inner::tasks(),
        inner::worker(),
        inner::calls(),
        inner::options(),
        inner::client(),
        inner::follow(),
        inner::subscriptions(),
        inner::fixed(),
        outer::http(),
        outer::serve(),
        outer::http_client(),
    ];
    groups.extend(outer::stdio());
    groups.extend(outer::ledger());
    groups
}

fn count(name: &'static str, value: impl TryInto<u64>, unit: &'static str, full: &'static str) -> Limit {
    let value = value.try_into().map_or_else(|_| "more than 64 bits".to_owned(), grouped);
    Limit { name, value, unit, full }
}

fn bytes(name: &'static str, value: impl TryInto<u64>, full: &'static str) -> Limit {
    let value = value.try_into().unwrap_or(u64::MAX);
    let (value, unit) = match value {
        value if value >= 1 << 30 && value % (1 << 30) == 0 => (value >> 30, "GiB"),
        value if value >= 1 << 20 && value % (1 << 20) == 0 => (value >> 20, "MiB"),
        value if value >= 1 << 10 && value % (1 << 10) == 0 => (value >> 10, "KiB"),
        value => (value, "bytes"),
    };
    Limit { name, value: grouped(value), unit, full }
}

fn time(name: &'static str, value: impl Into<Option<Duration>>, full: &'static str) -> Limit {
    let Some(value) = value.into() else { return Limit { name, value: "none".into(), unit: "time", full } };
    let (value, unit) = match value.as_millis() {
        ms if ms >= 86_400_000 && ms % 86_400_000 == 0 => (ms / 86_400_000, "days"),
        ms if ms >= 3_600_000 && ms % 3_600_000 == 0 => (ms / 3_600_000, "hours"),
        ms if ms >= 120_000 && ms % 60_000 == 0 => (ms / 60_000, "minutes"),
        ms if ms >= 1000 && ms % 1000 == 0 => (ms / 1000, "seconds"),
        ms => (ms, "milliseconds"),
    };
    Limit { name, value: value.to_string(), unit, full }
}

fn rate(name: &'static str, value: Rate, full: &'static str) -> Limit {
    let value = format!("{}, {} at once", grouped(value.per_second.into()), grouped(value.burst.into()));
    Limit { name, value, unit: "a second", full }
}

/// With a comma between thousands.
pub(super) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
