//! A server built with rmcp, with its defaults, for `cargo xtask compare`. It says where it serves in a line on standard
//! error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rmcp::handler::server::tool::ToolRouter;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{
    CallToolResult, ContentBlock, ProgressNotificationParam, RequestMetaObject, ServerCapabilities, ServerConfig,
    SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use tokio::sync::watch;

type Answer = Result<CallToolResult, ErrorData>;

#[derive(Clone)]
struct Server {
    started: Arc<AtomicU32>,
    cancelled: Arc<AtomicU32>,
    changes: watch::Sender<u32>,
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

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Quiet {
    ms: u64,
}

fn text(text: impl Into<String>) -> Answer {
    Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
}

fn failed(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

async fn report(client: &Peer<RoleServer>, meta: &RequestMetaObject, value: f64) -> Result<(), ErrorData> {
    let Some(token) = meta.get_progress_token() else { return Ok(()) };
    client.notify_progress(ProgressNotificationParam::new(token, value)).await.map_err(failed)
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
            report(&client, &meta, step.into()).await?;
        }
        text("counted")
    }

    #[tool(description = "Reports what does not increase.")]
    async fn stutter(&self, meta: RequestMetaObject, client: Peer<RoleServer>) -> Answer {
        for step in [1.0, 1.0, 0.5, 2.0] {
            report(&client, &meta, step).await?;
        }
        text("stuttered")
    }

    #[tool(description = "Reports once, and is silent.")]
    async fn quiet(
        &self,
        Parameters(Quiet { ms }): Parameters<Quiet>,
        meta: RequestMetaObject,
        client: Peer<RoleServer>,
    ) -> Answer {
        report(&client, &meta, 1.0).await?;
        tokio::time::sleep(Duration::from_millis(ms)).await;
        text("after the silence")
    }

    #[tool(description = "Reports, and waits for its cancellation.")]
    async fn wait(&self, meta: RequestMetaObject, client: Peer<RoleServer>, cx: RequestContext<RoleServer>) -> Answer {
        report(&client, &meta, 1.0).await?;
        self.silent(cx).await
    }

    #[tool(description = "Waits for its cancellation.")]
    async fn silent(&self, cx: RequestContext<RoleServer>) -> Answer {
        self.started.fetch_add(1, Ordering::SeqCst);
        cx.ct.cancelled().await;
        self.cancelled.fetch_add(1, Ordering::SeqCst);
        text("never")
    }

    #[tool(description = "Tells how many were cancelled, of how many that wait for it.")]
    async fn cancelled(&self) -> Answer {
        let (cancelled, started) = (&self.cancelled, &self.started);
        text(format!("{} of {}", cancelled.load(Ordering::SeqCst), started.load(Ordering::SeqCst)))
    }

    #[tool(description = "Says that the list of tools has changed.")]
    async fn change(&self) -> Answer {
        self.changes.send_modify(|changes| *changes += 1);
        text("changed")
    }
}

#[tool_handler]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.changes.subscribe();
        loop {
            tokio::select! {
                () = context.cancelled() => return Ok(()),
                changed = changes.changed() => changed.map_err(failed)?,
            }
            // Who did not ask for it gets an error here, and no notification.
            let _not_asked_for = context.sink().notify_tool_list_changed().await;
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let handler = Server {
        started: Arc::default(),
        cancelled: Arc::default(),
        changes: watch::Sender::new(0),
        tool_router: Server::tool_router(),
    };
    let config = StreamableHttpServerConfig::default();
    let stop = config.cancellation_token.clone();
    let service =
        StreamableHttpService::new(move || Ok(handler.clone()), LocalSessionManager::default().into(), config);
    let app = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    eprintln!("serving http://{}/mcp", listener.local_addr()?);
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let stopped = async move {
        terminated.recv().await;
        stop.cancel();
    };
    axum::serve(listener, app).with_graceful_shutdown(stopped).await?;
    Ok(())
}
