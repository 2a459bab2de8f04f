-- Durable tasks. `status` is the status of the protocol; that a cancellation was asked for is apart from it.
CREATE TABLE ledger_task(
    id TEXT PRIMARY KEY CHECK(length(id) = 32),
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT,
    -- The number of the last write that a client can see, counted over all tasks of the file.
    revision INTEGER NOT NULL UNIQUE,
    status TEXT NOT NULL CHECK(status IN ('working', 'input_required', 'completed', 'failed', 'cancelled')),
    status_message TEXT,
    cancel_requested_ms INTEGER,
    -- What a worker starts from. JSON, as are progress and outcome.
    payload TEXT,
    step INTEGER NOT NULL DEFAULT 0 CHECK(step >= 0),
    progress TEXT,
    lease_owner TEXT,
    lease_epoch INTEGER NOT NULL DEFAULT 0 CHECK(lease_epoch >= 0),
    -- How many leases ran out; not those that were given back.
    lease_losses INTEGER NOT NULL DEFAULT 0 CHECK(lease_losses >= 0),
    -- From when on a worker may have it: its creation, or the end of the lease.
    claimable_ms INTEGER NOT NULL,
    -- How long before that it was set: the length of the lease. A time further off was set by a clock that went back.
    lease_ms INTEGER NOT NULL DEFAULT 0 CHECK(lease_ms >= 0),
    external_open INTEGER NOT NULL DEFAULT 0 CHECK(external_open IN (0, 1)),
    -- Its worker is gone with an external step open. Only an operator ends this.
    in_doubt INTEGER NOT NULL DEFAULT 0 CHECK(in_doubt IN (0, 1)),
    outcome TEXT,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    -- Never if there is none.
    expires_ms INTEGER,
    poll_ms INTEGER NOT NULL,
    CHECK((status IN ('completed', 'failed')) = (outcome IS NOT NULL)),
    CHECK(status IN ('working', 'input_required') OR (payload IS NULL AND external_open = 0)),
    CHECK(status <> 'cancelled' OR cancel_requested_ms IS NOT NULL),
    CHECK(in_doubt = 0 OR external_open = 1),
    FOREIGN KEY(principal, operation, key) REFERENCES ledger_key(principal, operation, key)
) STRICT;
CREATE UNIQUE INDEX ledger_task_key ON ledger_task(principal, operation, key) WHERE key IS NOT NULL;
CREATE INDEX ledger_task_principal ON ledger_task(principal) WHERE status IN ('working', 'input_required');
CREATE INDEX ledger_task_live ON ledger_task(id) WHERE status IN ('working', 'input_required');
-- What a worker may have, now or after a lease: also what waits for input, once it is to be cancelled. The last two
-- columns spare a look at the row of what is skipped.
CREATE INDEX ledger_task_queue ON ledger_task(operation, claimable_ms, lease_ms, expires_ms)
    WHERE external_open = 0 AND (status = 'working' OR (status = 'input_required' AND cancel_requested_ms IS NOT NULL));
CREATE INDEX ledger_task_external ON ledger_task(claimable_ms, lease_ms) WHERE external_open = 1 AND in_doubt = 0;
CREATE INDEX ledger_task_doubt ON ledger_task(id) WHERE in_doubt = 1;
CREATE INDEX ledger_task_due ON ledger_task(expires_ms) WHERE expires_ms IS NOT NULL AND in_doubt = 0;
-- The second line of defence: the first is the state machine that decides every write.
CREATE TRIGGER ledger_task_sticky BEFORE UPDATE ON ledger_task
    WHEN OLD.status IN ('completed', 'failed', 'cancelled')
    BEGIN SELECT RAISE(ABORT, 'a terminal task never changes'); END;
CREATE TRIGGER ledger_task_once BEFORE INSERT ON ledger_task
    WHEN EXISTS(SELECT 1 FROM ledger_task WHERE id = NEW.id)
    BEGIN SELECT RAISE(ABORT, 'a task id is never reused'); END;
CREATE TABLE ledger_task_revision(id INTEGER PRIMARY KEY CHECK(id = 1), last INTEGER NOT NULL) STRICT;
INSERT INTO ledger_task_revision(id, last) VALUES (1, 0);
-- What a task asked its client. The rows stay while the task lives, so that no key is reused.
CREATE TABLE ledger_task_input(
    task_id TEXT NOT NULL REFERENCES ledger_task(id) ON DELETE CASCADE,
    input_key TEXT NOT NULL,
    request TEXT NOT NULL,
    response TEXT,
    PRIMARY KEY(task_id, input_key)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER ledger_task_input_sticky BEFORE UPDATE ON ledger_task_input
    WHEN OLD.response IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'the first answer to an input stays'); END;
-- Who decided what about a task that was in doubt.
CREATE TABLE ledger_task_audit(
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    task_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    resolution TEXT NOT NULL,
    actor TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT;
