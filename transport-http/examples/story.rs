//! A client that orders through a proxy which holds the answer back, gives up, and orders again: what `cargo xtask verify
//! --only proxies` puts in front of a real one.
//!
//! usage: story URL DIRECT_URL [KEY]
//!
//! The first request asks the proxy to be slow, by the header `X-Slow`. Before the second one the reservation must be there,
//! which is asked of the server past the proxy. Prints the reservation that the second order got.
#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use steady_http::client::{CallError, Client, Config, Rejected, Request};
use steady_http::steady_core::idempotency::Key;
use steady_http::steady_core::kernel::BoxFuture;

/// Nothing here takes long.
const GUARD: Duration = Duration::from_secs(60);
/// How long the first answer is waited for. It is held back for much longer.
const PATIENCE: Duration = Duration::from_secs(1);

fn order(key: Option<&str>) -> Result<Request, Box<dyn Error>> {
    let request = Request::tool("reserve_inventory", &json!({"sku": "gadget", "quantity": 2, "tenant": "acme"}));
    Ok(match key {
        Some(key) => request.key(Key::parse(key)?),
        None => request,
    })
}

/// A client that asks the proxy to be slow the first time.
fn config() -> Config {
    let first = Arc::new(AtomicBool::new(true));
    let authorize = move |_: Option<Rejected>| -> BoxFuture<_> {
        let slow = first.swap(false, Ordering::SeqCst);
        let line = (HeaderName::from_static("x-slow"), HeaderValue::from_static("1"));
        Box::pin(async move { Ok(if slow { vec![line] } else { Vec::new() }) })
    };
    let mut config = Config { authorize: Some(Arc::new(authorize)), ..Config::default() };
    config.calls.probe = None;
    config
}

async fn story(url: &str, direct: &str, key: Option<&str>) -> Result<String, Box<dyn Error>> {
    let client = Client::connect(url, config()).await?;
    match client.call(order(key)?.max(Some(PATIENCE))).await {
        Err(CallError::MaxTimeout { verdict, .. }) => println!("gave up: {verdict:?}"),
        other => return Err(format!("the first answer is not held back: {other:?}").into()),
    }
    let past = Client::connect(direct, Config::default()).await?;
    while past.call_tool("get_reservation", &json!({"reservationId": "res-1", "tenant": "acme"})).await?.is_error {
        tokio::task::yield_now().await;
    }
    let again = client.call(order(key)?).tool_result().await?;
    let data = again.structured.ok_or("no data")?;
    let data: Value = serde_json::from_str(data.get())?;
    Ok(data["reservationId"].as_str().ok_or("no reservation")?.to_owned())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, direct, key @ ..] = &arguments[..] else {
        println!("usage: story URL DIRECT_URL [KEY]");
        return ExitCode::from(2);
    };
    let told = |error: Box<dyn Error>| error.to_string();
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let key = key.first().map(String::as_str);
    let told = runtime.block_on(async {
        let told = tokio::time::timeout(GUARD, async { story(url, direct, key).await.map_err(told) }).await;
        told.unwrap_or_else(|_| Err("it hangs".to_owned()))
    });
    match told {
        Ok(reservation) => {
            println!("reservation {reservation}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            println!("FAILED {why}");
            ExitCode::FAILURE
        }
    }
}
