//! The clients of a world: the shipped client over links that come and go, and an application that calls.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use steady_core::backoff::Jitter;
use steady_core::deadline::Limits;
use steady_core::id::ClientId;
use steady_core::idempotency::Key;
use steady_core::kernel::client::{
    CallError, Caller, ClientConfig, Driver, LinkEnd, ListenEvent, Pending, Request, Turn,
};
use steady_core::kernel::{Link, Ports};
use steady_core::retry::{BudgetConfig, Safety};
use steady_core::subscription::{self, Filter};
use steady_core::transport::Transport;

use super::jobs::{self, JOB};
use super::journal::{Check, Log};
use super::mutant::Mutant;
use super::script::{Shape, Tool, World};
use super::server::Yard;
use super::store::{self, ORDER};
use super::switch::Shared;

/// How long a client waits before it asks for another link.
const PAUSE: Duration = Duration::from_millis(100);

fn config(world: &World, shape: Shape) -> ClientConfig {
    let transport = match shape {
        Shape::Stdio => Transport::Stdio,
        Shape::Http => Transport::Http,
    };
    let mut config = ClientConfig::new(transport);
    config.calls.in_flight = world.client_in_flight;
    // Attempts are the limit here: a world that runs out of its budget is another test's.
    config.calls.budget = BudgetConfig { earn_permille: 1000, reserve_per_second: 1000, capacity: 1_000_000 };
    config.limits =
        Limits { idle: Some(Duration::from_millis(world.idle_ms)), maximum: Some(Duration::from_millis(world.max_ms)) };
    config.write_stall = Duration::from_millis(world.write_stall_ms);
    config.probe = world.probe.then_some(Duration::from_secs(10));
    config.progress_buffer = 4;
    config
}

/// Starts a client process: its loop runs in the group of `ports`. `None` if the configuration is refused.
pub(super) fn start(switch: &Shared, client: usize, incarnation: u32, ports: &Ports, log: &Log) -> Option<Caller> {
    let world = switch.lock().world.clone();
    let shape = *world.clients.get(client)?;
    let jitter = Jitter::seeded(ClientId::new(client as u64), incarnation.into());
    let (ports, log, switch) = (ports.clone(), log.clone(), switch.clone());
    let timer = Arc::clone(&ports.timer);
    let caller = match shape {
        Shape::Stdio => {
            let (driver, caller) = Driver::new(config(&world, shape), timer, jitter).ok()?;
            let connect = move || switch.line(client, incarnation);
            ports.spawn.spawn(Box::pin(run(driver, connect, ports.clone(), log)));
            caller
        }
        Shape::Http => {
            let (driver, caller) = Driver::new(config(&world, shape), timer, jitter).ok()?;
            let connect = move || switch.web(client, incarnation);
            ports.spawn.spawn(Box::pin(run(driver, connect, ports.clone(), log)));
            caller
        }
    };
    Some(caller)
}

/// A client over its links, one after the other, as the transports run it.
async fn run<L: Link>(mut driver: Driver<L>, connect: impl Fn() -> L, ports: Ports, log: Log) {
    loop {
        driver.attach(connect());
        let Turn::Lost(end) = poll_fn(|cx| driver.poll(cx)).await else { return };
        log.lock().process(kind(&end));
        driver.detach(end.to_string(), String::new(), true);
        // Calls keep their clocks while there is no link.
        let mut pause = ports.timer.sleep_until(ports.timer.now() + PAUSE);
        let done = poll_fn(|cx| match driver.poll(cx) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending => pause.as_mut().poll(cx).map(|()| false),
        });
        if done.await {
            return;
        }
    }
}

fn kind(end: &LinkEnd) -> &'static str {
    #[expect(clippy::wildcard_enum_match_arm, reason = "new kinds get a name of their own when they come")]
    match end {
        LinkEnd::Closed => "link: closed by the server",
        LinkEnd::Failed(_) => "link: failed",
        LinkEnd::Stalled(_) => "link: stalled",
        LinkEnd::NoAnswer(_) => "link: no answer to server/discover",
        LinkEnd::Refused(_) => "link: server/discover refused",
        _ => "link: lost otherwise",
    }
}

/// What repeating a tool can do.
pub(super) const fn safety(tool: Tool) -> Safety {
    match tool {
        Tool::AddOnce { .. } | Tool::Job { key: Some(_), .. } => Safety::Conditional,
        Tool::Add { .. } | Tool::Job { key: None, .. } => Safety::Unsafe,
        Tool::Read { .. }
        | Tool::Work { .. }
        | Tool::Flood { .. }
        | Tool::Hang
        | Tool::Deaf { .. }
        | Tool::Stubborn { .. }
        | Tool::Fail
        | Tool::Panic => Safety::Safe,
    }
}

/// The request of a call. Its arguments are those of the first attempt, for all of them.
pub(super) fn request(world: &World, tool: Tool, order: usize) -> Request {
    let (name, arguments) = match tool {
        Tool::Read { bytes } => ("read", format!("\"bytes\":{bytes}")),
        Tool::Add { amount } => ("add", format!("\"amount\":{amount}")),
        Tool::AddOnce { amount, .. } => ("add", format!("\"amount\":{amount}")),
        Tool::Work { steps, step_ms } => ("work", format!("\"steps\":{steps},\"ms\":{step_ms}")),
        Tool::Flood { steps, bytes } => ("flood", format!("\"steps\":{steps},\"bytes\":{bytes}")),
        Tool::Job { steps, step_ms, .. } => (JOB, format!("\"steps\":{steps},\"ms\":{step_ms}")),
        Tool::Hang => ("hang", "\"ms\":0".to_owned()),
        Tool::Deaf { ms } => ("deaf", format!("\"ms\":{ms}")),
        Tool::Stubborn { ms } => ("stubborn", format!("\"ms\":{ms}")),
        Tool::Fail => ("fail", "\"ms\":0".to_owned()),
        Tool::Panic => ("panic", "\"ms\":0".to_owned()),
    };
    let params = format!("{{\"name\":\"{name}\",\"arguments\":{{\"{ORDER}\":{order},{arguments}}}}}");
    let more = u16::from(world.mutant == Some(Mutant::OneAttemptMore));
    let request = Request::raw("tools/call", params).attempts(world.attempts + more);
    let request = if name == JOB { request.with_tasks() } else { request };
    let request = match (safety(tool), tool) {
        (Safety::Safe, _) => request.safe(),
        (Safety::Unsafe, _) if world.mutant == Some(Mutant::ResendsUnsafe) => request.safe(),
        (Safety::Conditional, Tool::AddOnce { key, .. }) => match Key::parse(&store::key_text(key, world.horizon_ms)) {
            Ok(key) => request.key(key),
            Err(_) => request,
        },
        (Safety::Conditional, Tool::Job { key: Some(key), .. }) => match Key::parse(&format!("job-{key}")) {
            Ok(key) => request.key(key),
            Err(_) => request,
        },
        (Safety::Unsafe | Safety::Conditional, _) => request,
    };
    if world.mutant == Some(Mutant::NoMaximum) { request.max(None) } else { request }
}

/// Waits for the end of a call, and tells it; also if it is dropped before it was looked at. The id of the task that the
/// call became, if it did.
pub(super) fn watch(
    mut pending: Pending,
    order: usize,
    reads: bool,
    mutant: Option<Mutant>,
    told: Told,
) -> impl Future<Output = Option<Box<str>>> + Send {
    let watch = Watch { told, order, over: false };
    async move {
        if reads {
            while pending.progress().await.is_some() {
                watch.told.log.lock().count("client: progress read");
            }
        }
        let outcome = match pending.await {
            Err(CallError::Unknown { loss, verdict }) if mutant == Some(Mutant::SaysNeverSent) => {
                Err(CallError::NeverSent { loss, verdict })
            }
            outcome => outcome,
        };
        if mutant == Some(Mutant::Panics) && outcome.is_err() {
            // Without the hook, which would print it.
            std::panic::resume_unwind(Box::new("an application panics"));
        }
        if mutant == Some(Mutant::EndsTwice) {
            watch.told.log.lock().ended(order, &outcome);
        }
        let task = outcome.as_ref().ok().and_then(|result| jobs::task_id(result.get()));
        watch.ends(&outcome, mutant == Some(Mutant::NeverEnds));
        task
    }
}

/// A reader of a subscription: it knows the state of the list when it was told last, and reads it afresh after a gap.
/// `None`: the client takes no subscription.
pub(super) fn hears(
    caller: &Caller,
    jitter: Jitter,
    name: (usize, u32),
    yard: Arc<Yard>,
    (log, mutant): (&Log, Option<Mutant>),
) -> Option<impl Future<Output = ()> + Send + use<>> {
    let filter = Filter::parse("{\"toolsListChanged\":true}").ok()?;
    let config = subscription::Config { reopen_after_end: true, ..subscription::Config::default() };
    let mut listener = caller.listen(filter, config, jitter).ok()?;
    log.lock().listens(name);
    let over = Deaf { log: log.clone(), name };
    Some(async move {
        loop {
            let event = listener.next().await;
            let version = yard.version.load(Ordering::Relaxed);
            match event {
                ListenEvent::Notice(_) => over.log.lock().heard(name, version, "listen: notice"),
                ListenEvent::Gap { .. } if mutant == Some(Mutant::SwallowsGaps) => listener.refetched(),
                ListenEvent::Gap { .. } => {
                    over.log.lock().heard(name, version, "listen: gap");
                    listener.refetched();
                }
                ListenEvent::Ended(_) => return,
            }
        }
    })
}

/// Says when a reader is gone.
struct Deaf {
    log: Log,
    name: (usize, u32),
}

impl Drop for Deaf {
    fn drop(&mut self) {
        self.log.lock().hears_no_more(self.name);
    }
}

/// To whom the end of a call is told.
#[derive(Clone)]
pub(super) struct Told {
    pub(super) log: Log,
    /// The client process is gone.
    pub(super) gone: Arc<AtomicBool>,
}

struct Watch {
    told: Told,
    order: usize,
    over: bool,
}

impl Watch {
    fn ends(mut self, outcome: &Result<steady_core::kernel::client::Raw, CallError>, silent: bool) {
        self.over = true;
        if !silent {
            self.told.log.lock().ended(self.order, outcome);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.over {
            self.told.log.lock().dropped(self.order, self.told.gone.load(Ordering::Relaxed));
        }
    }
}

/// A client whose configuration is refused: a fault of the world.
pub(super) fn refused(log: &Log, client: usize) {
    log.lock().broken(Check::ComesToRest, format!("client {client} does not start"));
}
