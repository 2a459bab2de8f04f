//! What the client counts.

use steady_core::client::{CallError, CallOptions, Config, Transport};
use steady_core::id::WireId;
use steady_core::retry::{BudgetConfig, Contract};

use super::{answer, client, config, drain, end, ms, options, start, stdio};

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

#[test]
fn a_call_that_repeats_another_asks_for_a_retry_and_earns_none() {
    let budget = BudgetConfig { earn_permille: 1000, reserve_per_second: 0, capacity: 2 };
    let mut client = client(Config { budget, ..config(Transport::Stdio) });
    let repeat = || CallOptions { repeats: true, ..options(Contract::Safe) };
    let mut call = |options| client.call(ms(0), "payload", options).map(drop);
    for _ in 0..2 {
        assert_eq!([call(repeat()), call(repeat())], [Ok(()), Ok(())]);
        assert_eq!(call(repeat()), Err(CallError::NoBudget));
        // Two other calls earn two retries.
        assert_eq!([call(options(Contract::Safe)), call(options(Contract::Safe))], [Ok(()), Ok(())]);
    }
    assert_eq!(client.in_flight(), 8, "what is refused is not there");
}
