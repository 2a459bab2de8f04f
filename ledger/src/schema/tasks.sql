-- Durable tasks. `status` is the status of the protocol; that a cancellation was asked for is apart from it.
CREATE TABLE ledger_task(
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT,
    status TEXT NOT NULL CHECK(status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
    status_message TEXT,
    cancel_requested_ms INTEGER,
    progress_seq INTEGER NOT NULL DEFAULT 0,
    progress BLOB,
    lease_owner TEXT,
    lease_epoch INTEGER NOT NULL DEFAULT 0,
    lease_until_ms INTEGER,
    result BLOB,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    poll_ms INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX ledger_task_key ON ledger_task(principal, operation, key) WHERE key IS NOT NULL;
CREATE INDEX ledger_task_open ON ledger_task(lease_until_ms) WHERE status IN ('working', 'input_required');
CREATE TABLE ledger_task_input(
    task_id TEXT NOT NULL REFERENCES ledger_task(id),
    input_key TEXT NOT NULL,
    request BLOB NOT NULL,
    response BLOB,
    PRIMARY KEY(task_id, input_key)
) STRICT, WITHOUT ROWID;
