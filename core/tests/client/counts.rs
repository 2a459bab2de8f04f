//! What the client counts.

use steady_core::id::WireId;
use steady_core::retry::Contract;

use super::{answer, drain, end, ms, options, start, stdio};

#[test]
fn an_answer_is_late_only_if_its_id_was_sent() {
    let mut client = stdio();
    let (_, wire) = start(&mut client, ms(0), options(Contract::Safe));
    let never_sent = WireId::new(wire.number() + 1);
    client.handle_input(ms(1), answer(never_sent));
    assert_eq!((client.counters().late_answers, client.counters().unknown_ids), (0, 1));
    client.handle_input(ms(2), answer(wire));
    let _finished = end(&drain(&mut client));
    client.handle_input(ms(3), answer(wire));
    assert_eq!((client.counters().late_answers, client.counters().unknown_ids), (1, 1));
}
