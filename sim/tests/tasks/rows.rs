//! What went wrong elsewhere: rows of the field reports.

use serde_json::json;

use crate::support::{BOTH, Declares, Shop, status};

#[test]
fn row_103_a_cancellation_at_the_finish_line_is_acknowledged_and_the_end_is_one_whole() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.at_work(transport);
        for _ in 0..20 {
            let id = server.task("pack", json!({"parcels": 1}));
            server.process.hear("packed 1 of");
            // The worker is about to complete.
            server.cancel(&id);
            let ended = server.end(&id);
            let has = |member: &str| ended.get(member).is_some();
            match status(&ended) {
                "completed" => assert!(has("result") && !has("error"), "{ended}"),
                "cancelled" => assert!(!has("result") && !has("error"), "{ended}"),
                other => panic!("neither of the two: {other}"),
            }
            server.cancel(&id);
            assert_eq!(server.get(&id), ended, "the first end stays");
        }
    }
}

#[test]
fn row_105_the_methods_of_the_old_design_do_not_exist() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.server(transport, &[]);
        let id = server.task("pack", json!({"parcels": 1}));
        for method in ["tasks/result", "tasks/list"] {
            let params = json!({"taskId": id});
            assert_eq!(server.refusal(method, params, Declares::Tasks)["code"], -32601, "{method}");
        }
        let hinted = json!({"name": "double", "arguments": {"number": 1}, "task": {"ttl": 60_000}});
        let plain = server.send("tools/call", hinted, Declares::Nothing);
        assert_eq!(server.receive(plain)["result"]["content"][0]["text"], "2", "nor does the old hint make a task");
    }
}

#[test]
fn row_106_a_client_without_tasks_is_served_or_told_what_it_lacks() {
    for transport in BOTH {
        let shop = Shop::new();
        let mut server = shop.at_work(transport);
        let inline = server.call_plainly("double", json!({"number": 21}));
        assert_eq!(inline["result"]["content"][0]["text"], "42");
        let error = server.call_plainly("confirm", json!({}))["error"].clone();
        assert_eq!(error["code"], -32021);
        assert!(error["data"]["requiredCapabilities"]["extensions"]["io.modelcontextprotocol/tasks"].is_object());
    }
}
