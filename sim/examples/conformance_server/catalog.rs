//! Resources, prompts and completions.

use serde_json::{Value, json};
use steady_http::{Call, Context, Outcome, RpcError};

use crate::{Conformance, cacheable, complete, tools};

pub(crate) fn resources() -> Value {
    json!([
        {"uri": "test://static-text", "name": "Static text", "mimeType": "text/plain"},
        {"uri": "test://static-binary", "name": "Static image", "mimeType": "image/png"},
    ])
}

pub(crate) fn templates() -> Value {
    json!([{"uriTemplate": "test://template/{id}/data", "name": "Data by id", "mimeType": "application/json"}])
}

pub(crate) fn read(call: &Call) -> Outcome {
    #[derive(serde::Deserialize)]
    struct Params {
        uri: String,
    }
    let uri = call.parse::<Params>()?.uri;
    let content = match uri.as_str() {
        "test://static-text" => {
            json!({"uri": uri, "mimeType": "text/plain", "text": "This is the content of the static text resource."})
        }
        "test://static-binary" => json!({"uri": uri, "mimeType": "image/png", "blob": tools::PNG}),
        other => {
            let id = other.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data"));
            let Some(id) = id.filter(|id| !id.is_empty() && !id.contains('/')) else {
                let data = json!({"uri": uri}).to_string();
                return Err(RpcError::invalid_params("there is no such resource").with_data(&data));
            };
            json!({"uri": uri, "mimeType": "application/json", "text": json!({"id": id}).to_string()})
        }
    };
    cacheable(json!({"contents": [content]}))
}

pub(crate) fn prompts() -> Value {
    let argument = |name: &str| json!({"name": name, "description": format!("The argument {name}."), "required": true});
    json!([
        {"name": "test_simple_prompt", "description": "A prompt without arguments."},
        {"name": "test_prompt_with_arguments", "description": "A prompt with two arguments.",
         "arguments": [argument("arg1"), argument("arg2")]},
        {"name": "test_prompt_with_embedded_resource", "description": "A prompt with a resource inside.",
         "arguments": [argument("resourceUri")]},
        {"name": "test_prompt_with_image", "description": "A prompt with an image."},
        {"name": "test_input_required_result_prompt", "description": "A prompt that asks for input first."},
    ])
}

#[derive(serde::Deserialize)]
struct PromptParams {
    name: String,
    #[serde(default)]
    arguments: std::collections::BTreeMap<String, String>,
}

impl Conformance {
    pub(crate) fn prompt(&self, call: &Call, cx: &Context) -> Outcome {
        let PromptParams { name, arguments } = call.parse()?;
        let argument = |name: &str| {
            let missing = || RpcError::invalid_params(format!("arguments: {name} is missing"));
            arguments.get(name).ok_or_else(missing)
        };
        let text = |text: &str| json!({"role": "user", "content": {"type": "text", "text": text}});
        let messages = match name.as_str() {
            "test_simple_prompt" => json!([text("This is a simple prompt for testing.")]),
            "test_prompt_with_arguments" => {
                let (first, second) = (argument("arg1")?, argument("arg2")?);
                json!([text(&format!("Prompt with arguments: arg1='{first}', arg2='{second}'"))])
            }
            "test_prompt_with_embedded_resource" => {
                let resource = json!({"uri": argument("resourceUri")?, "mimeType": "text/plain",
                                      "text": "Embedded resource content for testing."});
                let embedded = json!({"role": "user", "content": {"type": "resource", "resource": resource}});
                json!([embedded, text("Please process the embedded resource above.")])
            }
            "test_prompt_with_image" => {
                let image = json!({"type": "image", "data": tools::PNG, "mimeType": "image/png"});
                json!([{"role": "user", "content": image}, text("Please analyze the image above.")])
            }
            "test_input_required_result_prompt" => return self.states.prompt(call, cx),
            other => return Err(RpcError::invalid_params(format!("there is no prompt {other:?}"))),
        };
        complete(json!({"messages": messages}))
    }
}

pub(crate) fn completions(call: &Call) -> Outcome {
    #[derive(serde::Deserialize)]
    struct Params {
        argument: Argument,
    }
    #[derive(serde::Deserialize)]
    struct Argument {
        value: String,
    }
    let typed = call.parse::<Params>()?.argument.value;
    let known = ["testing", "test", "paris", "party"];
    let values: Vec<&str> = known.into_iter().filter(|known| known.starts_with(&typed)).collect();
    complete(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}))
}
