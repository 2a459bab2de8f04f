//! What the ledger did.

use std::collections::BTreeMap;

use super::super::script::Tool;
use super::super::store::{Effect, Entry, Verdict, Wrote};
use super::{Check, Journal, Seen};

impl Journal {
    /// A transaction has ended.
    pub(in super::super) fn executed(&mut self, entry: &Entry<'_>, verdict: &Verdict, wrote: Wrote) {
        let text = format!("order {} key {:?} amount {}: {verdict:?}", entry.order, entry.key, entry.amount);
        self.trace.note(self.now, Seen::Ledger, wrote as u64, 0, text.as_bytes());
        self.count(match verdict {
            Verdict::Fresh(receipt) if receipt.refused => "ledger: refused by the business",
            Verdict::Fresh(_) => "ledger: fresh",
            Verdict::Replayed(_) => "ledger: replayed",
            Verdict::Mismatch => "ledger: mismatch",
            Verdict::Expired => "ledger: expired",
            Verdict::TooOld => "ledger: key too old",
            Verdict::Died => "ledger: died in the transaction",
            Verdict::Failed(_) => "ledger: failed",
        });
        if let Verdict::Failed(why) = verdict {
            self.broken(Check::DurableAnswer, format!("the ledger failed: {why}"));
        }
        let fresh = wrote != Wrote::Nothing || matches!(verdict, Verdict::Fresh(_));
        if let Some(key) = entry.key.filter(|_| fresh) {
            self.keys.entry(key).or_default().amount.get_or_insert(entry.amount);
        }
        if wrote == Wrote::Effect {
            self.effect(entry);
        }
    }

    /// An effect is durable.
    fn effect(&mut self, entry: &Entry<'_>) {
        let &Entry { order, key, .. } = entry;
        if let Some(key) = key {
            let facts = self.keys.entry(key).or_default();
            facts.effects += 1;
            let effects = facts.effects;
            self.demand(effects == 1, Check::OneEffect, || format!("key {key} has {effects} effects"));
        }
        let Some(state) = self.orders.get_mut(order) else { return };
        state.effects += 1;
        let (effects, deliveries, tool) = (state.effects, state.deliveries, state.tool);
        let call = super::name(state);
        let most = if matches!(tool, Tool::AddOnce { .. }) { 1 } else { deliveries };
        self.demand(effects <= most, Check::OneEffect, || {
            format!("call {call} has {effects} effects, of {deliveries} deliveries: {tool:?}")
        });
    }

    /// The ledger at the end, read from what is durable.
    pub(in super::super) fn audit(&mut self, effects: &[Effect]) {
        let by_number: BTreeMap<i64, &Effect> = effects.iter().map(|effect| (effect.number, effect)).collect();
        for (order, receipt) in std::mem::take(&mut self.acknowledged) {
            let Some(state) = self.orders.get(order) else { continue };
            let (call, tool) = (super::name(state), state.tool);
            let amount = match tool {
                Tool::Add { amount } | Tool::AddOnce { amount, .. } => amount,
                Tool::Read { .. }
                | Tool::Work { .. }
                | Tool::Flood { .. }
                | Tool::Hang
                | Tool::Deaf { .. }
                | Tool::Stubborn { .. }
                | Tool::Fail
                | Tool::Job { .. }
                | Tool::Panic => 0,
            };
            let found = by_number.get(&receipt.number).is_some_and(|effect| effect.amount == amount);
            self.demand(found, Check::DurableAnswer, || {
                format!("call {call} was told effect {}, which the ledger does not have: {tool:?}", receipt.number)
            });
        }
        let mut by_key: BTreeMap<u32, u32> = BTreeMap::new();
        effects.iter().filter_map(|effect| effect.key).for_each(|key| *by_key.entry(key).or_default() += 1);
        for (key, count) in by_key {
            self.demand(count == 1, Check::OneEffect, || format!("the ledger has {count} effects of key {key}"));
        }
    }
}
