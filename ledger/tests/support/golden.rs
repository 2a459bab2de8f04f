//! What files hold, byte for byte. It must not depend on how a program has configured `serde_json`: features of a crate are
//! those that any crate of the program asks for. `tests/features` runs this with all of them that change numbers or order.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use steady_ledger::{Executed, Key, Ledger, LedgerError, Options, Request, Scope, Secret, rusqlite};

/// Arguments, and the fingerprint in the file under a secret of 32 sevens.
const FINGERPRINTS: [(&str, &str); 4] = [
    ("{}", "2da4571187f1cf41015f294b3e790b69ad8f78ec4614f08b8f9e24ae12e905e3"),
    (r#"{"sku":"a-1","quantity":2}"#, "5e7bb0070fc47cc7594ee825be24289d1a219f72e030927b73418057cbef92e0"),
    (
        r#"{"n":[18446744073709551615,1.5,9223372036854775807,-0.0,1e2],"é":{"b":null,"a":true}}"#,
        "e254c5d9c4af1bd7f715a9d8757803da8c01cd2fa770d06b3868db374e8f04f8",
    ),
    (
        r#"{"z":0.1,"a":123456789012345.678,"m":-9007199254740993}"#,
        "27e478e93a028acda00c5a20f86b4bf2eba82c813f68611b294929acbc1c1332",
    ),
];

/// The same arguments as the last ones, spelt in another way.
const RESPELT: &str = r#" { "m" : -9007199254740993, "a" : 123456789012345678e-3, "z" : 1E-1 } "#;

/// A result, with its fields out of order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Booked {
    z: f64,
    a: u64,
    #[serde(flatten)]
    more: More,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct More {
    m: i64,
    note: Option<String>,
}

const BOOKED: &str = r#"{"z":0.1,"a":18446744073709551615,"m":-9007199254740993,"note":"é"}"#;

struct File {
    dir: tempfile::TempDir,
    ledger: Ledger,
}

impl File {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { secret: Some(Secret::new([7; 32])), ..Options::default() };
        let ledger = Ledger::open(dir.path().join("shop.db"), options).unwrap();
        Self { dir, ledger }
    }

    fn stored(&self, sql: &str) -> Vec<String> {
        let conn = rusqlite::Connection::open(self.dir.path().join("shop.db")).unwrap();
        let mut statement = conn.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    fn call<T>(&self, key: &str, arguments: &str, result: &T) -> Result<Executed<T>, LedgerError>
    where
        T: Clone + Send + Serialize + for<'a> Deserialize<'a> + 'static,
    {
        let (scope, key, result) = (Scope::new("tenant-1", "reserve"), Key::parse(key).unwrap(), result.clone());
        self.ledger.execute(&Request::new(&scope, &key, arguments), move |_| Ok(result.clone()))
    }
}

#[test]
fn golden_fingerprints_are_those_of_every_build() {
    let file = File::new();
    for (at, (arguments, _)) in FINGERPRINTS.iter().enumerate() {
        assert!(!file.call(&format!("order-{at}"), arguments, &at).unwrap().is_replay());
    }
    let stored = file.stored("SELECT lower(hex(fingerprint)) FROM ledger_key ORDER BY key");
    assert_eq!(stored, FINGERPRINTS.map(|(_, hex)| hex));
    assert_eq!(file.call("order-3", RESPELT, &0).unwrap(), Executed::Replayed(3));
    for refused in [r#"{"n":18446744073709551616}"#, r#"{"n":1e400}"#, r#"{"n":1,"n":1}"#] {
        let error = file.call("order-4", refused, &0).unwrap_err();
        assert!(matches!(error, LedgerError::InvalidArguments(_)), "{refused}: {error:?}");
    }
}

#[test]
fn golden_results_are_those_of_every_build() {
    let file = File::new();
    let booked: Booked = serde_json::from_str(BOOKED).unwrap();
    assert_eq!(file.call("order-1", "{}", &booked).unwrap(), Executed::Fresh(booked.clone()));
    assert_eq!(file.call("order-1", "{}", &booked).unwrap(), Executed::Replayed(booked));
    assert_eq!(file.stored("SELECT CAST(body AS TEXT) FROM ledger_result"), [BOOKED]);
    // The order is a matter of the build, what it means is not.
    let value = json!({ "z": [0.1, u64::MAX, i64::MIN, 1e300], "a": { "c": null, "b": "é" } });
    assert_eq!(file.call("order-2", "{}", &value).unwrap(), Executed::Fresh(value.clone()));
    assert_eq!(file.call("order-2", "{}", &Value::Null).unwrap(), Executed::Replayed(value));
    let asks = json!({ "resultType": "input_required", "inputRequests": {} });
    assert!(matches!(file.call("order-3", "{}", &asks), Err(LedgerError::NotFinal)));
}
