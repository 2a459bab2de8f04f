//! What changed, and the listens that hear of it.

use serde_json::{Value, json};
use steady_http::steady_core::id::RequestId;
use steady_http::{Answer, Call, Context, Outcome, RpcError};
use tokio::sync::watch;

/// How often each list has changed. Who is slow hears of several changes at once.
#[derive(Clone, Copy, Default, PartialEq)]
struct Counts {
    tools: u64,
    prompts: u64,
}

/// The lists that can change.
#[derive(Default)]
pub(crate) struct Changes(watch::Sender<Counts>);

#[derive(serde::Deserialize)]
struct Params {
    notifications: Filter,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    #[serde(default)]
    tools_list_changed: bool,
    #[serde(default)]
    prompts_list_changed: bool,
}

impl Changes {
    pub(crate) fn tools_changed(&self) {
        self.0.send_modify(|counts| counts.tools += 1);
    }

    pub(crate) fn prompts_changed(&self) {
        self.0.send_modify(|counts| counts.prompts += 1);
    }

    /// Rules L1 to L4.
    pub(crate) fn listen(&self, call: &Call, cx: Context) -> Answer {
        let filter = match call.parse::<Params>() {
            Ok(params) => params.notifications,
            Err(error) => return Answer::Ready(Err(error)),
        };
        Answer::later(listen(filter, self.0.subscribe(), cx))
    }
}

async fn listen(filter: Filter, mut changes: watch::Receiver<Counts>, cx: Context) -> Outcome {
    let id = match cx.request_id() {
        RequestId::Integer(id) => Value::from(*id),
        RequestId::String(id) => Value::from(&**id),
    };
    let with_id = |mut params: Value| {
        params["_meta"]["io.modelcontextprotocol/subscriptionId"] = id.clone();
        params.to_string()
    };
    let mut honoured = json!({});
    for (name, asked) in
        [("toolsListChanged", filter.tools_list_changed), ("promptsListChanged", filter.prompts_list_changed)]
    {
        if asked {
            honoured[name] = true.into();
        }
    }
    let mut seen = *changes.borrow_and_update();
    cx.notify("notifications/subscriptions/acknowledged", &with_id(json!({"notifications": honoured}))).await?;
    loop {
        tokio::select! {
            cancelled = cx.cancelled() => return Err(cancelled.into()),
            changed = changes.changed() => changed.map_err(|_| RpcError::internal("the server is gone"))?,
        }
        let now = *changes.borrow_and_update();
        if filter.tools_list_changed && now.tools != seen.tools {
            cx.notify("notifications/tools/list_changed", &with_id(json!({}))).await?;
        }
        if filter.prompts_list_changed && now.prompts != seen.prompts {
            cx.notify("notifications/prompts/list_changed", &with_id(json!({}))).await?;
        }
        seen = now;
    }
}
