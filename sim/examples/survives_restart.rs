//! A client that survives the death of its server, in the middle of a listen and of a task, over stdio and over HTTP.
//!
//! `cargo run -p mcp-steady-sim --example survives_restart`. It starts itself as the server, kills that with SIGKILL while a
//! subscription is open and a task runs, sells the last of the stock meanwhile, and says what the client then does.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use serde_json::json;
use steady_core::idempotency::Key;
use steady_core::kernel::client::{Called, Caller, Change, Fresh, Request, TaskHandle, TaskOptions};
use steady_core::kernel::tasks::{Job, TaskConfig, TaskServer, TaskTool, Worker, WorkerConfig};
use steady_core::kernel::{Contents, Hub, Reply, Resource, Resources, Tools};
use steady_core::rpc::RpcError;
use steady_core::subscription::Filter;
use steady_ledger::{Background, Ledger, Options};

type Failed = Box<dyn Error + Send + Sync>;

const RECORD: &str = "stock://widget";
const ANYTHING: &str = r#"{"type":"object"}"#;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [serve, link, dir] if serve == "--serve" => server(link, Path::new(dir)),
        _ => match client() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(&format!("error: {error}"));
                ExitCode::FAILURE
            }
        },
    }
}

fn say(line: &str) {
    let _nobody_listens = writeln!(std::io::stdout(), "{line}");
}

/// The server: a record with updates, a tool that sells, and one that ships as a durable task.
fn server(link: &str, dir: &Path) -> ExitCode {
    let (hub, stock) = (Hub::new(), dir.join("stock"));
    let ledger = match Ledger::open(dir.join("tasks.db"), Options::default()) {
        Ok(ledger) => ledger,
        Err(error) => panic!("{}: {error}", dir.display()),
    };
    let tasks = TaskServer::new(ledger.tasks(), TaskConfig::default());
    // What a dead server had claimed is free after a second.
    let config =
        WorkerConfig { lease: Duration::from_secs(1), look: Duration::from_millis(100), ..WorkerConfig::default() };
    let worker = Worker::new(ledger.tasks(), &format!("worker-{}", std::process::id()), config).on("ship", ship);
    let _worker = Background::start("worker", |timer, stop| async move { worker.run(&timer, stop).await });
    let record = stock.clone();
    let read = move |_read, _cx| {
        let text = std::fs::read_to_string(&record).map_err(|error| RpcError::internal(error.to_string()))?;
        Ok(Some(Contents::text("text/plain", &text)))
    };
    let (changed, record) = (hub.clone(), stock);
    let tools = Tools::new("shop", "1.0.0")
        .resources(Resources::new().blocking_resource(Resource::new(RECORD, "widgets in stock"), read))
        .subscriptions(&hub)
        .tasks(&tasks)
        .blocking_tool("sell", "Sells all but one.", ANYTHING, move |_call, _cx| {
            std::fs::write(&record, "1").map_err(|error| RpcError::internal(error.to_string()))?;
            changed.resource_updated(RECORD);
            Ok(Reply::text("sold"))
        })
        .task_tool("ship", "Ships, slowly.", ANYTHING, TaskTool::new());
    if link == "stdio" { steady_stdio::run_stdio(tools) } else { steady_http::run_http(tools, link) }
}

async fn ship(job: Job) -> Result<Reply, steady_core::kernel::tasks::Unfinished> {
    job.sleep(Duration::from_secs(1)).await?;
    Ok(Reply::text("shipped"))
}

fn client() -> Result<(), Failed> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let dir = tempfile::tempdir()?;
        say("over stdio");
        over_stdio(dir.path()).await?;
        let dir = tempfile::tempdir()?;
        say("over HTTP");
        over_http(dir.path()).await
    })
}

async fn over_stdio(dir: &Path) -> Result<(), Failed> {
    use steady_stdio::client::{Client, Command, Restart};
    std::fs::write(dir.join("stock"), "9")?;
    let command = Command::new(std::env::current_exe()?).args(["--serve", "stdio"]).args([dir]);
    let client = Client::spawn(command.restart(Restart::default())).await?;
    let watched = client.clone();
    story(&client, dir, async move {
        let pid = watched.status().pid.ok_or("no server")?;
        kill(pid)?;
        watched.watch().wait_for(|status| status.restarts == 1).await?;
        Ok(())
    })
    .await?;
    client.shutdown().await;
    Ok(())
}

async fn over_http(dir: &Path) -> Result<(), Failed> {
    use steady_http::client::{Client, Config};
    std::fs::write(dir.join("stock"), "9")?;
    let (mut server, address) = serve("127.0.0.1:0", dir)?;
    let client = Client::connect(&format!("http://{address}/mcp"), Config::default()).await?;
    let (restarted, again) = std::sync::mpsc::channel();
    let folder = dir.to_owned();
    story(&client, dir, async move {
        kill(server.id())?;
        server.wait()?;
        restarted.send(serve(&address, &folder)?)?;
        Ok(())
    })
    .await?;
    client.shutdown().await;
    let (mut server, _) = again.recv()?;
    server.kill()?;
    server.wait()?;
    Ok(())
}

/// This program as an HTTP server, and where it serves.
fn serve(address: &str, dir: &Path) -> Result<(Child, String), Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    let mut server = command.args(["--serve", address]).arg(dir).stderr(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(server.stderr.take().ok_or("no standard error")?).read_line(&mut line)?;
    let address = line.trim().strip_prefix("serving http://").and_then(|at| at.strip_suffix("/mcp"));
    Ok((server, address.ok_or_else(|| format!("it does not serve: {line}"))?.to_owned()))
}

fn kill(pid: u32) -> Result<(), Failed> {
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status()?;
    if killed.success() { Ok(()) } else { Err(format!("process {pid} cannot be killed").into()) }
}

/// What the client does; `death` kills the server and waits for the next one.
async fn story(client: &Caller, dir: &Path, death: impl Future<Output = Result<(), Failed>>) -> Result<(), Failed> {
    let mut changes = client.changes(Filter::parse(&json!({"resourceSubscriptions": [RECORD]}).to_string())?)?;
    // The listen begins with a read of the record. Once that is done, a sale is told.
    let notice = loop {
        match tokio::time::timeout(Duration::from_secs(1), changes.next()).await {
            Ok(Change::Notice(notice)) => break notice,
            Ok(Change::Gap { .. } | Change::Fresh { .. }) => {}
            Err(_quiet) => drop(client.call(Request::tool("sell", &json!({}))).tool_result().await?),
            Ok(other @ (Change::Unreadable { .. } | Change::Ended(_))) => {
                return Err(format!("unexpected: {other:?}").into());
            }
        }
    };
    say(&format!("  told: {}", notice.method));
    let task = ordered(client).await?;
    say("  a task: it is being shipped");
    std::fs::write(dir.join("stock"), "0")?;
    death.await?;
    say("  the server was killed, and is there again; the last one was sold meanwhile");
    loop {
        match changes.next().await {
            Change::Gap { .. } => {
                say("  the listen is back: something may have been missed, it is read before anything else")
            }
            Change::Fresh { state: Fresh::One(record), .. } => {
                let left = record.get().contains("\"text\":\"0\"");
                say(if left { "  read afresh: 0 left, nothing is ordered" } else { "  read afresh: some are left" });
                if left {
                    break;
                }
            }
            Change::Notice(_) => {}
            other @ (Change::Fresh { .. } | Change::Unreadable { .. } | Change::Ended(_)) => {
                return Err(format!("unexpected: {other:?}").into());
            }
        }
    }
    // The id is all that it takes, in this process or in another.
    let id = task.id().to_owned();
    let result = client.task(&id).finish(TaskOptions::default()).await?;
    say(&format!("  the task went on without us: {}", result.text()));
    let again = ordered(client).await?;
    if again.id() != id {
        return Err("the same order became a second task".into());
    }
    say("  the same order once more: the same task");
    Ok(())
}

async fn ordered(client: &Caller) -> Result<TaskHandle, Failed> {
    match client.call_or_task(Request::tool("ship", &json!({})).key(Key::parse("order-7")?)).await? {
        Called::Task(task) => Ok(task),
        Called::Done(result) => Err(format!("no task: {}", result.text()).into()),
    }
}
