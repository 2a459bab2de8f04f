//! The client that the official conformance suite runs (`cargo xtask conformance`): one scenario a process, by the name in
//! `MCP_CONFORMANCE_SCENARIO`. All of it goes through the library, as in any other program. `conformance_client URL`.

use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};
use steady_http::client::{CallError, Client, Config, InputAsked, Kind, Request};

type Done = Result<(), Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let Some(url) = std::env::args().nth(1) else { panic!("conformance_client URL") };
    match run(&scenario, &url).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            use std::io::Write as _;
            let _nobody_reads = writeln!(std::io::stderr(), "{scenario}: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(scenario: &str, url: &str) -> Done {
    let mut config = Config::default();
    config.calls.capabilities = r#"{"elicitation":{"form":{}}}"#.into();
    // The suite's servers do not all know `server/discover`.
    config.calls.probe = None;
    let client = Client::connect(url, config).await?;
    let done = match scenario {
        "tools_call" => call_all(&client, |_| json!({"a": 5, "b": 3})).await,
        "request-metadata" | "json-schema-ref-no-deref" => client.list_tools().await.map(drop).map_err(Into::into),
        "sep-2322-client-request-state" => answer_inputs(&client).await,
        "http-standard-headers" => everything(&client).await,
        "http-custom-headers" => calls_of_the_context(&client).await,
        "http-invalid-tool-headers" => call_all(&client, |_| json!({"region": "us-west1"})).await,
        "json-schema-2020-12-preservation" => echo_schema(&client).await,
        _ => Err(format!("the scenario {scenario:?} is none of this client's").into()),
    };
    client.shutdown().await;
    done
}

/// Calls every tool that the server lists.
async fn call_all(client: &Client, arguments: impl Fn(&str) -> Value) -> Done {
    for tool in client.list_tools().await? {
        client.call_tool(&tool.name, &arguments(&tool.name)).await?;
    }
    Ok(())
}

/// Calls every tool, and answers the questions of each (rules I1 and I2).
async fn answer_inputs(client: &Client) -> Done {
    for tool in client.list_tools().await? {
        let answer = async |asked: InputAsked| {
            let form = asked.kind == Kind::Form;
            form.then(|| json!({"action": "accept", "content": {"confirmed": true}}).to_string())
        };
        client.call_tool_with_input(Request::tool(&tool.name, &json!({})), answer).await?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Resources {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    uri: String,
}

#[derive(Deserialize)]
struct Prompts {
    #[serde(default)]
    prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
struct Prompt {
    name: String,
}

/// Lists and uses whatever the server has.
async fn everything(client: &Client) -> Done {
    call_all(client, |_| json!({})).await?;
    let listed = client.call(Request::raw("resources/list", "{}").safe()).await?;
    for Resource { uri } in listed.parse::<Resources>()?.resources {
        client.call(Request::new("resources/read", &json!({"uri": uri})).safe()).await?;
    }
    let listed = client.call(Request::raw("prompts/list", "{}").safe()).await?;
    for Prompt { name } in listed.parse::<Prompts>()?.prompts {
        client.call(Request::new("prompts/get", &json!({"name": name})).safe()).await?;
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    tool_calls: Vec<ToolCall>,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    arguments: Value,
}

/// Makes exactly the calls that the suite asks for.
async fn calls_of_the_context(client: &Client) -> Done {
    client.list_tools().await?;
    let context: Context = serde_json::from_str(&std::env::var("MCP_CONFORMANCE_CONTEXT")?)?;
    for ToolCall { name, arguments } in context.tool_calls {
        client.call_tool(&name, &arguments).await?;
    }
    Ok(())
}

/// Sends a schema back as it came.
async fn echo_schema(client: &Client) -> Done {
    let tools = client.list_tools().await?;
    let tool = tools.iter().find(|tool| tool.name == "json_schema_2020_12_tool");
    let tool = tool.ok_or_else(|| CallError::Answer("the tool with the schema is not listed".into()))?;
    client.call_tool("json_schema_echo", &json!({"schema": tool.input_schema})).await?;
    Ok(())
}
