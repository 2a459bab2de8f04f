//! The servers of a world: the shipped kernel, with handlers that do what the alphabet names.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use steady_core::deadline::Limits;
use steady_core::id::RequestId;
use steady_core::kernel::tasks::{TaskServer, TaskTool};
use steady_core::kernel::{
    Answer, Call, Context, Hub, Outcome, Ports, ServerConfig, Service, Shutdown, Stats, ToolCall,
};
use steady_core::rpc::{PROTOCOL_VERSION, RpcError, method};
use steady_core::{coordinator, outbound};

use super::jobs::JOB;
use super::journal::{LOSSLESS, Log, REFUSALS};
use super::mutant::Mutant;
use super::script::{Server, World};
use super::store::{self, Death, Entry, Receipt, Store, Verdict};
use crate::world::{Group, Spawner};

/// What all processes of a world share, beside the ledger.
#[derive(Default)]
pub(super) struct Yard {
    /// How long a transaction waits before it begins, in milliseconds.
    pub(super) disk_ms: AtomicU64,
    /// The state of what clients subscribe to.
    pub(super) version: AtomicU64,
    /// Processes that have ended by themselves since the world looked.
    pub(super) exits: Mutex<VecDeque<Arc<Host>>>,
}

/// One server process.
pub(super) struct Host {
    pub(super) server: Server,
    pub(super) group: Group,
    pub(super) spawner: Spawner,
    pub(super) ports: Ports,
    pub(super) log: Log,
    pub(super) yard: Arc<Yard>,
    pub(super) store: Arc<dyn Store>,
    pub(super) tasks: Option<TaskServer>,
    pub(super) config: ServerConfig,
    pub(super) hub: Hub,
    pub(super) mutant: Option<Mutant>,
    /// How the next transaction ends, if the process dies in it.
    pub(super) death: Mutex<Option<Death>>,
    /// The process is gone: what ends with it has not ended by itself.
    pub(super) gone: std::sync::atomic::AtomicBool,
    /// A handler has panicked.
    pub(super) poisoned: std::sync::atomic::AtomicBool,
}

/// The limits of a server of this world.
pub(super) fn config(world: &World) -> ServerConfig {
    let idle = Some(world.server_idle_ms).filter(|ms| *ms > 0).map(Duration::from_millis);
    let maximum = Some(Duration::from_millis(world.server_max_ms));
    let grace = if world.mutant == Some(Mutant::NoGrace) { 100 * 3_600_000 } else { world.grace_ms };
    let capacity = if world.mutant == Some(Mutant::UnboundedBuffer) { 1 << 20 } else { world.server_buffer };
    ServerConfig {
        requests: coordinator::Config {
            in_flight: world.server_in_flight,
            stragglers: 4 * world.server_in_flight,
            limits: Limits { idle, maximum },
            ..coordinator::Config::default()
        },
        outbound: outbound::Config {
            capacity,
            lossless: if world.mutant == Some(Mutant::UnboundedBuffer) { 1 << 20 } else { LOSSLESS },
            refusals: REFUSALS,
            ..outbound::Config::default()
        },
        grace: Duration::from_millis(grace),
        write_stall: Duration::from_millis(world.write_stall_ms),
        stats: Stats::new(),
        shutdown: Shutdown::new(),
        ..ServerConfig::default()
    }
}

impl Host {
    /// The process ends here and now.
    pub(super) fn exit(self: &Arc<Self>) {
        self.yard.exits.lock().unwrap_or_else(PoisonError::into_inner).push_back(Arc::clone(self));
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Runs a call of the ledger; `None`: the process has died in it.
    fn execute(self: &Arc<Self>, wanted: &Wanted) -> Option<Verdict> {
        let death = self.death.lock().unwrap_or_else(PoisonError::into_inner).take();
        let entry = wanted.entry();
        let (verdict, wrote) = self.store.execute(&entry, death);
        self.log.lock().executed(&entry, &verdict, wrote);
        if death.is_some() {
            self.exit();
            return None;
        }
        Some(verdict)
    }
}

/// A call of the ledger that owns its text.
struct Wanted {
    order: usize,
    key: Option<u32>,
    key_text: Box<str>,
    amount: u32,
    arguments: Box<str>,
}

impl Wanted {
    fn entry(&self) -> Entry<'_> {
        let Self { order, key, key_text, amount, arguments } = self;
        Entry { order: *order, key: *key, amount: *amount, arguments, key_text }
    }
}

/// The service of one connection or exchange.
pub(super) struct Bank {
    pub(super) host: Arc<Host>,
    pub(super) link: usize,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: &'a RawValue,
    #[serde(borrow, rename = "_meta")]
    meta: Meta<'a>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "mcp-steady.dev/idempotencyKey")]
    key: Option<Cow<'a, str>>,
}

/// What the tools are told.
#[derive(Clone, Copy, Deserialize)]
struct Arguments {
    order: usize,
    #[serde(default)]
    amount: u32,
    #[serde(default)]
    steps: u32,
    #[serde(default)]
    ms: u32,
    #[serde(default)]
    bytes: u32,
}

/// Says when a handler ends, whatever way.
struct Running {
    host: Arc<Host>,
    link: usize,
    id: i64,
    answered: bool,
}

impl Running {
    fn new(host: &Arc<Host>, link: usize, id: i64) -> Self {
        host.log.lock().handler_starts(link, id);
        Self { host: Arc::clone(host), link, id, answered: false }
    }

    /// The handler's last word.
    fn answers(mut self, outcome: Outcome) -> Outcome {
        self.answered = true;
        outcome
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let killed = self.host.gone.load(Ordering::Relaxed);
        self.host.log.lock().handler_ended(self.link, self.id, self.answered, killed);
    }
}

impl Service for Bank {
    fn call(&self, call: Call, cx: Context) -> Answer {
        match &*call.method {
            method::DISCOVER => Answer::Ready(Ok(format!(
                "{{\"resultType\":\"complete\",\"supportedVersions\":[\"{PROTOCOL_VERSION}\"],\"capabilities\":{{}}}}"
            ))),
            method::LISTEN => self.host.hub.listen(&call, &cx),
            method::TOOLS_CALL => self.tool(&call, cx).unwrap_or_else(|error| Answer::Ready(Err(error))),
            other => {
                let of_tasks = self.host.tasks.as_ref().and_then(|tasks| tasks.answer(&call, &cx));
                of_tasks.unwrap_or_else(|| Answer::Ready(Err(RpcError::method_not_found(other))))
            }
        }
    }
}

impl Bank {
    fn tool(&self, call: &Call, cx: Context) -> Result<Answer, RpcError> {
        let bad = |error: serde_json::Error| RpcError::invalid_params(error.to_string());
        let Params { name, arguments, meta } = serde_json::from_str(&call.params).map_err(bad)?;
        let args: Arguments = serde_json::from_str(arguments.get()).map_err(bad)?;
        if let Some(tasks) = self.host.tasks.as_ref().filter(|_| name == JOB) {
            let (_, call) = ToolCall::read(call.clone())?;
            return Ok(tasks.create(JOB, &TaskTool::new(), &call, &cx));
        }
        let RequestId::Integer(id) = *cx.request_id() else {
            return Err(RpcError::invalid_params("the clients of this world count their requests"));
        };
        let running = Running::new(&self.host, self.link, id);
        if self.host.is(Mutant::StaysPoisoned) && self.host.poisoned.fetch_or(name == "panic", Ordering::Relaxed) {
            return Ok(Answer::Ready(running.answers(Err(RpcError::internal("poisoned by a panic")))));
        }
        Ok(match &*name {
            "read" => Answer::Ready(running.answers(Ok(text(args.bytes)))),
            "fail" => Answer::Ready(running.answers(Err(RpcError::invalid_params("this tool fails")))),
            "panic" => Answer::later(async move {
                let _running = running;
                // Without the hook, which would print it.
                std::panic::resume_unwind(Box::new("this tool panics"))
            }),
            "add" => self.add(running, cx, args, arguments.get(), meta.key.as_deref()),
            "work" => Answer::later(work(running, cx, args)),
            "flood" => Answer::later(flood(running, cx, args)),
            "hang" => Answer::later(async move {
                let over = cx.cancelled().await;
                running.answers(Err(over.into()))
            }),
            "deaf" => Answer::later(deaf(running, cx, args)),
            "stubborn" => Answer::later(async move {
                let timer = Arc::clone(&running.host.ports.timer);
                timer.sleep_until(timer.now() + Duration::from_millis(args.ms.into())).await;
                running.answers(Ok(text(8)))
            }),
            other => Answer::Ready(running.answers(Err(RpcError::invalid_params(format!("there is no tool {other}"))))),
        })
    }

    fn add(&self, running: Running, cx: Context, args: Arguments, arguments: &str, key: Option<&str>) -> Answer {
        let wanted = Wanted {
            order: args.order,
            key: key.and_then(store::key_number),
            key_text: key.unwrap_or_default().into(),
            amount: args.amount,
            arguments: arguments.into(),
        };
        let host = Arc::clone(&self.host);
        let disk = Duration::from_millis(host.yard.disk_ms.load(Ordering::Relaxed));
        if host.is(Mutant::KeyApart) && wanted.key.is_some() {
            return Answer::later(key_apart(running, cx, wanted, disk));
        }
        if disk.is_zero() && !host.is(Mutant::AnswersBeforeCommit) {
            return Answer::blocking(move || running.answers(answer(host.execute(&wanted))));
        }
        Answer::later(async move {
            // Before it begins it can be called off; once it has begun it runs to its end.
            if let Err(over) = cx.sleep_until(cx.now() + disk).await {
                return running.answers(Err(over.into()));
            }
            let verdict = host.execute(&wanted);
            if host.is(Mutant::AnswersBeforeCommit) {
                let later = Arc::clone(&host);
                host.spawner.spawn(host.group, async move {
                    later.ports.timer.sleep_until(later.ports.timer.now() + disk).await;
                    later.store.flush();
                });
            }
            // Others run between the commit and the answer.
            let _over = cx.checkpoint().await;
            running.answers(answer(verdict))
        })
    }
}

/// A server that is broken on purpose: it asks for the key, and runs the effect a little later.
async fn key_apart(running: Running, cx: Context, wanted: Wanted, disk: Duration) -> Outcome {
    let host = Arc::clone(&running.host);
    let free = host.store.is_free(&wanted.entry());
    let pause = disk.max(Duration::from_millis(5));
    if let Err(over) = cx.sleep_until(cx.now() + pause).await {
        return running.answers(Err(over.into()));
    }
    let verdict = if free {
        let (verdict, wrote) = host.store.force(&wanted.entry());
        host.log.lock().executed(&wanted.entry(), &verdict, wrote);
        Some(verdict)
    } else {
        host.execute(&wanted)
    };
    running.answers(answer(verdict))
}

async fn work(running: Running, cx: Context, args: Arguments) -> Outcome {
    for step in 1..=args.steps {
        if let Err(over) = cx.sleep_until(cx.now() + Duration::from_millis(args.ms.into())).await {
            return running.answers(Err(over.into()));
        }
        if cx.report(step.into(), Some(args.steps.into()), "") {
            running.host.log.lock().handler_reports(running.link, running.id);
        }
    }
    running.answers(Ok(text(8)))
}

async fn flood(running: Running, cx: Context, args: Arguments) -> Outcome {
    let message = "x".repeat(args.bytes as usize);
    for step in 1..=args.steps {
        running.host.log.lock().handler_reports(running.link, running.id);
        if let Err(over) = cx.report_all(step.into(), Some(args.steps.into()), &message).await {
            return running.answers(Err(over.into()));
        }
    }
    running.answers(Ok(text(8)))
}

/// Works on whatever happens, and then tries to say something all the same.
async fn deaf(running: Running, cx: Context, args: Arguments) -> Outcome {
    let timer = Arc::clone(&running.host.ports.timer);
    let until = timer.now() + Duration::from_millis(args.ms.into());
    running.host.log.lock().handler_shields(running.link, running.id, until);
    cx.uncancellable(timer.sleep_until(until)).await;
    let _taken = cx.report(1.0, None, "still here");
    running.answers(Ok(text(8)))
}

/// A result of about this length.
fn text(bytes: u32) -> String {
    let pad = "x".repeat(bytes as usize);
    format!("{{\"resultType\":\"complete\",\"content\":[{{\"type\":\"text\",\"text\":\"{pad}\"}}]}}")
}

/// What a client is told of a transaction.
fn answer(verdict: Option<Verdict>) -> Outcome {
    let refuse = |kind: &str| {
        let data = format!("{{\"type\":\"{kind}\"}}");
        Err(RpcError::invalid_params("the ledger refuses").with_data(&data))
    };
    match verdict {
        Some(Verdict::Fresh(receipt) | Verdict::Replayed(receipt)) => Ok(receipt_text(receipt)),
        Some(Verdict::Mismatch) => refuse("mismatch"),
        Some(Verdict::Expired) => refuse("expired"),
        Some(Verdict::TooOld) => refuse("too old"),
        Some(Verdict::Failed(why)) => Err(RpcError::internal(why)),
        // Nobody reads it: the process is dead.
        Some(Verdict::Died) | None => Err(RpcError::internal("the process has died")),
    }
}

fn receipt_text(Receipt { number, balance, refused }: Receipt) -> String {
    format!(
        "{{\"resultType\":\"complete\",\"content\":[],\"structuredContent\":{{\"number\":{number},\"balance\":{balance},\"refused\":{refused}}}}}"
    )
}
