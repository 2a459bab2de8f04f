//! A server built with rmcp, with the tools that the interop step calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rmcp::handler::server::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResult, ContentBlock, NumberOrString, ProgressNotificationParam, ProgressToken, RequestMetaObject,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, ServiceExt, schemars, tool, tool_handler, tool_router};

type Answer = Result<CallToolResult, ErrorData>;

#[derive(Clone)]
struct Server {
    cancelled: Arc<AtomicU32>,
    #[expect(dead_code, reason = "read by the code of the macro")]
    tool_router: ToolRouter<Self>,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Count {
    n: u32,
}

fn text(text: impl Into<String>) -> Answer {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
}

async fn report(client: &Peer<RoleServer>, token: &ProgressToken, value: u32, total: u32) -> Result<(), ErrorData> {
    let report = ProgressNotificationParam::new(token.clone(), value.into()).with_total(total.into());
    client.notify_progress(report).await.map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn token(meta: &RequestMetaObject) -> ProgressToken {
    meta.get_progress_token().unwrap_or(ProgressToken(NumberOrString::Number(0)))
}

#[tool_router]
impl Server {
    #[tool(description = "Says it again.")]
    async fn echo(&self, Parameters(echo): Parameters<Echo>) -> Answer {
        text(echo.text)
    }

    #[tool(description = "Reports each number.")]
    async fn count(
        &self,
        Parameters(Count { n }): Parameters<Count>,
        meta: RequestMetaObject,
        client: Peer<RoleServer>,
    ) -> Answer {
        for step in 1..=n {
            report(&client, &token(&meta), step, n).await?;
        }
        text("counted")
    }

    #[tool(description = "Waits for its cancellation.")]
    async fn wait(&self, meta: RequestMetaObject, client: Peer<RoleServer>, cx: RequestContext<RoleServer>) -> Answer {
        report(&client, &token(&meta), 1, 1).await?;
        cx.ct.cancelled().await;
        self.cancelled.fetch_add(1, Ordering::SeqCst);
        text("cancelled")
    }

    #[tool(description = "Tells how many were cancelled.")]
    async fn cancelled(&self) -> Answer {
        text(self.cancelled.load(Ordering::SeqCst).to_string())
    }
}

#[tool_handler]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server { cancelled: Arc::default(), tool_router: Server::tool_router() };
    server.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}
