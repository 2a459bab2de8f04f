//! What an attacker sends: it costs itself only, and leads to nothing but a clean refusal.

use super::support::{Answer, Lab, call, post, post_with, request};

fn ask(lab: &Lab, text: &str) -> Answer {
    let mut peer = lab.connect();
    peer.send(text.as_bytes());
    peer.answer()
}

fn echo() -> String {
    call(1, "echo", r#"{"text":"hello"}"#)
}

#[test]
fn a_header_value_in_base64_injects_nothing() {
    let lab = Lab::start();
    // "echo\r\nSet-Cookie: a=b", "echo\0", "echo\n\nHTTP/1.1 200 OK", and what is no UTF-8.
    for value in ["ZWNobw0KU2V0LUNvb2tpZTogYT1i", "ZWNobwA=", "ZWNobwoKSFRUUC8xLjEgMjAwIE9L", "//79"] {
        let text = post(&echo()).replace("Mcp-Name: echo", &format!("Mcp-Name: =?base64?{value}?="));
        let mut peer = lab.connect();
        peer.send(text.as_bytes());
        let answer = peer.answer();
        assert_eq!((answer.status, answer.code()), (400, -32020), "{value}");
        assert_eq!(answer.header("set-cookie"), None, "{:?}", answer.head);
        assert!(answer.text().lines().count() == 1, "{}", answer.text());
        peer.post(&echo());
        assert_eq!(peer.answer().status, 200, "the connection was not split: {value}");
    }
    // What is mirrored is decoded and compared as well, and reaches no header of the answer.
    let mirrored = call(1, "mirrored", r#"{"value":"a\r\nb"}"#);
    let answer = ask(&lab, &post_with(&mirrored, "Mcp-Param-Value: =?base64?YQ0KYg==?=\r\n"));
    assert!(answer.status == 200 && answer.text().contains("mirrored"), "{}", answer.text());
    let answer = ask(&lab, &post_with(&mirrored, "Mcp-Param-Value: =?base64?YQ0KYw==?=\r\n"));
    assert_eq!((answer.status, answer.code()), (400, -32020));
    assert_eq!(lab.service.counters().requests, 5);
}

#[test]
fn everything_oversized_is_refused_and_costs_itself_only() {
    let lab = Lab::start();
    let (long, longer) = ("x".repeat(20_000), "x".repeat(5 << 20));
    let heads = [
        post(&echo()).replace("POST /mcp", &format!("POST /mcp?{long}")),
        post(&echo()).replace("POST", &long),
        post_with(&echo(), &format!("X-Long: {long}\r\n")),
        post_with(&echo(), &format!("{long}: x\r\n")),
        post_with(&echo(), &format!("Authorization: Bearer {long}\r\n")),
        post(&echo()).replace("Mcp-Name: echo", &format!("Mcp-Name: {long}")),
    ];
    for text in heads {
        let answer = ask(&lab, &text);
        assert!([414, 431].contains(&answer.status), "{}: {}", answer.status, &text[..40]);
    }
    let mut peer = lab.connect();
    peer.send(
        post(&call(1, "echo", &format!(r#"{{"text":"{longer}"}}"#)))
            .split_inclusive("\r\n\r\n")
            .next()
            .expect("a head")
            .as_bytes(),
    );
    assert_eq!(peer.answer().status, 413);
    // What is long inside of a message that is not: none of it is run, and none of it comes back whole.
    let name = format!(r#""name":"{}","arguments":{{}},"#, &long[..8_000]);
    let bodies = [
        (request("1", &long, ""), false),
        (request("1", "tools/call", &name), true),
        (request("1", "tools/call", r#""name":"echo","arguments":{},"#).replace("2026-07-28", &long), false),
        (
            call(1, "echo", "{}").replace(r#""progressToken":1"#, &format!(r#""progressToken":{}"#, "9".repeat(400))),
            true,
        ),
    ];
    for (body, header) in bodies {
        let text =
            if header { post(&body) } else { post_with(&body, "").replace(&format!("Mcp-Method: {long}\r\n"), "") };
        let answer = ask(&lab, &text);
        assert!((400..500).contains(&answer.status) || answer.text().contains("\"error\""), "{}", answer.text());
        assert!(answer.body.len() < 10_000, "{} bytes", answer.body.len());
    }
    lab.ping();
}

#[test]
fn deep_json_is_refused_wherever_it_stands() {
    let lab = Lab::start();
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for depth in [200, 100_000] {
        for body in [
            call(1, "echo", &format!(r#"{{"text":{}}}"#, deep(depth))),
            request("1", "tools/call", &format!(r#""name":"echo","arguments":{{}},"other":{},"#, deep(depth))),
            request("1", "tools/call", r#""name":"echo","#)
                .replace("clientCapabilities\":{}", &format!("clientCapabilities\":{{\"x\":{}}}", deep(depth))),
            deep(depth),
        ] {
            let answer = ask(&lab, &post(&body));
            assert_eq!((answer.status, answer.code()), (400, -32600), "{depth}: {}", answer.text());
        }
    }
    assert_eq!(
        ask(
            &lab,
            &post(&request("1", "tools/call", &format!(r#""name":"echo","arguments":{{}},"other":{},"#, deep(100))))
        )
        .status,
        200
    );
    assert_eq!(lab.service.counters().requests, 1);
}

#[test]
fn a_member_that_stands_twice_is_refused() {
    let lab = Lab::start();
    let body = echo();
    let cases = [
        (body.replacen("\"id\":1", "\"id\":1,\"id\":2", 1), -32600),
        (body.replacen("\"method\"", "\"method\":\"x\",\"method\"", 1), -32600),
        (body.replacen("\"params\"", "\"params\":{},\"params\"", 1), -32600),
        (body.replacen("\"_meta\"", "\"_meta\":{},\"_meta\"", 1), -32602),
        (body.replacen("\"progressToken\":1", "\"progressToken\":1,\"progressToken\":2", 1), -32602),
        (body.replacen("\"name\"", "\"name\":\"gate\",\"name\"", 1), -32020),
        (body.replacen("\"arguments\"", "\"arguments\":{\"text\":\"other\"},\"arguments\"", 1), -32602),
        (body.replacen("\"text\"", "\"text\":\"other\",\"text\"", 1), -32602),
    ];
    for (body, code) in cases {
        let head = post(&echo())
            .replace(&format!("Content-Length: {}", echo().len()), &format!("Content-Length: {}", body.len()));
        let answer = ask(&lab, &head.replace(&echo(), &body));
        assert_eq!(answer.code(), code, "{body}: {}", answer.text());
    }
}
