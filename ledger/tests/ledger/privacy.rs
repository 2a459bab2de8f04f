//! Arguments leave no trace, and nothing that is printed holds a secret or a result.

use std::error::Error;

use steady_ledger::{Message, Secret};

use super::*;

const SECRET: &str = "4000-1234-SECRET";

/// An error with all its causes, as a log would show it.
fn text(error: &LedgerError) -> String {
    let mut text = format!("{error} {error:?}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(" {error} {error:?}"));
        cause = error.source();
    }
    text
}

#[test]
fn a_secret_in_the_arguments_is_found_nowhere() {
    let shop = Shop::open();
    let (scope, order) = (scope(), key("order-7"));
    let run = |args: &str| shop.ledger.execute(&Request::new(&scope, &order, args), reserve);
    let args = format!(r#"{{"card":"{SECRET}","units":2}}"#);
    assert!(!format!("{:?}", Request::new(&scope, &order, &args)).contains(SECRET));
    let mut seen =
        vec![format!("{:?}", run(&args).unwrap()), serde_json::to_string(&run(&args).unwrap().into_inner()).unwrap()];

    let broken = [
        format!(r#"{{"card":"{SECRET}","units":3}}"#),
        format!(r#"{{"card":"{SECRET}"#),
        format!(r#"{{"card":"{SECRET}","card":"{SECRET}"}}"#),
        format!(r#"{{"card":["{SECRET}",1e400]}}"#),
        format!(r#"["{SECRET}"]"#),
    ];
    seen.extend(broken.iter().map(|args| text(&run(args).unwrap_err())));
    let fails = |effect: fn(&mut EffectTx<'_>) -> Result<Reserved, EffectError<Reserved>>| {
        text(&shop.ledger.execute(&Request::new(&scope, &key("order-8"), &args), effect).unwrap_err())
    };
    seen.push(fails(|_| std::panic::resume_unwind(Box::new(SECRET))));
    seen.push(fails(|tx| Ok(tx.execute("COMMIT", []).map(|_| Reserved { id: 0, notes: vec![SECRET.into()] })?)));
    for text in &seen {
        assert!(!text.contains(SECRET), "{text}");
    }

    let mut bytes = 0;
    for entry in std::fs::read_dir(shop.dir.path()).unwrap() {
        let content = std::fs::read(entry.unwrap().path()).unwrap();
        bytes += content.len();
        assert!(!content.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()));
    }
    assert!(bytes > 4096, "the write-ahead log was looked at");
}

#[test]
fn results_and_secrets_are_not_printed() {
    let shop = Shop::open_with(Options { secret: Some(Secret::new([0x41; 32])), ..options() });
    let (scope, order, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let result = |_: &mut EffectTx<'_>| Ok(SECRET.to_owned());
    let request = Request::new(&scope, &order, &args);
    let printed = [
        format!("{:?}", shop.ledger.execute(&request, result).unwrap()),
        format!("{:?}", shop.ledger.execute(&request, result).unwrap()),
        format!("{:?}", shop.ledger.execute_keyless(&scope, result).unwrap()),
        // The stored result is a text, not a number: its text would stand in a parser's complaint.
        text(&shop.ledger.execute(&request, |_| Ok(7)).unwrap_err()),
        format!("{:?} {:?}", shop.ledger, Options { secret: Some(Secret::new([0x41; 32])), ..options() }),
    ];
    for text in printed {
        assert!(!text.contains(SECRET) && !text.contains("65, 65") && !text.contains("AAAA"), "{text}");
    }
}

#[test]
fn what_an_effect_is_given_and_gives_is_not_printed() {
    let shop = Shop::open();
    let (scope, order, args) = (scope(), key("order-7"), arguments("a-1", 2));
    let (send, printed) = std::sync::mpsc::channel();
    let effect = move |tx: &mut EffectTx<'_>| {
        tx.enqueue(Message::new("mail", SECRET))?;
        send.send(format!("{tx:?}")).unwrap();
        Ok(())
    };
    shop.ledger.execute(&Request::new(&scope, &order, &args), effect).unwrap().into_inner();
    let mut printed = vec![printed.recv().unwrap()];
    printed.push(shop.ledger.read(|tx| Ok(format!("{tx:?}"))).unwrap());
    printed.push(format!("{:?}", EffectError::Reject(SECRET)));
    let bytes = format!("{:?}", SECRET.as_bytes());
    for text in printed {
        let leaks = [SECRET, bytes.trim_matches(['[', ']']), "shop.db"].iter().any(|leak| text.contains(leak));
        assert!(!leaks, "{text}");
    }
}
