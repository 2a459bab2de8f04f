//! Rows of `subscriptions/listen`, and the graceful end, which is the last row.

use super::Row;
use super::subject::{Subject, ensure, next, why};
use crate::http::{Peer, request};
use serde_json::{Value, json};

pub(super) const ROWS: &[Row] = &[
    Row { about: "listen: acknowledged first, id with its JSON type", level: "MUST", check: acknowledged },
    Row { about: "listen: honours only what discover advertises", level: "MUST", check: honoured },
    Row { about: "listen: nothing that was not asked for", level: "MUST NOT", check: only_what_was_asked },
    Row { about: "listen: two at once, a change reaches each by its id", level: "MUST", check: several },
    Row { about: "listen: acknowledged first while changes race", level: "MUST", check: racing },
    Row { about: "shutdown: an open listen gets its result first", level: "SHOULD", check: graceful },
];

const ID: &str = "io.modelcontextprotocol/subscriptionId";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const CHANGED: &str = "notifications/tools/list_changed";

fn listen(subject: &Subject, id: Value, filter: Value) -> Result<Peer, String> {
    Ok(subject.stream(&request(id, "subscriptions/listen", json!({"notifications": filter})))?.0)
}

/// The next message, which must be this one, for this subscription.
fn expect(peer: &mut Peer, method: &str, id: &Value) -> Result<Value, String> {
    let message = next(peer)?;
    let own = message["method"] == method && message["params"]["_meta"][ID] == *id;
    ensure(own, || format!("{method} for {id} expected, {message} came"))?;
    Ok(message)
}

fn change(subject: &Subject) -> Result<(), String> {
    subject.say("change", json!({})).map(drop)
}

fn acknowledged(subject: &Subject) -> Result<(), String> {
    for id in [json!(41), json!("41")] {
        let mut peer = listen(subject, id.clone(), json!({"toolsListChanged": true}))?;
        expect(&mut peer, ACKNOWLEDGED, &id)?;
        change(subject)?;
        expect(&mut peer, CHANGED, &id)?;
    }
    Ok(())
}

fn honoured(subject: &Subject) -> Result<(), String> {
    let discovered = subject.post(&request(1, "server/discover", json!({})))?.message().unwrap_or_default();
    let capabilities = discovered["result"]["capabilities"].clone();
    let asked = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let mut peer = listen(subject, json!(42), asked)?;
    let message = expect(&mut peer, ACKNOWLEDGED, &json!(42))?;
    for (filter, kind) in
        [("toolsListChanged", "tools"), ("promptsListChanged", "prompts"), ("resourcesListChanged", "resources")]
    {
        let honoured = message["params"]["notifications"][filter] == true;
        let advertised = capabilities[kind]["listChanged"] == true;
        ensure(honoured == advertised, || format!("{filter}: honoured {honoured}, advertised {advertised}"))?;
    }
    Ok(())
}

/// A change that another subscription hears of passes by this one. One of which nothing is honoured may end at once.
fn only_what_was_asked(subject: &Subject) -> Result<(), String> {
    let mut other = listen(subject, json!("asked"), json!({"toolsListChanged": true}))?;
    expect(&mut other, ACKNOWLEDGED, &json!("asked"))?;
    let mut peer = listen(subject, json!("not"), json!({"promptsListChanged": true}))?;
    expect(&mut peer, ACKNOWLEDGED, &json!("not"))?;
    change(subject)?;
    expect(&mut other, CHANGED, &json!("asked"))?;
    peer.wait_at_most(std::time::Duration::from_millis(500)).map_err(why)?;
    match peer.message() {
        Ok(Some(message)) if message.get("method").is_some() => Err(format!("{message} came")),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn several(subject: &Subject) -> Result<(), String> {
    let ids = [json!("a"), json!("b")];
    let mut peers = Vec::new();
    for id in &ids {
        let mut peer = listen(subject, id.clone(), json!({"toolsListChanged": true}))?;
        expect(&mut peer, ACKNOWLEDGED, id)?;
        peers.push(peer);
    }
    change(subject)?;
    for (peer, id) in peers.iter_mut().zip(&ids) {
        expect(peer, CHANGED, id)?;
    }
    Ok(())
}

/// Changes go on while subscriptions are opened: whatever comes, the acknowledgement is first.
fn racing(subject: &Subject) -> Result<(), String> {
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| (0..30).try_for_each(|_| change(subject)));
        let opened = (0..15).try_for_each(|n| {
            let id = json!(format!("race {n}"));
            let mut peer = listen(subject, id.clone(), json!({"toolsListChanged": true}))?;
            expect(&mut peer, ACKNOWLEDGED, &id).map(drop)
        });
        changes.join().map_err(|_| "the changes panicked".to_string())?.and(opened)
    })
}

fn graceful(subject: &Subject) -> Result<(), String> {
    let mut peer = listen(subject, json!("end"), json!({"toolsListChanged": true}))?;
    expect(&mut peer, ACKNOWLEDGED, &json!("end"))?;
    subject.terminate()?;
    let last = next(&mut peer)?;
    let complete = last["id"] == "end" && last["result"]["resultType"] == "complete";
    ensure(complete, || last.to_string())?;
    let end = peer.message().map_err(why)?;
    ensure(end.is_none(), || format!("after the result: {end:?}"))
}
