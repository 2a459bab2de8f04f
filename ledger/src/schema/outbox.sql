-- Messages that leave after the commit that wrote them. States: 1 pending, 2 sending, 3 delivered, 4 dead, 5 in doubt.
CREATE TABLE ledger_outbox(
    id INTEGER PRIMARY KEY,
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    target TEXT NOT NULL,
    ordering_key TEXT NOT NULL,
    upstream_key TEXT NOT NULL UNIQUE,
    -- Removed once it is delivered.
    payload BLOB,
    state INTEGER NOT NULL CHECK(state BETWEEN 1 AND 5),
    attempts INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    next_ms INTEGER NOT NULL,
    lease_until_ms INTEGER,
    deadline_ms INTEGER,
    last_error TEXT,
    CHECK((state = 2) = (lease_until_ms IS NOT NULL)),
    CHECK(state = 3 OR payload IS NOT NULL)
) STRICT;
CREATE INDEX ledger_outbox_open ON ledger_outbox(target, ordering_key, id) WHERE state <> 3;
