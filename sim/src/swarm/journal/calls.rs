//! How calls begin and end.

use std::time::Duration;

use steady_core::kernel::client::{CallError, Raw};
use steady_core::retry::{Safety, SendPhase, Verdict, verdict};
use steady_core::time::Instant;

use super::super::script::{Shape, Tool};
use super::super::store::Receipt;
use super::{Check, Journal, Order, Seen, name};

/// What a result says, as far as the journal reads it.
#[derive(serde::Deserialize)]
struct Answer {
    #[serde(rename = "structuredContent")]
    receipt: Option<Receipt>,
}

impl Journal {
    /// A client starts a call. Its number.
    pub(in super::super) fn starts(&mut self, client: usize, call: u32, tool: Tool, safety: Safety) -> usize {
        let max_at = self.now + Duration::from_millis(self.world.max_ms);
        self.count(match tool {
            Tool::Read { .. } => "tool: read",
            Tool::Add { .. } => "tool: add",
            Tool::AddOnce { .. } => "tool: add-once",
            Tool::Work { .. } => "tool: work",
            Tool::Flood { .. } => "tool: flood",
            Tool::Job { .. } => "tool: job",
            Tool::Hang => "tool: hang",
            Tool::Deaf { .. } => "tool: deaf",
            Tool::Stubborn { .. } => "tool: stubborn",
            Tool::Fail => "tool: fail",
            Tool::Panic => "tool: panic",
        });
        self.orders.push(Order {
            client,
            name: call,
            tool,
            safety,
            max_at,
            attempts: Vec::new(),
            deliveries: 0,
            effects: 0,
            ended: None,
            settled: false,
            in_calm: false,
        });
        self.orders.len() - 1
    }

    /// A call that is made when all is healed: it has to be answered.
    pub(in super::super) fn is_in_calm(&mut self, order: usize) {
        if let Some(order) = self.orders.get_mut(order) {
            order.in_calm = true;
        }
    }

    /// A call has ended.
    pub(in super::super) fn ended(&mut self, order: usize, outcome: &Result<Raw, CallError>) {
        let kind = kind(outcome);
        if !self.settle(order, kind) {
            return;
        }
        let Some(state) = self.orders.get(order).cloned() else { return };
        let now = self.now;
        self.demand(now <= state.max_at, Check::Deadline, || {
            format!("call {} ended at {now}, its maximum was {}", name(&state), state.max_at)
        });
        let refusal = if let Err(CallError::Peer(error)) = outcome { refusal(error.data.as_deref()) } else { None };
        // What the ledger says of a key is the last word, too, and an error of anything else is none.
        let settled = outcome.is_ok() || refusal.is_some_and(|refusal| self.may_refuse(&state, refusal));
        if let Some(order) = self.orders.get_mut(order) {
            order.settled = settled;
        }
        self.demand(settled || !state.in_calm, Check::AnsweredInCalm, || {
            format!("call {} ended as {kind} though all is well: {outcome:?}", name(&state))
        });
        match outcome {
            Ok(result) => self.answered(order, &state, result),
            Err(CallError::Peer(_)) if refusal == Some("mismatch") => self.check_arguments(&state, true),
            Err(CallError::Peer(_)) => {}
            Err(error) => self.check_matrix(&state, kind, error),
        }
    }

    /// A call went away with whoever waited for it.
    pub(in super::super) fn dropped(&mut self, order: usize, with_client: bool) {
        self.settle(order, if with_client { "gone with its client" } else { "dropped" });
    }

    fn settle(&mut self, order: usize, kind: &'static str) -> bool {
        let now = self.now;
        let Some(state) = self.orders.get_mut(order) else { return false };
        let before = state.ended.replace(kind);
        let call = name(state);
        self.trace.note(now, Seen::Ended, order as u64, 0, format!("{call}: {kind}").as_bytes());
        self.count(kind);
        self.demand(before.is_none(), Check::OneOutcome, || format!("call {call} ended as {before:?}, then as {kind}"));
        before.is_none()
    }

    fn answered(&mut self, order: usize, state: &Order, result: &Raw) {
        let (Tool::Add { amount } | Tool::AddOnce { amount, .. }) = state.tool else { return };
        let Ok(Answer { receipt: Some(receipt) }) = result.parse::<Answer>() else {
            return self.broken(Check::StableAnswer, format!("call {} has no receipt: {}", name(state), result.get()));
        };
        if !receipt.refused {
            self.acknowledged.push((order, receipt));
        }
        let Tool::AddOnce { key, .. } = state.tool else { return };
        self.check_arguments(state, false);
        let facts = self.keys.entry(key).or_default();
        let (before, _) = *facts.answer.get_or_insert((receipt, true));
        self.demand(before == receipt, Check::StableAnswer, || {
            format!("key {key} was answered with {before:?}, and now with {receipt:?} (amount {amount})")
        });
    }

    /// Whether the ledger may refuse a key of this call for ever: what it says of arguments is checked beside.
    fn may_refuse(&self, state: &Order, refusal: &str) -> bool {
        let Tool::AddOnce { key, .. } = state.tool else { return false };
        let used = self.keys.get(&key).is_some_and(|facts| facts.amount.is_some());
        if refusal == "too old" { self.world.horizon_ms > 0 } else { used }
    }

    /// Whether a key was refused for its arguments, and rightly so; or answered, and rightly so.
    fn check_arguments(&mut self, state: &Order, refused: bool) {
        let Tool::AddOnce { key, amount } = state.tool else { return };
        let first = self.keys.entry(key).or_default().amount;
        let other = first.is_some_and(|first| first != amount);
        self.demand(refused == other, Check::KeyArguments, || {
            let how = if refused { "refused to" } else { "answered for" };
            format!("key {key} was {how} amount {amount}, and was first used for {first:?}")
        });
    }

    fn check_matrix(&mut self, state: &Order, kind: &'static str, error: &CallError) {
        let sent = state.attempts.iter().filter(|attempt| !attempt.refused).count();
        let call = name(state);
        let unsent = matches!(error, CallError::NeverSent { .. } | CallError::Full { .. } | CallError::Closed(_));
        self.demand(!unsent || sent == 0, Check::Matrix, || {
            format!("call {call} ended as {kind}, and left its client {sent} times")
        });
        // Over HTTP each attempt is seen; of a line link only whole messages are, and half of one can be what left.
        if matches!(error, CallError::Unknown { .. }) && self.world.clients.get(state.client) == Some(&Shape::Http) {
            self.demand(sent > 0, Check::Matrix, || format!("call {call} ended as {kind}, and never left its client"));
            let (attempts, most) = (state.attempts.len(), usize::from(self.world.attempts));
            self.demand(state.safety == Safety::Unsafe || attempts >= most, Check::Matrix, || {
                format!("call {call} ({:?}) ended as {kind} after {attempts} attempts of {most}", state.safety)
            });
        }
        let Some(found) = error.verdict() else { return };
        if sent > 0 && !matches!(error, CallError::Full { .. } | CallError::FullBytes { .. } | CallError::Closed(_)) {
            let right = verdict(state.safety, SendPhase::MaybeSent);
            self.demand(found == right, Check::Matrix, || {
                format!("call {call} ({:?}) ended as {kind} with verdict {found}, not {right}", state.safety)
            });
        }
        self.count(match (state.safety, found) {
            (Safety::Safe, _) => "verdict: safe",
            (Safety::Conditional, _) => "verdict: conditional",
            (Safety::Unsafe, Verdict::ReconcileFirst) => "verdict: unsafe, reconcile first",
            (Safety::Unsafe, Verdict::Retry | Verdict::RetrySameKey) => "verdict: unsafe, never sent",
        });
    }

    /// Keys of calls that have ended without a last word: what an application asks about again.
    pub(in super::super) fn open_keys(&self) -> Vec<(usize, u32, u32)> {
        let mut open = std::collections::BTreeMap::new();
        for order in &self.orders {
            let Tool::AddOnce { key, amount } = order.tool else { continue };
            if !order.settled {
                open.entry(key).or_insert((order.client, key, amount));
            }
        }
        open.into_values().collect()
    }

    /// The time by which each call has to have ended.
    pub(in super::super) fn last_deadline(&self) -> Instant {
        let open = self.orders.iter().filter(|order| order.ended.is_none());
        open.map(|order| order.max_at).max().unwrap_or(self.now)
    }
}

/// What the ledger refuses a key for, if that is what an error says.
fn refusal(data: Option<&str>) -> Option<&'static str> {
    ["mismatch", "expired", "too old"].into_iter().find(|kind| data.is_some_and(|data| data.contains(kind)))
}

fn kind(outcome: &Result<Raw, CallError>) -> &'static str {
    match outcome {
        Ok(_) => "answered",
        Err(CallError::Peer(_)) => "answered: error",
        Err(CallError::Cancelled { .. }) => "cancelled",
        Err(CallError::IdleTimeout { .. }) => "idle timeout",
        Err(CallError::MaxTimeout { .. }) => "maximum timeout",
        Err(CallError::NeverSent { .. }) => "never sent",
        Err(CallError::Unknown { .. }) => "unknown",
        Err(CallError::Full { .. } | CallError::FullBytes { .. }) => "refused: full",
        Err(CallError::Closed(_)) => "refused: closed",
        Err(_) => "refused: other",
    }
}
