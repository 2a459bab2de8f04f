//! The tools that the suite's requirements of 2025-11-25 call: each asks once, or logs. They are written for the modern
//! revision like all others; the library turns their demands into requests to a client of the older one.

use std::time::Duration;

use serde_json::{Value, json};
use steady_http::steady_core::mrtr::{InputRequired, Kind, Retry};
use steady_http::{Answer, Call, Context, Outcome};

use crate::complete;
use crate::input::capabilities;

pub(crate) const TOOLS: [(&str, &str); 5] = [
    ("test_sampling", "Asks the client's model."),
    ("test_elicitation", "Asks the user."),
    ("test_elicitation_sep1034_defaults", "Asks with default values."),
    ("test_elicitation_sep1330_enums", "Asks for choices of every kind."),
    ("test_tool_with_logging", "Logs while it runs."),
];

/// The answer of one of [`TOOLS`].
pub(crate) fn tool(name: &str, arguments: &Value, call: Call, cx: Context) -> Option<Answer> {
    let (kind, params) = match name {
        "test_sampling" => {
            let content = json!({"type": "text", "text": arguments["prompt"]});
            (Kind::Sampling, json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100}))
        }
        "test_elicitation" => {
            let properties = json!({"username": {"type": "string"}, "email": {"type": "string"}});
            (Kind::Form, form(arguments["message"].as_str().unwrap_or("Who are you?"), &properties))
        }
        "test_elicitation_sep1034_defaults" => (Kind::Form, form("Is this right?", &defaults())),
        "test_elicitation_sep1330_enums" => (Kind::Form, form("Which?", &choices())),
        "test_tool_with_logging" => return Some(Answer::later(log(cx))),
        _ => return None,
    };
    Some(Answer::Ready(asked(&call, kind, &params)))
}

fn form(message: &str, properties: &Value) -> Value {
    json!({"mode": "form", "message": message, "requestedSchema": {"type": "object", "properties": properties}})
}

fn defaults() -> Value {
    json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": true},
    })
}

fn choices() -> Value {
    let titled = |nth: &str| json!({"const": format!("value{nth}"), "title": format!("Choice {nth}")});
    let titled: Vec<Value> = ["1", "2", "3"].map(titled).into();
    let plain = json!(["option1", "option2", "option3"]);
    json!({
        "untitledSingle": {"type": "string", "enum": plain},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    })
}

fn asked(call: &Call, kind: Kind, params: &Value) -> Outcome {
    let retry = Retry::read(&call.params)?;
    match retry.response("asked", kind) {
        Ok(answer) => complete(json!({"content": [{"type": "text", "text": format!("The client said: {answer}")}]})),
        Err(_not_yet) => {
            let mut demand = InputRequired::new(&call.method, capabilities(call))?;
            demand.ask("asked", kind, &params.to_string())?;
            Ok(demand.build()?)
        }
    }
}

/// Rule M11: a log message goes to whoever asked for them, in this request or, before, in its session: to others it is not
/// sent.
async fn log(cx: Context) -> Outcome {
    for what in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        let message = json!({"level": "info", "logger": "conformance", "data": what});
        cx.notify("notifications/message", &message.to_string()).await?;
        cx.sleep_until(cx.now() + Duration::from_millis(50)).await?;
    }
    complete(json!({"content": [{"type": "text", "text": "Logged three times."}]}))
}
