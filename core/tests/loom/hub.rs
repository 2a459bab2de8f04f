//! A hub between a publisher, a subscription's reader and its end.

use std::future::poll_fn;
use std::sync::Arc as Shared;

use steady_core::kernel::{
    Answer, Call, Context as Request, Exchange, Hub, HubCounters, Service, Subscription, Update,
};
use steady_core::listener::End;
use steady_core::subscription::Refetch;

use super::invariants::{hub_1_the_acknowledgement_comes_first, hub_3_nothing_is_lost};
use super::ports::{Still, config};
use super::shim::{ALL, block_on, models, preemptions, spawn};

models! {
    a_publication_wakes_a_subscription_that_parks: ALL, kills ["hub-parks-outside-lock"];
    an_order_to_end_wakes_a_subscription_that_parks: ALL, kills ["hub-parks-outside-lock"];
    the_acknowledgement_is_first_while_a_publication_races: ALL, kills ["changes-before-the-acknowledgement"];
    an_exchange_hears_of_a_publication: preemptions(3), kills ["park-outside-lock", "waker-before-push"];
    a_subscription_that_ends_while_it_is_published_to_leaves_nothing: ALL, kills ["dropped-listen-stays-watched"];
    two_subscriptions_end_while_one_publishes: preemptions(2), kills ["dropped-listen-stays-watched"];
}

const LISTEN: &str = r#"{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;

fn next(subscription: &Subscription) -> Update {
    block_on(poll_fn(|cx| subscription.poll_next(cx)))
}

fn subscribe(hub: &Hub) -> Subscription {
    hub.subscribe(None, [Refetch::Tools]).expect("room")
}

/// Nothing of any subscription is left.
fn nothing_is_left(hub: &Hub) {
    let HubCounters { open, topics, name_bytes, .. } = hub.counters();
    assert_eq!((open, topics, name_bytes), (0, 0, 0));
}

fn a_publication_wakes_a_subscription_that_parks() {
    let hub = Hub::new();
    let subscription = subscribe(&hub);
    let publisher = {
        let hub = hub.clone();
        spawn(move || hub.tools_changed())
    };
    assert_eq!(next(&subscription), Update::Acknowledged);
    let Update::Changed(change) = next(&subscription) else { panic!("it has not ended") };
    hub_3_nothing_is_lost(Some(Refetch::Tools), Some(change.refetch), &"a publication");
    publisher.join().expect("no panic");
}

fn an_order_to_end_wakes_a_subscription_that_parks() {
    let hub = Hub::new();
    let subscription = Shared::new(subscribe(&hub));
    let ender = {
        let subscription = Shared::clone(&subscription);
        spawn(move || subscription.drain())
    };
    assert_eq!(next(&subscription), Update::Acknowledged);
    assert_eq!(next(&subscription), Update::Ended(End::Drained));
    ender.join().expect("no panic");
}

/// Answers every request by a subscription.
struct Listening(Hub);

impl Service for Listening {
    fn call(&self, call: Call, cx: Request) -> Answer {
        self.0.listen(&call, &cx)
    }
}

fn exchange(hub: &Hub) -> Exchange<Listening> {
    Exchange::start(Shared::new(Listening(hub.clone())), Still::default().ports(), config(), LISTEN)
}

/// The next message.
fn said(exchange: &mut Exchange<Listening>) -> String {
    let mut out = Vec::new();
    block_on(poll_fn(|cx| exchange.poll_message(cx, &mut out)));
    String::from_utf8(out).expect("UTF-8")
}

fn the_acknowledgement_is_first_while_a_publication_races() {
    let hub = Hub::new();
    let publisher = {
        let hub = hub.clone();
        spawn(move || hub.tools_changed())
    };
    let subscription = subscribe(&hub);
    let first = next(&subscription);
    hub_1_the_acknowledgement_comes_first(false, first == Update::Acknowledged, first != Update::Acknowledged, &first);
    publisher.join().expect("no panic");
    drop(subscription);
    nothing_is_left(&hub);
}

fn an_exchange_hears_of_a_publication() {
    let hub = Hub::new();
    let mut exchange = exchange(&hub);
    let publisher = {
        let hub = hub.clone();
        spawn(move || hub.tools_changed())
    };
    assert!(said(&mut exchange).contains("acknowledged"));
    assert!(said(&mut exchange).contains("tools/list_changed"));
    publisher.join().expect("no panic");
    drop(exchange);
    nothing_is_left(&hub);
}

fn a_subscription_that_ends_while_it_is_published_to_leaves_nothing() {
    let hub = Hub::new();
    let subscription = subscribe(&hub);
    let publisher = {
        let hub = hub.clone();
        spawn(move || hub.tools_changed())
    };
    drop(subscription);
    publisher.join().expect("no panic");
    nothing_is_left(&hub);
}

fn two_subscriptions_end_while_one_publishes() {
    let hub = Hub::new();
    let (one, two) = (subscribe(&hub), subscribe(&hub));
    let ender = spawn(move || drop(one));
    let publisher = {
        let hub = hub.clone();
        spawn(move || hub.tools_changed())
    };
    drop(two);
    ender.join().expect("no panic");
    publisher.join().expect("no panic");
    nothing_is_left(&hub);
}
