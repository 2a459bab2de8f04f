//! The golden vectors of the ledger, in a program that has configured `serde_json` in another way.
#![cfg(test)]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../support/golden.rs"]
mod golden;

#[test]
fn the_features_are_on() {
    let value: serde_json::Value = serde_json::from_str(r#"{"b":1e400,"a":1}"#).unwrap();
    assert_eq!(value.to_string().to_lowercase().replace('+', ""), r#"{"b":1e400,"a":1}"#);
}
