//! The same kind of server, mounted into an axum application beside other routes.
//!
//! On ctrl-c listens end with their result, and pending answers get to leave. axum's own server does not always see that a
//! client is gone; `steady_http::Server` does.

use axum::{Router, routing::get, serve::ListenerExt};
use steady_http::{HttpConfig, HttpService, Reply, Tools};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let schema = r#"{"type":"object","properties":{"name":{"type":"string"}}}"#;
    let tools = Tools::new("hello", "1.0.0").tool("hello", "Greets.", schema, |call, _cx| async move {
        let arguments: std::collections::BTreeMap<String, String> = call.arguments()?;
        Ok(Reply::text(&format!("Hello, {}!", arguments.get("name").map_or("you", String::as_str))))
    });
    let config = HttpConfig::default();
    let shutdown = config.server.shutdown.clone();
    let mcp = HttpService::new(tools, config);
    let app = Router::new().route("/", get(|| async { "up" })).route_service("/mcp", mcp);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?.tap_io(|stream| {
        // Small messages must not wait for each other.
        let _gone = stream.set_nodelay(true);
    });
    let stop = async move {
        let _no_signals = tokio::signal::ctrl_c().await;
        shutdown.drain();
    };
    axum::serve(listener, app).with_graceful_shutdown(stop).await
}
