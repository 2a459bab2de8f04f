//! Decides which columns of which tables move, and in which order their rows are compared.

/// What a column holds.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A whole number, which the database keeps as this type.
    Number(&'static str),
    Text,
    Bytes,
}

pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
}

pub(super) struct Table {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column],
    /// All rows of the file, in their order.
    pub(super) from: &'static str,
    /// The same order in the database.
    order: &'static str,
    /// A column that only the database has, and its value.
    more: Option<(&'static str, &'static str)>,
}

const fn big(name: &'static str) -> Column {
    Column { name, kind: Kind::Number("bigint") }
}

const fn small(name: &'static str) -> Column {
    Column { name, kind: Kind::Number("smallint") }
}

const fn int(name: &'static str) -> Column {
    Column { name, kind: Kind::Number("integer") }
}

const fn flag(name: &'static str) -> Column {
    Column { name, kind: Kind::Number("boolean") }
}

const fn text(name: &'static str) -> Column {
    Column { name, kind: Kind::Text }
}

const fn bytes(name: &'static str) -> Column {
    Column { name, kind: Kind::Bytes }
}

/// In the order in which they refer to each other.
pub(super) const TABLES: &[Table] = &[
    Table {
        name: "ledger_key",
        columns: &[
            text("principal"),
            text("operation"),
            text("key"),
            bytes("fingerprint"),
            small("state"),
            small("executions"),
            big("lease_until_ms"),
            big("recorded_ms"),
            big("expires_ms"),
            big("born_ms"),
            bytes("result_digest"),
            bytes("result"),
        ],
        from: "SELECT k.principal, k.operation, k.key, k.fingerprint, k.state, k.executions, k.lease_until_ms,
                      k.recorded_ms, k.expires_ms, k.born_ms, k.result_digest, r.body
               FROM ledger_key AS k LEFT JOIN ledger_result AS r ON r.id = k.result_id
               ORDER BY k.principal, k.operation, k.key",
        order: "principal, operation, key",
        more: None,
    },
    Table {
        name: "ledger_unkeyed",
        columns: &[text("principal"), text("operation"), big("executions")],
        from: "SELECT principal, operation, executions FROM ledger_unkeyed ORDER BY principal, operation",
        order: "principal, operation",
        more: Some(("lane", "0")),
    },
    Table {
        name: "ledger_attempt",
        columns: &[
            text("principal"),
            text("operation"),
            text("key"),
            bytes("token"),
            int("number"),
            big("lease_ms"),
            big("first_sent_ms"),
            big("resend_until_ms"),
        ],
        from: "SELECT principal, operation, key, token, number, lease_ms, first_sent_ms, resend_until_ms
               FROM ledger_attempt ORDER BY principal, operation, key",
        order: "principal, operation, key",
        more: None,
    },
    Table {
        name: "ledger_audit",
        columns: &[
            big("at_ms"),
            text("principal"),
            text("operation"),
            text("key"),
            big("message"),
            text("action"),
            text("actor"),
            text("note"),
        ],
        from: "SELECT at_ms, principal, operation, key, message, action, actor, note FROM ledger_audit ORDER BY id",
        order: "id",
        more: None,
    },
    Table {
        name: "ledger_clock_audit",
        columns: &[big("before_ms"), big("after_ms"), text("actor"), text("note")],
        from: "SELECT before_ms, after_ms, actor, note FROM ledger_clock_audit ORDER BY id",
        order: "id",
        more: None,
    },
    Table {
        name: "ledger_outbox",
        columns: &[
            big("id"),
            text("principal"),
            text("operation"),
            text("key"),
            int("ordinal"),
            text("target"),
            text("ordering_key"),
            flag("head"),
            bytes("payload"),
            small("state"),
            int("attempts"),
            bytes("token"),
            big("sent_ms"),
            big("lease_ms"),
            big("lease_until_ms"),
            big("next_ms"),
            big("deadline_ms"),
            big("unsure_ms"),
            int("unsure_attempt"),
            text("reason"),
        ],
        from:
            "SELECT id, principal, operation, key, ordinal, target, ordering_key, head, payload, state, attempts, token,
                      sent_ms, lease_ms, lease_until_ms, next_ms, deadline_ms, unsure_ms, unsure_attempt, reason
               FROM ledger_outbox ORDER BY id",
        order: "id",
        more: None,
    },
    Table {
        name: "ledger_task",
        columns: &[
            text("id"),
            text("principal"),
            text("operation"),
            text("key"),
            text("status"),
            text("status_message"),
            big("cancel_requested_ms"),
            text("payload"),
            big("step"),
            text("progress"),
            text("lease_owner"),
            int("lease_epoch"),
            int("lease_losses"),
            big("claimable_ms"),
            big("lease_ms"),
            flag("external_open"),
            flag("in_doubt"),
            text("outcome"),
            big("created_ms"),
            big("updated_ms"),
            big("expires_ms"),
            big("poll_ms"),
        ],
        from:
            "SELECT id, principal, operation, key, status, status_message, cancel_requested_ms, payload, step, progress,
                      lease_owner, lease_epoch, lease_losses, claimable_ms, lease_ms, external_open, in_doubt, outcome,
                      created_ms, updated_ms, expires_ms, poll_ms
               FROM ledger_task ORDER BY id",
        order: "id",
        more: Some(("revision", "pg_current_xact_id()::text::bigint")),
    },
    Table {
        name: "ledger_task_input",
        columns: &[text("task_id"), text("input_key"), text("request"), text("response")],
        from: "SELECT task_id, input_key, request, response FROM ledger_task_input ORDER BY task_id, input_key",
        order: "task_id, input_key",
        more: None,
    },
    Table {
        name: "ledger_task_audit",
        columns: &[
            big("at_ms"),
            text("task_id"),
            text("principal"),
            text("operation"),
            text("resolution"),
            text("actor"),
            text("note"),
        ],
        from: "SELECT at_ms, task_id, principal, operation, resolution, actor, note FROM ledger_task_audit ORDER BY id",
        order: "id",
        more: None,
    },
];

impl Table {
    /// Writes rows that come as one list for each column.
    pub(super) fn into(&self) -> String {
        let list = |part: &dyn Fn(usize, &Column) -> String| {
            let parts: Vec<_> = self.columns.iter().enumerate().map(|(at, column)| part(at, column)).collect();
            parts.join(", ")
        };
        let names = list(&|_, column| column.name.to_owned());
        let lists = list(&|at, _| format!("${}", at + 1));
        let values = list(&|_, column| match column.kind {
            Kind::Number("boolean") => format!("u.{} <> 0", column.name),
            Kind::Number(kind) => format!("u.{}::{kind}", column.name),
            Kind::Text | Kind::Bytes => format!("u.{}", column.name),
        });
        let (more, value) =
            self.more.map_or_else(Default::default, |(name, value)| (format!(", {name}"), format!(", {value}")));
        format!(
            "INSERT INTO {}({names}{more}) SELECT {values}{value} FROM unnest({lists}) WITH ORDINALITY AS u({names}, place)
             ORDER BY u.place",
            self.name
        )
    }

    /// Reads all rows back, as they are in the file.
    pub(super) fn back(&self) -> String {
        let column = |column: &Column| match column.kind {
            Kind::Number("boolean") => format!("{}::integer::bigint", column.name),
            Kind::Number(_) => format!("{}::bigint", column.name),
            Kind::Text | Kind::Bytes => column.name.to_owned(),
        };
        let columns: Vec<_> = self.columns.iter().map(column).collect();
        format!("SELECT {} FROM {} ORDER BY {}", columns.join(", "), self.name, self.order)
    }
}
