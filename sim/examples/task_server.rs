//! A server of durable tasks and its worker, for tests with real processes: both in one, or several on one ledger.

use std::future::pending;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use serde::Deserialize;
use steady_http::{ServeConfig, run_http_with};
use steady_ledger::{Background, Ledger, Options};
use steady_stdio::steady_core::kernel::tasks::{
    Created, Job, NewTask, OnChange, Progress, Stored, TaskChange, TaskConfig, TaskFeed, TaskServer, TaskState,
    TaskStore, TaskStoreError, TaskTool, Unfinished, Worker, WorkerConfig,
};
use steady_stdio::steady_core::kernel::{Hub, HubConfig, Kinds};
use steady_stdio::steady_core::mrtr::Kind;
use steady_stdio::steady_core::task::Revision;
use steady_stdio::{Context, Reply, RpcError, StdioConfig, ToolCall, Tools, run_stdio_with};

/// Serves tasks, works on them, or both.
#[derive(Parser)]
struct Args {
    /// Serves standard input and output.
    #[arg(long)]
    stdio: bool,
    /// Serves at this address.
    #[arg(long)]
    http: Option<String>,
    #[arg(long)]
    ledger: PathBuf,
    /// Who calls.
    #[arg(long, default_value = "ann")]
    principal: String,
    /// Works under this name.
    #[arg(long)]
    work: Option<String>,
    /// The length of a worker's lease, in milliseconds.
    #[arg(long, default_value_t = 30_000)]
    lease: u64,
    /// Says on standard error that a task is durable, and never answers its creation.
    #[arg(long)]
    hold_replies: bool,
}

/// Says something to whoever started this.
fn say(text: &str) {
    let _nobody_listens = writeln!(std::io::stderr(), "{text}");
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            say(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let ledger = Ledger::open(&args.ledger, Options::default())?;
    let working = args.work.as_deref().map(|owner| {
        let config = WorkerConfig { lease: Duration::from_millis(args.lease), look: LOOK, ..WorkerConfig::default() };
        let worker = worker(&ledger, owner, config);
        Background::start("worker", |timer, stop| async move { worker.run(&timer, stop).await })
    });
    let _working = working.transpose()?;
    let tasks = match args.hold_replies {
        true => TaskServer::new(Held(ledger.tasks()), TaskConfig::default()),
        false => TaskServer::new(ledger.tasks(), TaskConfig::default()),
    };
    let hub = Hub::with_config(HubConfig { offers: Kinds::TASKS, ..HubConfig::default() });
    let feed = TaskFeed::new(&tasks, hub.clone(), LOOK);
    let _publishing = Background::start("feed", |timer, stop| async move { feed.run(&timer, stop).await })?;
    let tools = tools(&tasks).subscriptions(&hub);
    if let Some(address) = &args.http {
        let mut config = ServeConfig::default();
        config.http.server.principal = Some(args.principal.as_str().into());
        return Ok(run_http_with(tools, address.as_str(), config));
    }
    if args.stdio {
        let mut config = StdioConfig::default();
        config.server.principal = Some(args.principal.as_str().into());
        say("serving");
        return Ok(run_stdio_with(tools, config));
    }
    say("working");
    loop {
        std::thread::park();
    }
}

/// How long a change of another process may go unnoticed.
const LOOK: Duration = Duration::from_millis(20);
const ANY: &str = r#"{"type":"object"}"#;
const FORM: &str = r#"{"message":"Sure?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}}}}"#;

fn tools(tasks: &TaskServer) -> Tools {
    let task = || TaskTool::new().key_argument("idempotencyKey").poll_interval(Duration::from_millis(50));
    Tools::new("task-server", "1.0.0")
        .tasks(tasks)
        .task_tool("pack", "Packs parcels, one after another.", ANY, task().message("queued"))
        .task_tool("end", "Ends as it is told.", ANY, task())
        .task_tool("confirm", "Asks two things.", ANY, task())
        .task_tool("wire", "Begins a step outside, and never hears of its outcome.", ANY, task())
        .task_or_inline_tool("double", "Doubles a number.", ANY, task(), |call: ToolCall, _cx: Context| async move {
            double(call.arguments()?)
        })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pack {
    parcels: u64,
    #[serde(default)]
    pause_ms: u64,
}

#[derive(Deserialize)]
struct Double {
    number: i64,
}

#[derive(Deserialize)]
struct End {
    how: String,
}

fn double(Double { number }: Double) -> Result<Reply, RpcError> {
    Ok(Reply::text(&(number * 2).to_string()))
}

fn worker(ledger: &Ledger, owner: &str, config: WorkerConfig) -> Worker {
    Worker::new(ledger.tasks(), owner, config)
        .report(|error| say(&format!("store: {error}")))
        .on("pack", pack)
        .on("double", |job| async move { Ok(double(job.arguments()?)?) })
        .on("end", |job| async move {
            match &*job.arguments::<End>()?.how {
                "sorry" => Ok(Reply::error("the shelf is empty")),
                "wrong" => Err(RpcError::new(-7, "no").into()),
                _ => Ok(Reply::text("good")),
            }
        })
        .on("confirm", |job| async move {
            let answers = job.ask(&[("one", Kind::Form, FORM), ("two", Kind::Form, FORM)]).await?;
            Ok(Reply::text(&format!("{} {}", answers["one"], answers["two"])))
        })
        .on("wire", |job| async move {
            job.external_started().await?;
            say(&format!("external {}", job.id()));
            pending().await
        })
}

async fn pack(job: Job) -> Result<Reply, Unfinished> {
    let Pack { parcels, pause_ms } = job.arguments()?;
    for parcel in job.resumes_after() + 1..=parcels {
        job.checkpoint(Progress::step(parcel).message(&format!("parcel {parcel}"))).await?;
        say(&format!("packed {parcel} of {}", job.id()));
        job.sleep(Duration::from_millis(pause_ms)).await?;
    }
    Ok(Reply::text(&format!("{parcels} parcels, by {}", job.lease().owner)))
}

/// Says that nobody waits for the creation of this task any more.
struct LetGo(Box<str>);

impl Drop for LetGo {
    fn drop(&mut self) {
        say(&format!("let go {}", self.0));
    }
}

/// A store whose creations are durable and never answered: the moment between the two lasts until somebody ends it.
struct Held<S>(S);

impl<S: TaskStore> TaskStore for Held<S> {
    fn create(&self, task: NewTask<'_>) -> Stored<Created> {
        let creating = self.0.create(task);
        Box::pin(async move {
            let created = creating.await?;
            say(&format!("durable {}", created.task.id));
            // Dropped when whoever answers gives the call up.
            let _held = LetGo(created.task.id);
            pending().await
        })
    }

    fn get(&self, principal: &str, id: &str) -> Stored<TaskState> {
        self.0.get(principal, id)
    }

    fn update(&self, principal: &str, id: &str, answers: Vec<(Box<str>, Box<str>)>) -> Stored<()> {
        self.0.update(principal, id, answers)
    }

    fn cancel(&self, principal: &str, id: &str) -> Stored<()> {
        self.0.cancel(principal, id)
    }

    fn changed_since(&self, since: Revision, limit: u32) -> Stored<Vec<TaskChange>> {
        self.0.changed_since(since, limit)
    }

    fn last_revision(&self) -> Stored<Revision> {
        self.0.last_revision()
    }

    fn on_change(&self, callback: &Arc<OnChange>) -> Result<(), TaskStoreError> {
        self.0.on_change(callback)
    }
}
