//! Cancellation against completion, in both orders, on one transport: the shipped client and the shipped kernel.

use std::path::Path;

use serde_json::json;
use steady_core::client::Transport;

use super::{Failure, Record};
use crate::demo::Section;
use crate::experiment::{self, Found, Row, Script, Side, Signal};

pub(super) fn stdio(_: &Path) -> Result<Record, Failure> {
    record(Transport::Stdio)
}

pub(super) fn http(_: &Path) -> Result<Record, Failure> {
    record(Transport::Http)
}

/// The answer of `complete, then cancel` is on its way when the cancellation sets out.
const ORDERS: [(&str, &str); 2] = [
    ("cancel, then complete", "latency 5ms\ncall A\nwait 20ms\ncancel A\nwait 20ms\ncomplete A\n"),
    ("complete, then cancel", "latency 5ms\ncall A\nwait 20ms\ncomplete A\nwait 2ms\ncancel A\n"),
];

fn record(transport: Transport) -> Result<Record, Failure> {
    let (name, signal) = match transport {
        Transport::Stdio => ("stdio", Signal::Notification),
        Transport::Http => ("HTTP", Signal::ClosedStream),
    };
    let mut section = Section::new(format!("cancellation and completion race, {name}"));
    let mut races = Vec::new();
    for (order, text) in ORDERS {
        let script = Script { transport, ..Script::parse(text)? };
        let Found { timeline, rows, .. } = experiment::run(&script)?;
        let row = rows.first().ok_or("the experiment has no row")?;
        judge(&mut section, order, row, signal);
        section.events.extend(timeline.iter().map(|event| format!("{order}: {event}")));
        races.push(json!({"order": order, "script": script.to_string(), "row": row, "timeline": timeline}));
    }
    Ok(Record { section, data: json!({"transport": name, "races": races}) })
}

fn judge(section: &mut Section, order: &str, row: &Row, signal: Signal) {
    let cancelled_first = order.starts_with("cancel");
    section.claim(format!("{order}: the caller is settled as cancelled"), row.client, "cancelled");
    section.claim(format!("{order}: the signal is that of the transport"), row.signal, signal);
    section.claim(format!("{order}: a final response crosses the wire"), row.response, !cancelled_first);
    let ignored: Vec<(Side, &str)> = row.ignored.iter().map(|ignored| (ignored.by, ignored.event)).collect();
    if cancelled_first {
        let expected = vec![(Side::Server, "the late completion")];
        section.claim(format!("{order}: the server suppresses the completion"), ignored, expected);
    } else {
        let late = ignored.contains(&(Side::Client, "the late response"));
        section.claim(format!("{order}: the client ignores the response that was on its way"), late, true);
    }
}
