//! Cancellation and clocks: rules C1, C2, T1 to T5, H6, H7.

use super::design::{CancelWay, Resets, TransportKind};
use super::finding::{Area, Notes};
use super::{Design, Finding, Fixture};

const CLOSED: Fixture = Fixture {
    name: "cancel-by-post",
    failure: Some("cancel-by-post"),
    script: "transport http\ncall A\nwait 20ms\ncancel A\nwait 20ms\ncomplete A\n",
    ends: "client: cancelled; final response: no; signal: stream closed; ignored: the late completion (by the server)",
};
const IN_SILENCE: Fixture = Fixture {
    name: "cancelled-in-silence",
    failure: None,
    script: "call A\nwait 20ms\ncancel A\nwait 20ms\ncomplete A\n",
    ends: "client: cancelled; final response: no; signal: notifications/cancelled; ignored: the late completion (by the server)",
};
const REPORTS: Fixture = Fixture {
    name: "reports-and-lives",
    failure: None,
    script: "call A idle 30s max 5m\nwait 25s\nprogress A\nwait 25s\nprogress A\nwait 25s\ncomplete A\n",
    ends: "client: completed; final response: yes; signal: none; ignored: nothing",
};
const PAST_MAXIMUM: Fixture = Fixture {
    name: "progress-extends-everything",
    failure: Some("progress-extends-everything"),
    script: "call A idle 30s max 1m\nwait 25s\nprogress A\nwait 25s\nprogress A\nwait 9s\nprogress A\nwait 2s\ncomplete A\n",
    ends: "client: maximum timeout; final response: no; signal: notifications/cancelled; ignored: the late completion (by the server)",
};

pub(super) fn check(design: &Design, findings: &mut Vec<Finding>) {
    let mut notes = Notes::new(Area::Races, findings);
    cancellation(design, &mut notes);
    clocks(design, &mut notes);
    stream(design, &mut notes);
}

fn cancellation(design: &Design, notes: &mut Notes<'_>) {
    let (kind, way) = (design.transport.kind, design.transport.cancel);
    let posted = kind == TransportKind::Http && way == Some(CancelWay::Notify);
    notes.blocks(
        posted,
        "C1, H8",
        "the client POSTs a cancellation: over HTTP that message cancels nothing, and the work goes on",
        "close the response stream of the request; that is the cancellation",
    );
    notes.shown_by(posted, CLOSED);
    notes.blocks(
        kind == TransportKind::Stdio && way == Some(CancelWay::CloseStream),
        "C2, C6",
        "on stdio no request has a stream of its own: closing the pipe ends every other request, too",
        "send notifications/cancelled with the request's id",
    );
    notes.blocks(
        way == Some(CancelWay::None),
        "T1",
        "the client gives up without telling the server: the work goes on for nobody",
        "cancel in the transport's own way at every time-out and at every drop",
    );
    notes.blocks(
        !design.timeouts.settles_locally,
        "C3, C4",
        "the client waits for the server to confirm a cancellation: after an accepted one nothing is ever sent",
        "settle the caller at once, and ignore what comes late",
    );
    notes.shown_by(!design.timeouts.settles_locally, IN_SILENCE);
}

fn clocks(design: &Design, notes: &mut Notes<'_>) {
    let limits = &design.timeouts;
    notes.blocks(
        limits.max.is_none(),
        "T2",
        "there is no maximum: a server that reports for ever keeps the call for ever",
        "set timeouts.max; progress never extends it",
    );
    notes.blocks(
        limits.progress_resets == Resets::Both,
        "T2, T5",
        "progress resets the maximum: then it is none",
        "let progress reset the idle clock alone",
    );
    notes.shown_by(limits.progress_resets == Resets::Both, PAST_MAXIMUM);
    notes.warns(
        limits.idle.is_none(),
        "T1",
        "there is no idle limit: a silent server is noticed at the maximum only",
        "set timeouts.idle",
    );
    notes.warns(
        limits.idle.is_some() && limits.progress_resets != Resets::None && !limits.progress_token,
        "T4",
        "progress is to reset the idle clock, but the client sends no progressToken, so none will come",
        "send a progressToken with every call",
    );
    notes.warns(
        limits.idle.is_some() && limits.progress_resets == Resets::None,
        "T2",
        "progress resets nothing: long work is cut at the idle limit although it reports",
        "let progress reset the idle clock",
    );
    notes.shown_by(limits.idle.is_some() && limits.progress_resets == Resets::None, REPORTS);
    notes.warns(
        limits.idle >= limits.max && limits.idle.is_some() && limits.max.is_some(),
        "T1",
        "the idle limit is not below the maximum, so it never acts",
        "set timeouts.idle well below timeouts.max",
    );
    notes.warns(
        matches!((limits.server, limits.max), (Some(server), Some(client)) if server > client),
        "C8",
        "the server works longer than any client waits",
        "set timeouts.server to the client's maximum or less, or make it a durable task",
    );
}

fn stream(design: &Design, notes: &mut Notes<'_>) {
    let transport = &design.transport;
    notes.blocks(
        transport.last_event_id,
        "H7",
        "the client counts on Last-Event-ID: in this revision nothing is resumed, so what was lost stays lost",
        "send a new request under a new id, and read afresh what a subscription covers",
    );
    let Some(proxy) = &transport.proxy else { return };
    let http = transport.kind == TransportKind::Http;
    notes.blocks(
        http && proxy.buffers,
        "H6",
        "the proxy holds the response back: progress arrives with the answer, and the idle limit cuts long work",
        "switch its buffering off for this path (X-Accel-Buffering: no does it for nginx)",
    );
    let quiet = transport.keep_alive.is_zero() || proxy.idle_timeout.is_some_and(|idle| idle <= transport.keep_alive);
    notes.blocks(
        http && proxy.idle_timeout.is_some() && quiet,
        "H6",
        "the proxy cuts a quiet stream before a comment is due: the call's outcome is then unknown",
        "set transport.keep_alive below half of the proxy's idle timeout",
    );
}
