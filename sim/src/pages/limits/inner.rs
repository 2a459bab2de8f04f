//! Limits of core: the machines and the kernel.
//!
//! The patterns without a binding name every member: a new one does not compile until it is looked at here.

use steady_core::client::{self, CallOptions, MAX_SUBSCRIPTIONS, Transport};
use steady_core::idempotency::Key;
use steady_core::kernel::client::{ClientConfig, MAX_ROUNDS, TaskOptions};
use steady_core::kernel::tasks::{TaskConfig, WorkerConfig};
use steady_core::kernel::{HubConfig, ServerConfig};
use steady_core::mrtr;
use steady_core::rpc::{MAX_ID_BYTES, MAX_NESTING};
use steady_core::subscription::{self, Filter};
use steady_core::{coordinator, follow, listener, outbound};

use super::{Group, bytes, count, rate, time};

pub(super) fn requests() -> Group {
    let requests = ServerConfig::default().requests;
    let coordinator::Config { in_flight: _, stragglers: _, listens: _, limits: _, progress_interval: _ } = &requests;
    Group {
        title: "coordinator::Config",
        source: "core/src/coordinator.rs",
        limits: vec![
            count(
                "in_flight",
                requests.in_flight,
                "requests",
                "the request is refused (-31001 on stdio, 429 over HTTP); if finished answers hold the places, reading waits instead",
            ),
            count(
                "stragglers",
                requests.stragglers,
                "handlers",
                "new requests are refused until a handler that outlived its request ends",
            ),
            count("listens", requests.listens, "open listens", "the listen is refused"),
            time("limits.idle", requests.limits.idle, "the request ends with -31002 and its handler is told to stop"),
            time("limits.maximum", requests.limits.maximum, "the request ends with -31002, whatever progress it made"),
            time(
                "progress_interval",
                requests.progress_interval,
                "progress in between coalesces: the newest value leaves",
            ),
        ],
    }
}

pub(super) fn server() -> Group {
    let server = ServerConfig::default();
    let ServerConfig {
        requests: _,
        outbound: _,
        grace: _,
        drain: _,
        flush: _,
        shutdown: _,
        shutdown_limit: _,
        write_stall: _,
        turn_budget: _,
        max_result: _,
        stats: _,
        network_transport: _,
        principal: _,
        eras: _,
    } = &server;
    Group {
        title: "ServerConfig",
        source: "core/src/kernel/engine.rs",
        limits: vec![
            time("grace", server.grace, "a handler that goes on after its request is over is dropped"),
            time("drain", server.drain, "a closing connection waits no longer for its handlers"),
            time("flush", server.flush, "a closing connection gives up a client that reads no more"),
            time("shutdown_limit", server.shutdown_limit, "after a shutdown, what is left is answered with an error"),
            time("write_stall", server.write_stall, "a link that accepts no byte counts as broken"),
            count("turn_budget", server.turn_budget, "messages a turn", "timers and writes get their turn"),
            bytes("max_result", server.max_result, "the result becomes an error that says so; the connection goes on"),
        ],
    }
}

pub(super) fn outbound() -> Group {
    let queue = outbound::Config::default();
    let outbound::Config {
        capacity: _,
        bytes: _,
        finals: _,
        kept_bytes: _,
        lossless: _,
        lossless_bytes: _,
        refusals: _,
        coalesce: _,
    } = &queue;
    Group {
        title: "outbound::Config",
        source: "core/src/outbound/config.rs",
        limits: vec![
            count(
                "capacity",
                queue.capacity,
                "progress and notices",
                "progress coalesces by its token; then the oldest is dropped, and the loss is marked",
            ),
            bytes("bytes", queue.bytes, "as for `capacity`"),
            count("finals", queue.finals, "final responses", "never: admission reserved the place"),
            bytes(
                "kept_bytes",
                queue.kept_bytes,
                "a final waits in the backlog with its permit, and no further request is read; a lossless report is refused",
            ),
            count("lossless", queue.lossless, "lossless reports", "the handler waits for room"),
            bytes("lossless_bytes", queue.lossless_bytes, "the handler waits for room"),
            count("refusals", queue.refusals, "refusals", "reading waits until one has left"),
        ],
    }
}

pub(super) fn hub() -> Group {
    let hub = HubConfig::default();
    let HubConfig { offers: _, subscriptions: _, name_bytes: _, state_bytes: _ } = &hub;
    Group {
        title: "HubConfig",
        source: "core/src/kernel/hub.rs",
        limits: vec![
            count("subscriptions", hub.subscriptions, "subscriptions", "the listen is refused with -31001"),
            bytes("name_bytes", hub.name_bytes, "the listen is refused with -31001"),
            bytes(
                "state_bytes",
                hub.state_bytes,
                "the stream of a client that is so far behind ends with an error; it listens and reads anew",
            ),
        ],
    }
}

pub(super) fn tasks() -> Group {
    let tasks = TaskConfig::default();
    let TaskConfig { ttl: _, poll_interval: _, gets_per_task: _, requests_per_caller: _ } = &tasks;
    Group {
        title: "TaskConfig",
        source: "core/src/kernel/tasks/server.rs",
        limits: vec![
            time("ttl", tasks.ttl, "the task is gone, finished or not"),
            time("poll_interval", tasks.poll_interval, "what clients are asked to wait between two looks"),
            rate("gets_per_task", tasks.gets_per_task, "refused with -31001 and `data.retryAfterMs`"),
            rate("requests_per_caller", tasks.requests_per_caller, "refused with -31001 and `data.retryAfterMs`"),
        ],
    }
}

pub(super) fn worker() -> Group {
    let worker = WorkerConfig::default();
    let WorkerConfig { lease: _, look: _, leases: _ } = &worker;
    Group {
        title: "WorkerConfig",
        source: "core/src/kernel/tasks/worker.rs",
        limits: vec![
            time("lease", worker.lease, "a task whose worker has not checkpointed may be claimed by another"),
            time("look", worker.look, "the worker looks at the store again"),
            count("leases", worker.leases, "leases of a task that ran out", "the task fails with -32603"),
        ],
    }
}

pub(super) fn calls() -> Group {
    let calls = ClientConfig::new(Transport::Http).calls;
    let client::Config { transport: _, in_flight: _, progress_interval: _, backoff: _, budget: _ } = &calls;
    Group {
        title: "client::Config",
        source: "core/src/client.rs",
        limits: vec![
            count("in_flight", calls.in_flight, "calls", "the call is refused at once"),
            time(
                "progress_interval",
                calls.progress_interval,
                "progress in between coalesces: the newest value is handed out",
            ),
            time("backoff.base", calls.backoff.base, "the ceiling of the first pause; it doubles with each attempt"),
            time("backoff.cap", calls.backoff.cap, "the ceiling grows no further"),
            count(
                "budget.earn_permille",
                calls.budget.earn_permille,
                "thousandths of a retry a call",
                "without budget no retry: the call ends with its verdict",
            ),
            count(
                "budget.reserve_per_second",
                calls.budget.reserve_per_second,
                "retries a second",
                "as for `earn_permille`",
            ),
            count("budget.capacity", calls.budget.capacity, "retries", "more is not saved up"),
        ],
    }
}

pub(super) fn options() -> Group {
    let options = CallOptions::default();
    let CallOptions { limits: _, contract: _, attempts: _, repeats: _ } = &options;
    Group {
        title: "CallOptions",
        source: "core/src/client.rs",
        limits: vec![
            time("limits.idle", options.limits.idle, "the call ends as idle timeout, and is cancelled at the server"),
            time("limits.maximum", options.limits.maximum, "the call ends as maximum timeout, whatever progress came"),
            count("attempts", options.attempts, "attempts", "the call ends with its verdict"),
        ],
    }
}

pub(super) fn client() -> Group {
    let client = ClientConfig::new(Transport::Http);
    let ClientConfig {
        calls: _,
        limits: _,
        max_request: _,
        max_in_flight_bytes: _,
        progress_buffer: _,
        probe: _,
        eras: _,
        write_stall: _,
        turn_budget: _,
        info: _,
        capabilities: _,
        trace: _,
    } = &client;
    Group {
        title: "ClientConfig",
        source: "core/src/kernel/client.rs",
        limits: vec![
            bytes("max_request", client.max_request, "the request is refused before it is sent"),
            bytes("max_in_flight_bytes", client.max_in_flight_bytes, "the call is refused"),
            count("progress_buffer", client.progress_buffer, "progress values", "the oldest is dropped"),
            time("probe", client.probe, "the link counts as lost, or speaks an older revision"),
            time("write_stall", client.write_stall, "the link counts as lost"),
            count("turn_budget", client.turn_budget, "messages a turn", "timers and writes get their turn"),
        ],
    }
}

pub(super) fn follow() -> Group {
    let tasks = TaskOptions::default().follow;
    let follow::Config { shortest: _, longest: _, usual: _, backoff: _, maximum: _ } = &tasks;
    Group {
        title: "follow::Config",
        source: "core/src/follow.rs",
        limits: vec![
            time("shortest", tasks.shortest, "a task is asked for no more often"),
            time("longest", tasks.longest, "a task is asked for no less often"),
            time("usual", tasks.usual, "the pause where the server names none"),
            time("maximum", tasks.maximum, "the task is followed no longer, and lives on"),
        ],
    }
}

pub(super) fn subscriptions() -> Group {
    let one = subscription::Config::default();
    let subscription::Config { ack_deadline: _, backoff: _, stable_after: _, liveness: _, reopen_after_end: _ } = &one;
    Group {
        title: "subscription::Config",
        source: "core/src/subscription.rs",
        limits: vec![
            time(
                "ack_deadline",
                one.ack_deadline,
                "the listen request counts as lost, and another follows after a pause",
            ),
            time("backoff.base", one.backoff.base, "the ceiling of the first pause; it doubles with each attempt"),
            time("backoff.cap", one.backoff.cap, "the ceiling grows no further"),
            time("stable_after", one.stable_after, "the pauses start over"),
            time("liveness", one.liveness, "a stream without a sign of life is given up and asked for again"),
        ],
    }
}

/// What no program can set.
pub(super) fn fixed() -> Group {
    Group {
        title: "constants",
        source: "core/src",
        limits: vec![
            count(
                "client::MAX_SUBSCRIPTIONS",
                MAX_SUBSCRIPTIONS,
                "subscriptions of a client",
                "the listen is refused at once",
            ),
            count("Filter::MAX_NAMED", Filter::MAX_NAMED, "resources and tasks of a filter", "the filter is refused"),
            count(
                "listener::Config.slots",
                listener::Config::default().slots,
                "things that one stream watches",
                "the listen is refused",
            ),
            bytes(
                "listener::Config.bytes",
                listener::Config::default().bytes,
                "the stream ends with an error; its client listens and reads anew",
            ),
            count("Key::MAX_LEN", Key::MAX_LEN, "bytes of a key", "the key is refused"),
            count("rpc::MAX_ID_BYTES", MAX_ID_BYTES, "bytes of an id", "the message is refused"),
            count("rpc::MAX_NESTING", MAX_NESTING, "levels", "the message is refused"),
            count("kernel::client::MAX_ROUNDS", MAX_ROUNDS, "rounds of input for a call", "the call fails"),
            count("mrtr::MAX_INPUTS", mrtr::MAX_INPUTS, "inputs of a round", "a result that asks for more is an error"),
            bytes("mrtr::MAX_STATE_BYTES", mrtr::MAX_STATE_BYTES, "the state is refused"),
        ],
    }
}
