//! Tools that become tasks, over a ledger that lasts as long as the server, and the workers that do them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use steady_http::steady_core::kernel::tasks::{
    Job, Start, TaskConfig, TaskServer, TaskTool, Unfinished, Worker, WorkerConfig, declares_tasks, undeclared,
};
use steady_http::steady_core::mrtr::Kind;
use steady_http::{Answer, Call, Context, Reply, RpcError, ToolCall};
use steady_ledger::{Background, Ledger, Options};

use crate::input::States;

/// The tools, and whether a client without the extension may call them.
pub(crate) const TOOLS: [(&str, &str, bool); 6] = [
    ("slow_compute", "Takes as many seconds as it is told.", true),
    ("failing_job", "Fails after a second, so that a model can see it.", false),
    ("protocol_error_job", "Fails with an error of the protocol.", false),
    ("confirm_delete", "Asks before it deletes nothing.", false),
    ("multi_input", "Asks for two things at once.", false),
    (ESCALATES, "Asks for a name, then becomes a task.", false),
];
const ESCALATES: &str = "test_tool_with_task";
/// How many tasks run at once.
const WORKERS: usize = 4;
/// How long a cancellation can go unheard of.
const LOOK: Duration = Duration::from_millis(500);

const CONFIRM: &str = r#"{"mode":"form","message":"Sure?","requestedSchema":{"type":"object","properties":{"confirm":{"type":"boolean"}},"required":["confirm"]}}"#;
const NAME: &str = r#"{"mode":"form","message":"A name, please.","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}"#;

/// The tasks of this server.
pub(crate) struct Tasks {
    pub(crate) server: TaskServer,
    tools: BTreeMap<&'static str, TaskTool>,
    _workers: Vec<Background>,
    _folder: tempfile::TempDir,
}

impl Tasks {
    pub(crate) fn start(states: &std::sync::Arc<States>) -> Result<Self, Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let ledger = Ledger::open(folder.path().join("tasks.db"), Options::default())?;
        let server = TaskServer::new(ledger.tasks(), TaskConfig::default());
        let states = std::sync::Arc::clone(states);
        let escalates = TaskTool::new().prepare(move |call, cx| Ok(escalate(states.name(&call.call, cx)?)));
        let mut tools: BTreeMap<_, _> = TOOLS.iter().map(|(name, ..)| (*name, TaskTool::new())).collect();
        tools.insert(ESCALATES, escalates);
        let workers = (1..=WORKERS).map(|number| work(&ledger, number)).collect::<Result<_, _>>()?;
        let server = server.named("steady-conformance", env!("CARGO_PKG_VERSION"));
        Ok(Self { server, tools, _workers: workers, _folder: folder })
    }

    /// Answers a call of a tool that becomes a task.
    pub(crate) fn call(&self, name: &str, call: Call, cx: &Context) -> Answer {
        let optional = TOOLS.iter().any(|(tool, _, optional)| *tool == name && *optional);
        let Some(tool) = self.tools.get(name) else {
            return Answer::Ready(Err(RpcError::invalid_params(format!("there is no tool {name:?}"))));
        };
        let call = match ToolCall::read(call) {
            Ok((_, call)) => call,
            Err(error) => return Answer::Ready(Err(error)),
        };
        match declares_tasks(&call.call.params) {
            true => self.server.create(name, tool, &call, cx),
            false if optional => Answer::later(compute_inline(call, cx.clone())),
            false => Answer::Ready(Err(undeclared())),
        }
    }
}

/// What follows from the name that a client gave, or from the question that asks for it.
fn escalate(name: Result<String, String>) -> Start {
    match name {
        Ok(name) => Start::Task(json!({"name": name}).to_string().into()),
        Err(question) => Start::Answer(question),
    }
}

fn work(ledger: &Ledger, number: usize) -> std::io::Result<Background> {
    let config = WorkerConfig { look: LOOK, ..WorkerConfig::default() };
    let worker = Worker::new(ledger.tasks(), &format!("worker-{number}"), config)
        .on("slow_compute", compute)
        .on("failing_job", |job| async move {
            job.sleep(Duration::from_secs(1)).await?;
            Ok(Reply::error("This job always fails."))
        })
        .on("protocol_error_job", |_job| async { Err(RpcError::internal("This job breaks.").into()) })
        .on("confirm_delete", |job| async move {
            let answers = job.ask(&[("confirm", Kind::Form, CONFIRM)]).await?;
            Ok(Reply::text(&format!("Deleted nothing: {}", answers["confirm"])))
        })
        .on("multi_input", |job| async move {
            let answers = job.ask(&[("first", Kind::Form, NAME), ("second", Kind::Form, NAME)]).await?;
            Ok(Reply::text(&format!("{} and {}", answers["first"], answers["second"])))
        })
        .on(ESCALATES, |job| async move {
            #[derive(Deserialize)]
            struct Named {
                name: String,
            }
            Ok(Reply::text(&format!("Hello, {}!", job.arguments::<Named>()?.name)))
        });
    Background::start("task worker", |timer, stop| async move { worker.run(&timer, stop).await })
}

#[derive(Deserialize)]
struct Compute {
    #[serde(default)]
    seconds: u64,
    #[serde(default)]
    label: String,
}

impl Compute {
    fn done(&self) -> Reply {
        Reply::text(&format!("{} took {} s.", self.label, self.seconds))
    }
}

async fn compute(job: Job) -> Result<Reply, Unfinished> {
    let compute: Compute = job.arguments()?;
    job.sleep(Duration::from_secs(compute.seconds)).await?;
    Ok(compute.done())
}

async fn compute_inline(call: ToolCall, cx: Context) -> steady_http::Outcome {
    let compute: Compute = call.arguments()?;
    cx.sleep_until(cx.now() + Duration::from_secs(compute.seconds)).await?;
    Ok(compute.done().result())
}
