//! The ten requirements of the inventory example, each as a test of its own.

#[path = "../../examples/reserve_inventory.rs"]
#[expect(dead_code, reason = "the example's own main does not run here")]
mod example;

use example::REQUIREMENTS;

/// Runs the requirement of this number, counted from 1.
fn holds(number: usize) {
    let dir = tempfile::tempdir().unwrap();
    let (what, show) = REQUIREMENTS[number - 1];
    if let Err(why) = show(dir.path()) {
        panic!("{what}: {why}");
    }
}

#[test]
fn inventory_01_the_key_is_bound_to_sku_quantity_tenant_and_operation() {
    holds(1);
}

#[test]
fn inventory_02_the_same_key_and_arguments_return_the_first_reservation() {
    holds(2);
}

#[test]
fn inventory_03_a_changed_quantity_fails_without_a_second_reservation() {
    holds(3);
}

#[test]
fn inventory_04_a_reservation_whose_response_was_lost_is_reconciled_by_key() {
    holds(4);
}

#[test]
fn inventory_05_no_secret_is_stored_or_printed() {
    holds(5);
}

#[test]
fn inventory_06_without_a_key_automatic_retry_is_off() {
    holds(6);
}

#[test]
fn inventory_07_a_lost_subscription_refetches_before_the_next_decision() {
    holds(7);
}

#[test]
fn inventory_08_two_connections_at_a_barrier_make_one_reservation() {
    holds(8);
}

#[test]
fn inventory_09_a_changed_copy_leaves_the_stored_result_as_it_was() {
    holds(9);
}

#[test]
fn inventory_10_a_reservation_is_found_by_key_after_a_reopen() {
    holds(10);
}
