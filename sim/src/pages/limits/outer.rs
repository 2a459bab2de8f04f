//! Limits of the transports and the ledger.
//!
//! The patterns without a binding name every member: a new one does not compile until it is looked at here.

use steady_http::{HttpConfig, ServeConfig, client as http_client};
use steady_ledger::{Options, TaskLimits};
use steady_stdio::StdioConfig;
use steady_stdio::client::{Ladder, MAX_ANSWER, Restart};

use super::{Group, bytes, count, time};

pub(super) fn http() -> Group {
    let http = HttpConfig::default();
    let HttpConfig {
        server: _,
        access: _,
        max_body: _,
        max_bodies: _,
        body_timeout: _,
        max_listens: _,
        stream_after: _,
        always_stream: _,
        keep_alive: _,
        retry_after: _,
        authenticate: _,
        max_sessions: _,
        session_idle: _,
    } = &http;
    Group {
        title: "HttpConfig",
        source: "transport-http/src/server/config.rs",
        limits: vec![
            bytes("max_body", http.max_body, "413"),
            bytes(
                "max_bodies",
                http.max_bodies,
                "a body that is arriving is refused (429); those that are short are not counted",
            ),
            time("body_timeout", http.body_timeout, "408"),
            count("max_listens", http.max_listens, "open listens", "503"),
            time("stream_after", http.stream_after, "the answer becomes a stream"),
            time("keep_alive", http.keep_alive, "a comment is sent on a quiet stream"),
            time("retry_after", http.retry_after, "what a refused client is told to wait"),
            count(
                "max_sessions",
                http.max_sessions,
                "sessions of older revisions",
                "the longest idle one makes room (404 for its client); 503 if none is idle",
            ),
            time("session_idle", http.session_idle, "the session ends"),
            bytes("server.max_result", http.server.max_result, "the result becomes an error that says so"),
            time(
                "server.shutdown_limit",
                http.server.shutdown_limit,
                "after a shutdown, what is left is answered with an error",
            ),
        ],
    }
}

pub(super) fn serve() -> Group {
    let serve = ServeConfig::default();
    let ServeConfig {
        http: _,
        path: _,
        max_connections: _,
        max_streams: _,
        max_head: _,
        head_timeout: _,
        idle_timeout: _,
        write_stall: _,
        unreachable_after: _,
        signals: _,
        warn: _,
    } = &serve;
    Group {
        title: "ServeConfig",
        source: "transport-http/src/server/config.rs",
        limits: vec![
            count("max_connections", serve.max_connections, "connections", "the next one waits in the system's queue"),
            count("max_streams", serve.max_streams, "requests of an HTTP/2 connection", "the stream is refused"),
            bytes("max_head", serve.max_head, "431"),
            time("head_timeout", serve.head_timeout, "the connection is closed"),
            time("idle_timeout", serve.idle_timeout, "the connection is closed"),
            time("write_stall", serve.write_stall, "the client counts as gone"),
            time(
                "unreachable_after",
                serve.unreachable_after,
                "a client whose machine acknowledges nothing counts as gone (Linux)",
            ),
        ],
    }
}

pub(super) fn http_client() -> Group {
    let client = http_client::Config::default();
    Group {
        title: "steady_http::client::Config",
        source: "transport-http/src/client/config.rs",
        limits: vec![
            bytes("max_answer", client.max_answer, "the call fails"),
            count("max_connections", client.max_connections, "requests on the network", "the next one waits, unsent"),
            count(
                "idle_connections",
                client.idle_connections,
                "kept connections",
                "the connection is closed after its request",
            ),
            time("idle_timeout", client.idle_timeout, "a kept connection is closed"),
            time("connect_timeout", client.connect_timeout, "the request was never sent"),
            time("listen_silence", client.listen_silence, "the listen counts as lost, and is asked for again"),
        ],
    }
}

pub(super) fn stdio() -> Vec<Group> {
    let (ladder, restart) = (Ladder::default(), Restart::default());
    vec![
        Group {
            title: "StdioConfig",
            source: "transport-stdio/src/server.rs",
            limits: vec![bytes(
                "max_message",
                StdioConfig::default().max_message,
                "the line is refused, and costs itself only",
            )],
        },
        Group {
            title: "steady_stdio::client",
            source: "transport-stdio/src/client.rs",
            limits: vec![bytes("MAX_ANSWER", MAX_ANSWER, "the call fails")],
        },
        Group {
            title: "Ladder",
            source: "transport-stdio/src/client/command.rs",
            limits: vec![
                time("close", ladder.close, "SIGTERM follows the closed input"),
                time("terminate", ladder.terminate, "SIGKILL follows SIGTERM"),
            ],
        },
        Group {
            title: "Restart",
            source: "transport-stdio/src/client/restart.rs",
            limits: vec![
                count("crashes", restart.crashes, "ends of the server", "the next one ends the client"),
                time("within", restart.within, "older ends are not counted"),
            ],
        },
    ]
}

pub(super) fn ledger() -> Vec<Group> {
    let (options, tasks) = (Options::default(), TaskLimits::default());
    let Options {
        schema: _,
        busy_timeout: _,
        retention: _,
        key_horizon: _,
        min_key_len: _,
        outbox_capacity: _,
        secret: _,
        clock: _,
        entropy: _,
        durability: _,
        effect_time: _,
        wal_limit: _,
        max_lease: _,
        executor: _,
        opening: _,
        tasks: _,
        network_file_system: _,
        vfs: _,
    } = &options;
    let TaskLimits { live_per_principal: _, max_ttl: _, max_body: _, inputs: _ } = &tasks;
    vec![
        Group {
            title: "steady_ledger::Options",
            source: "ledger/src/options.rs",
            limits: vec![
                time("busy_timeout", options.busy_timeout, "the call is turned away as busy; nothing ran"),
                time(
                    "retention",
                    options.retention,
                    "the result is gone; its key is refused and still never runs again",
                ),
                time("key_horizon", options.key_horizon, "a key that says it is older is refused before anything runs"),
                count("min_key_len", options.min_key_len, "bytes of a key", "a shorter key is refused"),
                count(
                    "outbox_capacity",
                    options.outbox_capacity,
                    "messages",
                    "the effect that leaves one more is rolled back",
                ),
                time(
                    "effect_time",
                    options.effect_time,
                    "the SQL of the effect or read is interrupted and rolled back",
                ),
                bytes("wal_limit", options.wal_limit, "writes are refused until the read that holds the log ends"),
                time("max_lease", options.max_lease, "a longer lease is cut to it"),
            ],
        },
        Group {
            title: "TaskLimits",
            source: "ledger/src/task/types.rs",
            limits: vec![
                count("live_per_principal", tasks.live_per_principal, "unfinished tasks", "the task is refused"),
                time("max_ttl", tasks.max_ttl, "a longer life is cut to it"),
                bytes("max_body", tasks.max_body, "the payload, progress or outcome is refused"),
                count("inputs", tasks.inputs, "inputs of a task", "the question is refused"),
            ],
        },
    ]
}
