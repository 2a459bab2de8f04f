//! Log messages go to whoever asked for them, from the level on that they asked for (rule M11); progress has ways of its own.

use steady_core::kernel::{Answer, ServerConfig};
use steady_core::rpc::{Level, method};

use super::{Server, ok, request};

/// A request that asks for log messages, by this JSON.
fn asking(id: u64, level: &str) -> String {
    let member = format!("\"_meta\":{{\"io.modelcontextprotocol/logLevel\":{level},");
    request(id, "log").replace("\"_meta\":{", &member)
}

/// What a handler says, and what of it a client reads.
fn said(message: String) -> (Option<Level>, Vec<String>) {
    let level = std::sync::Arc::new(std::sync::Mutex::new(None));
    let noted = std::sync::Arc::clone(&level);
    let mut server = Server::new(ServerConfig::default(), move |_, cx| {
        *noted.lock().expect("no panic") = cx.log_level();
        Answer::later(async move {
            for level in ["debug", "info", "error", "of its own"] {
                cx.notify(method::MESSAGE, &format!(r#"{{"level":"{level}","data":1}}"#)).await?;
            }
            cx.notify(method::MESSAGE, "{}").await?;
            cx.notify("com.example/other", "{}").await?;
            // The gate of this token would know nothing of it (rule P2).
            cx.notify(method::PROGRESS, r#"{"progressToken":1,"progress":9}"#).await?;
            cx.report_all(1.0, None, "").await?;
            ok()
        })
    });
    server.send(message);
    let lines = server.world.lines();
    let brief = |line: &String| {
        let message: serde_json::Value = serde_json::from_str(line).expect("JSON");
        match message["method"].as_str() {
            Some(method::MESSAGE) => format!("log {}", message["params"]["level"]),
            Some(method::PROGRESS) => format!("progress {}", message["params"]["progress"]),
            Some(other) => other.to_owned(),
            None => "answer".to_owned(),
        }
    };
    let level = *level.lock().expect("no panic");
    (level, lines.iter().map(brief).collect())
}

#[test]
fn a_log_message_goes_to_a_request_that_asked_for_its_level() {
    let rest = ["com.example/other", "progress 1", "answer"];
    let all = |logs: &[&str]| logs.iter().chain(&rest).map(|line| (*line).to_owned()).collect::<Vec<_>>();
    assert_eq!(said(request(1, "log")), (None, all(&[])), "it did not ask");
    let unknown = ["log \"of its own\"", "log null"];
    let info = [&["log \"info\"", "log \"error\""], &unknown[..]].concat();
    assert_eq!(said(asking(1, "\"info\"")), (Some(Level::Info), all(&info)));
    let error = [&["log \"error\""], &unknown[..]].concat();
    assert_eq!(said(asking(1, "\"\\u0065rror\"")), (Some(Level::Error), all(&error)));
    for none in ["\"loud\"", "7", "null"] {
        assert_eq!(said(asking(1, none)), (None, all(&[])), "{none} is no level");
    }
}
