//! The tools.

use std::time::Duration;

use serde_json::{Value, json};
use steady_http::steady_core::mrtr::Kind;
use steady_http::{Answer, Call, Context, Outcome, RpcError};

use crate::input::{PREFIX, capabilities};
use crate::{Conformance, complete};

/// One red pixel.
pub(crate) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
/// A sound without samples.
const WAV: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==";

/// The tool with a mirrored parameter, and its schema.
pub(crate) const MIRRORING: &str = "test_custom_header";
pub(crate) const MIRRORED: &str =
    r#"{"type":"object","properties":{"value":{"type":"string","x-mcp-header":"Value"}},"required":["value"]}"#;

fn json_schema_2020_12() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }},
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": false,
    })
}

const PLAIN: [(&str, &str); 13] = [
    ("test_simple_text", "Answers with a text."),
    ("test_image_content", "Answers with an image."),
    ("test_audio_content", "Answers with a sound."),
    ("test_embedded_resource", "Answers with a resource."),
    ("test_multiple_content_types", "Answers with a text, an image and a resource."),
    ("test_error_handling", "Answers with an error that a model can see."),
    ("test_tool_with_progress", "Reports progress, then answers."),
    ("test_missing_capability", "Needs the capability `sampling`."),
    ("test_streaming_elicitation", "Asks for input, in its result."),
    ("test_logging_tool", "Sends a log message if the request asked for them."),
    ("test_trigger_tool_change", "Says that the list of tools has changed."),
    ("test_trigger_prompt_change", "Says that the list of prompts has changed."),
    ("greet", "Greets by name."),
];

pub(crate) fn listed() -> Vec<Value> {
    let tool = |name: &str, description: &str, schema: Value| json!({"name": name, "description": description, "inputSchema": schema});
    let any = || json!({"type": "object"});
    let mut tools: Vec<Value> = PLAIN.iter().map(|(name, description)| tool(name, description, any())).collect();
    let mirrored = serde_json::from_str(MIRRORED).unwrap_or_default();
    tools.push(tool(MIRRORING, "Has a parameter that travels in a header too.", mirrored));
    tools.push(tool("json_schema_2020_12_tool", "Has a schema of many keywords.", json_schema_2020_12()));
    tools.extend(crate::asks::TOOLS.iter().map(|(name, description)| tool(name, description, any())));
    tools.extend(crate::tasks::TOOLS.iter().map(|(name, description, _)| tool(name, description, any())));
    for suffix in crate::input::TOOLS {
        tools.push(tool(&format!("{PREFIX}{suffix}"), "Asks for input before it completes.", any()));
    }
    tools
}

fn content(content: &Value) -> Outcome {
    complete(json!({"content": content}))
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn image() -> Value {
    json!({"type": "image", "data": PNG, "mimeType": "image/png"})
}

fn resource(uri: &str) -> Value {
    let text = "This is an embedded resource content.";
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": "text/plain", "text": text}})
}

impl Conformance {
    pub(crate) fn tool(&self, call: Call, cx: Context) -> Answer {
        #[derive(serde::Deserialize)]
        struct Params {
            name: String,
            #[serde(default)]
            arguments: Value,
        }
        let Params { name, arguments } = match call.parse() {
            Ok(params) => params,
            Err(error) => return Answer::Ready(Err(error)),
        };
        Answer::Ready(match name.as_str() {
            "test_simple_text" => content(&json!([text("This is a simple text response for testing.")])),
            "test_image_content" => content(&json!([image()])),
            "test_audio_content" => content(&json!([{"type": "audio", "data": WAV, "mimeType": "audio/wav"}])),
            "test_embedded_resource" => content(&json!([resource("test://embedded-resource")])),
            "test_multiple_content_types" => content(&json!([
                text("Multiple content types test:"),
                image(),
                resource("test://mixed-content-resource"),
            ])),
            "test_error_handling" => {
                complete(json!({"content": [text("This tool intentionally returns an error.")], "isError": true}))
            }
            "test_tool_with_progress" => return Answer::later(progress(cx)),
            "test_missing_capability" if Kind::Sampling.is_declared(capabilities(&call)) => {
                content(&json!([text("The client can sample.")]))
            }
            "test_missing_capability" => Err(RpcError::missing_capability(Kind::Sampling.required())),
            "test_streaming_elicitation" => self.states.streaming_elicitation(&call, &cx),
            "test_logging_tool" => return Answer::later(log(cx)),
            "test_trigger_tool_change" => {
                self.changes.tools_changed();
                content(&json!([text("Said so.")]))
            }
            "test_trigger_prompt_change" => {
                self.changes.prompts_changed();
                content(&json!([text("Said so.")]))
            }
            "greet" => {
                let name = arguments["name"].as_str().unwrap_or("World");
                content(&json!([text(&format!("Hello, {name}!"))]))
            }
            MIRRORING | "json_schema_2020_12_tool" => content(&json!([text(&arguments.to_string())])),
            name => match name.strip_prefix(PREFIX) {
                Some(suffix) => self.states.tool(suffix, &call, &cx),
                None => {
                    let asks = crate::asks::tool(name, &arguments, call.clone(), cx.clone());
                    return asks.unwrap_or_else(|| self.tasks.call(name, call, &cx));
                }
            },
        })
    }
}

async fn progress(cx: Context) -> Outcome {
    for step in [0.0, 50.0, 100.0] {
        cx.report_all(step, Some(100.0), "").await?;
        cx.sleep_until(cx.now() + Duration::from_millis(50)).await?;
    }
    content(&json!([text("Three reports.")]))
}

/// Rule M11: a log message goes to whoever asked for them in this request.
async fn log(cx: Context) -> Outcome {
    if let Some(level) = cx.log_level() {
        let message = json!({"level": level.name(), "logger": "conformance", "data": "The tool runs."});
        cx.notify("notifications/message", &message.to_string()).await?;
    }
    content(&json!([text("Logged.")]))
}
