//! What a server says of its resources: in lists, and when one is read; and how much any result may be.

use serde_json::{Value, json};
use steady_core::kernel::{Answer, Contents, Resource, ResourcePage, Resources, ServerConfig, Service, Tools};

use super::{Fun, Server, ok, request};

/// A service that says nothing of schemas has none.
#[test]
fn only_a_tool_that_is_known_has_a_schema() {
    let tools = Tools::new("shop", "1.0.0");
    assert_eq!(tools.input_schema("buy"), None);
    assert_eq!(Fun::new(|_, _| Answer::Ready(ok())).input_schema("buy"), None);
}

fn serve(resources: Resources) -> Server {
    let tools = Tools::new("shop", "1.0.0").resources(resources);
    Server::new(ServerConfig::default(), move |call, cx| tools.call(call, cx))
}

/// The answer to a request with these parameters beside its metadata.
fn ask(server: &mut Server, method: &str, params: &str) -> Value {
    server.send(request(1, method).replace("\"params\":{", &format!("\"params\":{{{params}")));
    server.world.run_jobs();
    server.run();
    let lines = server.world.lines();
    serde_json::from_str::<Value>(&lines[0]).expect("JSON")["result"].take()
}

#[test]
fn what_is_said_of_a_resource_is_listed_and_what_is_read_says_how_long_it_may_be_kept() {
    let shelf = Resource::new("shop:shelf", "shelf").title("The shelf").description("What is there.");
    let item = Resource::new("shop:item/{sku}", "item").mime_type("text/plain");
    let resources = Resources::new()
        .resource(shelf, |_, _| async { Ok(Some(Contents::text("text/plain", "all"))) })
        .resource(item, |read, _| async move {
            Ok(Some(Contents::text("text/plain", read.variable("sku")).ttl_ms(5).public()))
        });
    let mut server = serve(resources);
    let listed = ask(&mut server, "resources/list", "");
    let shelf = json!({"uri":"shop:shelf","name":"shelf","title":"The shelf","description":"What is there."});
    assert_eq!(listed["resources"], json!([shelf]));
    let listed = ask(&mut server, "resources/templates/list", "");
    let item = json!({"uriTemplate":"shop:item/{sku}","name":"item","mimeType":"text/plain"});
    assert_eq!(listed["resourceTemplates"], json!([item]));
    for (uri, text, kept) in [("shop:shelf", "all", (0, "private")), ("shop:item/a-1", "a-1", (5, "public"))] {
        let read = ask(&mut server, "resources/read", &format!("\"uri\":\"{uri}\","));
        assert_eq!(read["contents"], json!([{"uri":uri,"mimeType":"text/plain","text":text}]));
        assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(kept.0), &json!(kept.1)), "{read}");
    }
}

#[test]
fn a_lister_gets_the_cursor_and_takes_the_place_of_what_was_added() {
    let resources = Resources::new()
        .resource(Resource::new("shop:shelf", "shelf"), |_, _| async { Ok(None) })
        .listed_by(|cursor, _| {
            let name = cursor.unwrap_or_else(|| "first".into());
            let next_cursor = (name == "first").then(|| "second".into());
            Ok(ResourcePage { resources: vec![Resource::new("shop:page", &name)], next_cursor })
        });
    let mut server = serve(resources);
    let first = ask(&mut server, "resources/list", "");
    assert_eq!((&first["resources"][0]["name"], &first["nextCursor"]), (&json!("first"), &json!("second")));
    let second = ask(&mut server, "resources/list", "\"cursor\":\"second\",");
    assert_eq!((&second["resources"][0]["name"], second.get("nextCursor")), (&json!("second"), None));
}

#[test]
fn a_result_of_the_most_that_a_server_sends_is_sent_and_a_longer_one_is_an_error() {
    let config = ServerConfig { max_result: 10, ..ServerConfig::default() };
    let mut server =
        Server::new(config, |call, _| Answer::Ready(Ok(format!("{{\"a\":\"{}\"}}", "x".repeat(call.method.len())))));
    for (method, is_sent) in [("m", true), ("mm", true), ("mmm", false), ("mmmm", false)] {
        server.send(request(1, method));
        let line = server.world.lines().remove(0);
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(answer["result"].is_object(), is_sent, "{answer}");
        assert_eq!(answer["error"]["code"].as_i64(), (!is_sent).then_some(-32603), "{answer}");
    }
}
