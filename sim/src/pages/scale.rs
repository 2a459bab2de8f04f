//! The page on fleets: what a replica has to take by the generator of the herd, and what gives way first.
//!
//! Limits of ours are read from their defaults. What needs a clock is named by its bench row, not repeated from a run.

use std::fmt::Write as _;

use steady_core::backoff::Backoff;
use steady_core::kernel::HubConfig;
use steady_http::{HttpConfig, ServeConfig};

use super::limits::grouped;
use crate::herd::table::{self, Row};

/// The fleet of the table: one replica's share of a million clients at a hundred, so that the page is checked often.
const CLIENTS: u32 = 10_000;
const REPLICAS: u32 = 1;
/// What the list of limits speaks of: a million clients and a hundred replicas.
const EACH: u64 = 10_000;

const MEANING: &str = "A fleet loses all its replicas at the same instant; a load balancer sends each client to \
    one of them. **Peak load factor**: the rate at the busiest replica in its busiest 100 ms, over the rate at which its share of \
    the fleet would come evenly within one second. With 10,000 clients for each replica a factor of 4 is 4,000 questions in \
    100 ms. *At once*: the connections are lost, and the replicas are there. *After 10 s away*: they are back after 10 s, and \
    each takes a fifth of its share in a second; what is over is refused, and asks again.";

const FIRST: &str = "Each row is a fleet of a million clients with one open listen each, behind a hundred replicas: 10,000 \
    streams for each. Sizes and durations are bounds of bench rows, which fail above them.";

pub(super) fn text() -> String {
    let rows = table::rows(CLIENTS, REPLICAS);
    let mut text = format!(
        "## Peak load\n\n{MEANING}\n\nThe table has the {} clients of one replica, in virtual time, with the shipped client machine. \
         A million clients and a hundred replicas take a few minutes: `steady-sim herd --table --clients 1000000 --replicas \
         100`; one policy alone less than one: without `--table`, with `--jitter`, `--base-ms`, `--cap-ms`.\n\n{}\n",
        grouped(CLIENTS.into()),
        table::markdown(&rows)
    );
    let _ = writeln!(text, "## What breaks first\n\n{FIRST}\n\n| what | when | what to set |\n|---|---|---|");
    for [what, when, set] in at_the_door(&rows).into_iter().chain(inside()) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {what} | {when} | {set} |");
    }
    text
}

/// How many questions a replica gets in its busiest 100 ms by this policy, where its connections are lost.
fn burst(rows: &[Row], backoff: Backoff) -> u64 {
    let (base, cap) = (backoff.base.as_millis(), backoff.cap.as_millis());
    let shipped = |row: &&Row| row.jitter == table::SHIPPED && (row.base_ms.into(), row.cap_ms.into()) == (base, cap);
    rows.iter().find(shipped).map_or(0, |row| row.at_once_permille * EACH / 10_000)
}

/// What gives way where clients come in.
fn at_the_door(rows: &[Row]) -> Vec<[String; 3]> {
    let (serve, http, hub) = (ServeConfig::default(), HttpConfig::default(), HubConfig::default());
    let usize = |value: usize| grouped(u64::try_from(value).unwrap_or(u64::MAX));
    let (default, fleet) = (burst(rows, Backoff::default()), burst(rows, Backoff::FLEET));
    vec![
        [
            "open files".to_owned(),
            "each stream is a socket: the usual soft limit of 1,024 ends at a tenth. New connections then wait in the \
             system's queue, and those that are open go on"
                .to_owned(),
            "`LimitNOFILE=65536`, or `ulimit -n`, for the server and for the proxy, which needs two for a stream".to_owned(),
        ],
        [
            "our own limits".to_owned(),
            format!(
                "`HttpConfig::max_listens` is {}, `ServeConfig::max_connections` {}, `HubConfig::subscriptions` {}. One replica \
                 of a hundred that is lost gives each of the others 102 more: at {} each they answer 503",
                usize(http.max_listens),
                usize(serve.max_connections),
                usize(hub.subscriptions),
                grouped(EACH)
            ),
            "`max_listens` a quarter above the share of a replica; the other two above that".to_owned(),
        ],
        [
            "the accept queue".to_owned(),
            format!(
                "the busiest 100 ms bring {} connections to a replica with the default pauses, {} with `Backoff::FLEET`; what \
                 the queue does not hold waits a second or more for its system to ask again",
                grouped(default),
                grouped(fleet)
            ),
            "`net.core.somaxconn` of 4096 at least, as `steady_http::bind` asks for; `Backoff::FLEET` in clients of which there are \
             thousands"
                .to_owned(),
        ],
        [
            "TLS handshakes".to_owned(),
            format!(
                "the same bursts at whatever ends TLS, which this server leaves to a proxy: up to {} handshakes a second for a \
                 replica by default, {} with `FLEET`. Measure a core of yours with `openssl speed ecdsap256`",
                grouped(default * 10),
                grouped(fleet * 10)
            ),
            "session tickets, ECDSA keys, cores of the proxy for the peak; a limit of new connections at the proxy is safe, since \
             who is refused asks again"
                .to_owned(),
        ],
        [
            "ports of the proxy".to_owned(),
            "one address of a proxy has 28,232 ports to one address of a replica by the default of Linux, and each stream takes \
             one; nginx has `worker_connections` beside that"
                .to_owned(),
            "`net.ipv4.ip_local_port_range`, more addresses, HTTP/2 to the replicas".to_owned(),
        ],
    ]
}

/// What gives way behind the door.
fn inside() -> Vec<[String; 3]> {
    vec![
        [
            "memory of streams".to_owned(),
            format!(
                "at most 8 KiB for an open listen (row `open listen stream, memory` of `cargo xtask bench http`): {} MiB for \
                 {}",
                EACH * 8 / 1024,
                grouped(EACH)
            ),
            "memory of the system's sockets comes on top: `net.ipv4.tcp_mem`".to_owned(),
        ],
        [
            "CPU of the hub".to_owned(),
            "one publication to 10,000 streams has reached the last of them within 200 ms (row `one publication to 10000 \
             streams, …, the last of the others`): a core is full at a few publications a second that everybody hears. \
             Slow readers get the newest only"
                .to_owned(),
            "publish what changed, not that something did; subscribe to single resources; more replicas".to_owned(),
        ],
        [
            "reads after a gap".to_owned(),
            "each client that is back reads what it may have missed: the same burst once more, as `tools/list`, \
             `resources/read`, `tasks/get`"
                .to_owned(),
            "answer them from memory; `ServerConfig` limits what is in flight, and who is refused asks again".to_owned(),
        ],
        [
            "the ledger's writer".to_owned(),
            "one file is written by one thread, many calls to a sync of the disk: rows `64 clients`, `256 clients` of `cargo \
             xtask bench ledger` say how many. A file is of one machine, so a hundred replicas do not share one"
                .to_owned(),
            "SQLite for one machine; PostgreSQL for replicas (`cargo xtask bench postgres`)".to_owned(),
        ],
        [
            "PostgreSQL connections".to_owned(),
            "`PgOptions::connections` for each replica: a hundred replicas with two each are over the database's default of 100"
                .to_owned(),
            "a pooler in transaction mode, which the ledger works behind, or `max_connections`".to_owned(),
        ],
    ]
}
