//! Connects clients and servers: children behind line links, replicas behind a POST for each request, and a proxy's doings.

use std::future::poll_fn;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use steady_core::id::RequestId;
use steady_core::kernel::{Connection, Exchange, Hub};
use steady_core::rpc::{self, Message, encode, method};

use super::jobs;
use super::journal::{Check, Log};
use super::mutant::Mutant;
use super::script::{Server, Shape, Way, World};
use super::server::{Bank, Host, Yard, config};
use super::store::Vault;
use crate::world::{Arrived, LineEnd, Observer, Pipe, Posted, Spawner, Weather, Web, WebLink};

/// What a client's links go through.
#[derive(Clone, Copy, Default)]
struct Path {
    up: Weather,
    down: Weather,
    /// The next POST is sent twice.
    doubles: bool,
}

/// Everything between clients and servers, and the servers.
pub(super) struct Switch {
    pub(super) world: World,
    pub(super) spawner: Spawner,
    pub(super) log: Log,
    pub(super) yard: Arc<Yard>,
    pub(super) vault: Box<dyn Vault>,
    pub(super) replicas: Vec<Option<Arc<Host>>>,
    pub(super) children: Vec<Option<Arc<Host>>>,
    pub(super) workers: Vec<Option<Arc<Host>>>,
    /// Children whose client process is gone, and which may not know it yet.
    pub(super) orphans: Vec<Arc<Host>>,
    /// Which incarnation of its client each child is of.
    parents: Vec<Option<u32>>,
    paths: Vec<Path>,
    pipes: Vec<(usize, Way, Pipe)>,
    next_route: usize,
}

/// A switch that clients share.
#[derive(Clone)]
pub(super) struct Shared(Arc<Mutex<Switch>>);

impl Shared {
    pub(super) fn new(world: World, spawner: Spawner, log: Log, vault: Box<dyn Vault>) -> Self {
        let weather = Weather { delay: Duration::from_millis(world.delay_ms), ..Weather::default() };
        let paths = vec![Path { up: weather, down: weather, doubles: false }; world.clients.len()];
        let (replicas, children) = (vec![None; world.replicas], vec![None; world.clients.len()]);
        let workers = vec![None; world.workers];
        let (yard, pipes, orphans) = Default::default();
        let parents = vec![None; world.clients.len()];
        let next_route = 0;
        Self(Arc::new(Mutex::new(Switch {
            world,
            spawner,
            log,
            yard,
            vault,
            replicas,
            children,
            workers,
            orphans,
            parents,
            paths,
            pipes,
            next_route,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Switch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new link of a client to a child process of its own, which starts with it.
    pub(super) fn line(&self, client: usize, incarnation: u32) -> LineEnd<ClientSide> {
        let mut switch = self.lock();
        let host = switch.start(Server::Child(client));
        let link = switch.log.lock().connect(Shape::Stdio, client, host.server);
        let (up, down) = (switch.pipe(client, Way::Up), switch.pipe(client, Way::Down));
        let log = switch.log.clone();
        let mutant = switch.world.mutant;
        let server = LineEnd::new(up.clone(), down.clone(), ServerSide { log: log.clone(), link, mutant });
        let bank = Bank { host: Arc::clone(&host), link };
        let connection = Connection::new(bank, server, host.ports.clone(), host.config.clone());
        let (process, ended) = (Arc::clone(&host), log.clone());
        switch.spawner.spawn(host.group, async move {
            let end = match connection.await {
                Ok(_) => "a server process has served its client",
                Err(_) => "a server process has lost its client",
            };
            ended.lock().process(end);
            process.exit();
        });
        if let Some((old, of)) = switch.children[client].replace(host).zip(switch.parents[client].replace(incarnation))
        {
            // Whoever starts another child has killed the one before; of a parent that died it lives until it notices.
            if of == incarnation { old.exit() } else { switch.orphans.push(old) }
        }
        LineEnd::new(down, up, ClientSide { log, link, incarnation, mutant })
    }

    /// A new link of a client to the replicas.
    pub(super) fn web(&self, client: usize, incarnation: u32) -> WebLink<ClientWeb> {
        let switch = self.lock();
        let (log, mutant) = (switch.log.clone(), switch.world.mutant);
        let web = ClientWeb { switch: self.clone(), log, client, incarnation, mutant, links: Default::default() };
        WebLink::new(switch.spawner.clone(), web)
    }
}

impl Switch {
    /// A server process starts.
    pub(super) fn start(&mut self, server: Server) -> Arc<Host> {
        let group = self.spawner.group();
        let ports = self.spawner.ports(group);
        let store = match self.vault.open() {
            Ok(store) => store,
            Err(why) => {
                self.log.lock().broken(Check::DurableAnswer, format!("the ledger does not open: {why}"));
                Arc::new(super::store::NoStore)
            }
        };
        let mut log = self.log.lock();
        log.process("a server process starts");
        log.starts_anew(server);
        drop(log);
        Arc::new(Host {
            server,
            group,
            spawner: self.spawner.clone(),
            ports,
            log: self.log.clone(),
            yard: Arc::clone(&self.yard),
            tasks: store.tasks().map(|tasks| jobs::server(tasks, &self.world, &self.log)),
            store,
            config: config(&self.world),
            hub: Hub::new(),
            mutant: self.world.mutant,
            death: Mutex::default(),
            gone: false.into(),
            poisoned: false.into(),
        })
    }

    pub(super) fn host(&self, server: Server) -> Option<&Arc<Host>> {
        let (all, at) = match server {
            Server::Child(at) => (&self.children, at),
            Server::Replica(at) => (&self.replicas, at),
            Server::Worker(at) => (&self.workers, at),
        };
        all.get(at)?.as_ref()
    }

    pub(super) fn take_host(&mut self, server: Server) -> Option<Arc<Host>> {
        let (all, at) = match server {
            Server::Child(at) => (&mut self.children, at),
            Server::Replica(at) => (&mut self.replicas, at),
            Server::Worker(at) => (&mut self.workers, at),
        };
        all.get_mut(at)?.take()
    }

    fn pipe(&mut self, client: usize, way: Way) -> Pipe {
        self.pipes.retain(|(_, _, pipe)| !pipe.is_over());
        let Path { up, down, .. } = self.paths[client];
        let weather = if way == Way::Up { up } else { down };
        let pipe = Pipe::new(self.spawner.clone(), self.world.pipe_bytes, weather);
        self.pipes.push((client, way, pipe.clone()));
        pipe
    }

    /// Changes what one direction of a client's links is like, for those that are there and those to come.
    pub(super) fn change(&mut self, client: usize, way: Way, change: impl Fn(&mut Weather)) {
        let Some(path) = self.paths.get_mut(client) else { return };
        let weather = if way == Way::Up { &mut path.up } else { &mut path.down };
        change(weather);
        let weather = *weather;
        self.pipes.iter().filter(|(of, to, _)| *of == client && *to == way).for_each(|(_, _, pipe)| pipe.set(weather));
    }

    /// Breaks all connections of a client.
    pub(super) fn cut(&mut self, client: usize) {
        self.pipes.iter().filter(|(of, ..)| *of == client).for_each(|(_, _, pipe)| pipe.cut());
    }

    pub(super) fn double(&mut self, client: usize) {
        if let Some(path) = self.paths.get_mut(client) {
            path.doubles = true;
        }
    }

    /// All is well again.
    pub(super) fn heal(&mut self) {
        let delay = Duration::from_millis(self.world.delay_ms);
        for client in 0..self.paths.len() {
            self.paths[client].doubles = false;
            for way in [Way::Up, Way::Down] {
                self.change(client, way, |weather| *weather = Weather { delay, ..Weather::default() });
            }
        }
        self.yard.disk_ms.store(0, Ordering::Relaxed);
        for host in self.replicas.iter().chain(&self.children).flatten() {
            host.death.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    /// Bytes that are on their way or unread.
    pub(super) fn waiting(&self) -> usize {
        self.pipes.iter().map(|(_, _, pipe)| pipe.waiting()).sum()
    }

    /// The replica that the load balancer picks.
    fn route(&mut self) -> Option<Arc<Host>> {
        self.next_route += 1;
        let replica = self.next_route % self.replicas.len();
        let host = self.replicas[replica].as_ref().filter(|host| !host.config.shutdown.is_draining());
        host.map(Arc::clone)
    }

    /// Connects an exchange to a replica.
    fn exchange(&mut self, client: usize, host: &Arc<Host>) -> (usize, Pipe, Pipe) {
        let link = self.log.lock().connect(Shape::Http, client, host.server);
        let (up, down) = (self.pipe(client, Way::Up), self.pipe(client, Way::Down));
        let ends = Ends { up: up.clone(), down: down.clone() };
        self.spawner.spawn(host.group, serve(Arc::clone(host), self.log.clone(), link, ends));
        (link, up, down)
    }
}

/// A server's end of a connection, which closes whatever way its exchange ends.
struct Ends {
    up: Pipe,
    down: Pipe,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.down.end();
        self.up.leave();
    }
}

/// One exchange: a request in, its messages out while there is room for them, and the end of the connection as its cancellation.
async fn serve(host: Arc<Host>, log: Log, link: usize, ends: Ends) {
    let Ends { up, down } = &ends;
    let mut request = Vec::new();
    while request.last() != Some(&b'\n') {
        if poll_fn(|cx| up.poll_read(cx, &mut request)).await != Arrived::Bytes {
            return;
        }
    }
    let text = str::from_utf8(&request).unwrap_or_default().trim_end();
    log.lock().server_read(link, text);
    let bank = Arc::new(Bank { host: Arc::clone(&host), link });
    let mut exchange = Exchange::start(bank, host.ports.clone(), host.config.clone(), text);
    let (mut out, mut last, mut alone) = (Vec::new(), None, false);
    poll_fn(|cx| {
        loop {
            if !alone && up.poll_read(cx, &mut request).is_ready() {
                log.lock().disconnected(link);
                alone = true;
            }
            if alone && host.mutant != Some(Mutant::IgnoresDisconnect) {
                return Poll::Ready(());
            }
            if alone {
                out.clear();
            }
            while !out.is_empty() {
                match down.poll_write(cx, &out) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(count)) => drop(out.drain(..count)),
                    Poll::Ready(Err(_)) => out.clear(),
                }
            }
            if last == Some(true) {
                return Poll::Ready(());
            }
            let Poll::Ready(more) = exchange.poll_message(cx, &mut out) else { return Poll::Pending };
            let Some(is_last) = more else { return Poll::Ready(()) };
            last = Some(is_last);
            let messages = forged(&log, link, host.mutant, &out).unwrap_or_else(|| vec![text_of(&out)]);
            out.clear();
            for message in messages {
                let mut log = log.lock();
                let mark = log.moment();
                log.server_wrote(link, mark, &message);
                out.extend_from_slice(message.as_bytes());
                out.push(b'\n');
            }
        }
    })
    .await;
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a server that is broken on purpose sends instead of a message.
fn forged(log: &Log, link: usize, mutant: Option<Mutant>, message: &[u8]) -> Option<Vec<String>> {
    let mutant = mutant?;
    let text = text_of(message);
    match (mutant, rpc::parse(&text).ok()?) {
        (Mutant::AnswersTwice, Message::Response { id: Some(RequestId::Integer(_)), .. }) => {
            Some(vec![text.clone(), text])
        }
        (Mutant::DropsFinal, Message::Response { id: Some(RequestId::Integer(id)), .. })
            if log.lock().has_progress(link, id) =>
        {
            Some(Vec::new())
        }
        (Mutant::AsksClient, Message::Response { id: Some(RequestId::Integer(_)), .. }) => {
            Some(vec![text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{}}".to_owned()])
        }
        (Mutant::ListensUnacknowledged, Message::Notification { method, .. }) if method == method::ACKNOWLEDGED => {
            Some(Vec::new())
        }
        (Mutant::RepeatsProgress, Message::Notification { method, .. }) if method == method::PROGRESS => {
            Some(vec![text.clone(), text])
        }
        _ => None,
    }
}

/// Looks at the server's end of a line link.
pub(super) struct ServerSide {
    log: Log,
    link: usize,
    mutant: Option<Mutant>,
}

impl Observer for ServerSide {
    fn starts(&mut self) -> u64 {
        self.log.lock().moment()
    }

    fn wrote(&mut self, mark: u64, line: &str) {
        self.log.lock().server_wrote(self.link, mark, line);
    }

    fn read(&mut self, line: &str) -> bool {
        self.log.lock().server_read(self.link, line);
        self.mutant != Some(Mutant::AnswersAfterCancel) || !line.contains(method::CANCELLED)
    }

    fn forge(&mut self, line: &str) -> Option<Vec<String>> {
        forged(&self.log, self.link, self.mutant, line.as_bytes())
    }

    fn forges(&self) -> bool {
        matches!(
            self.mutant,
            Some(
                Mutant::AnswersTwice
                    | Mutant::DropsFinal
                    | Mutant::RepeatsProgress
                    | Mutant::AsksClient
                    | Mutant::ListensUnacknowledged
            )
        )
    }
}

/// Looks at the client's end of a line link.
pub(super) struct ClientSide {
    log: Log,
    link: usize,
    incarnation: u32,
    mutant: Option<Mutant>,
}

impl Observer for ClientSide {
    fn starts(&mut self) -> u64 {
        self.log.lock().moment()
    }

    fn wrote(&mut self, _: u64, line: &str) {
        self.log.lock().client_wrote(self.link, self.incarnation, line);
    }

    fn read(&mut self, line: &str) -> bool {
        self.log.lock().client_read(self.link, line);
        true
    }

    fn forge(&mut self, line: &str) -> Option<Vec<String>> {
        Some(vec![forged_request(line, self.mutant).unwrap_or_else(|| line.to_owned())])
    }

    fn forges(&self) -> bool {
        matches!(self.mutant, Some(Mutant::NewKey | Mutant::ReusesIds))
    }
}

/// What a client that is broken on purpose sends instead of a request: the same under a key of its own, or under the id of
/// the first.
fn forged_request(line: &str, mutant: Option<Mutant>) -> Option<String> {
    let Ok(Message::Request { id: RequestId::Integer(id), .. }) = rpc::parse(line) else { return None };
    if mutant == Some(Mutant::ReusesIds) {
        return Some(line.replacen(&format!("\"id\":{id},"), "\"id\":1,", 1));
    }
    if mutant != Some(Mutant::NewKey) {
        return None;
    }
    let (before, after) = line.split_at(line.find("\"key-")? + 5);
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    let (key, after) = after.split_at(digits);
    Some(format!("{before}{key}.{id}{after}"))
}

/// Carries a client's POSTs to the replicas.
pub(super) struct ClientWeb {
    switch: Shared,
    log: Log,
    client: usize,
    incarnation: u32,
    mutant: Option<Mutant>,
    links: std::collections::BTreeMap<RequestId, usize>,
}

impl ClientWeb {
    fn posted(&mut self, id: &RequestId, link: usize, message: &str, posted: Posted) -> Posted {
        self.links.insert(id.clone(), link);
        self.log.lock().client_wrote(link, self.incarnation, message);
        posted
    }
}

impl Web for ClientWeb {
    fn post(&mut self, id: &RequestId, message: &str) -> Posted {
        let forged = forged_request(message, self.mutant);
        let message = forged.as_deref().unwrap_or(message);
        let shared = self.switch.clone();
        let mut switch = shared.lock();
        // A stream that stays open is none that a proxy would ask for again.
        let doubled = !message.contains(method::LISTEN) && std::mem::take(&mut switch.paths[self.client].doubles);
        let host = switch.route();
        let Some(host) = host else {
            let mut log = self.log.lock();
            let link = log.connect(Shape::Http, self.client, Server::Replica(0));
            log.client_wrote(link, self.incarnation, message);
            if let RequestId::Integer(id) = id {
                log.refused(link, *id);
            }
            let there_and_back = 2 * switch.paths[self.client].up.delay;
            return Posted::Refused(switch.spawner.now() + there_and_back);
        };
        let (link, up, down) = switch.exchange(self.client, &host);
        send(&up, message);
        if doubled && let Some(other) = switch.route() {
            // The proxy gives up on the first answer, not on the request that it sent.
            down.abandon();
            self.log.lock().count("proxy: POST sent twice");
            let (link, up, down) = switch.exchange(self.client, &other);
            send(&up, message);
            return self.posted(id, link, message, Posted::Stream { up, down });
        }
        self.posted(id, link, message, Posted::Stream { up, down })
    }

    fn read(&mut self, id: &RequestId, message: &str) -> bool {
        let link = self.links.get(id).copied().unwrap_or_default();
        self.log.lock().client_read(link, message);
        true
    }

    fn closes(&mut self, id: &RequestId) {
        let link = self.links.remove(id).unwrap_or_default();
        let mut log = self.log.lock();
        log.count("signal: response stream closed");
        log.process("a client closes a response stream");
        if self.mutant == Some(Mutant::PostsCancel) {
            let mut text = Vec::new();
            encode::cancelled(&mut text, id, None);
            log.client_wrote(link, self.incarnation, &text_of(&text));
        }
    }
}

/// Puts a whole request on its way.
fn send(up: &Pipe, message: &str) {
    let mut bytes = message.as_bytes().to_vec();
    bytes.push(b'\n');
    up.put(&bytes);
}
