-- Messages that leave after the commit that wrote them. States: 1 pending, 2 sending, 3 delivered, 4 dead, 5 in doubt,
-- 6 skipped. In states 3 and 6 it is done, and its payload is gone.
CREATE TABLE ledger_outbox(
    id INTEGER PRIMARY KEY,
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    -- Its place among the messages of its key.
    ordinal INTEGER NOT NULL CHECK(ordinal >= 0),
    target TEXT NOT NULL,
    -- Messages with the same one leave one after another, in the order of their ids. One without leaves on its own.
    ordering_key TEXT,
    -- Whether all before it with its ordering key are done.
    head INTEGER NOT NULL CHECK(head IN (0, 1)),
    payload BLOB,
    state INTEGER NOT NULL CHECK(state BETWEEN 1 AND 6),
    attempts INTEGER NOT NULL CHECK(attempts >= 0),
    -- Who may say what became of the latest attempt: random, and another one for each claim.
    token BLOB CHECK(length(token) = 16),
    sent_ms INTEGER NOT NULL,
    lease_ms INTEGER NOT NULL,
    lease_until_ms INTEGER,
    next_ms INTEGER NOT NULL,
    deadline_ms INTEGER,
    -- The first attempt of which nobody knows what became of it.
    unsure_ms INTEGER,
    unsure_attempt INTEGER,
    reason TEXT,
    UNIQUE(principal, operation, key, ordinal),
    CHECK((state = 2) = (lease_until_ms IS NOT NULL)),
    CHECK((state IN (3, 6)) = (payload IS NULL)),
    CHECK((unsure_ms IS NULL) = (unsure_attempt IS NULL)),
    -- Only the first of a line is ever sent, and it stays the first until it is done.
    CHECK(head = 1 OR state IN (1, 3, 6)),
    CHECK(head = 0 OR state IN (1, 2, 4, 5)),
    FOREIGN KEY(principal, operation, key) REFERENCES ledger_key(principal, operation, key)
) STRICT;
CREATE UNIQUE INDEX ledger_outbox_head ON ledger_outbox(target, ordering_key) WHERE head = 1;
CREATE INDEX ledger_outbox_line ON ledger_outbox(target, ordering_key, id) WHERE state IN (1, 2, 4, 5);
CREATE INDEX ledger_outbox_due ON ledger_outbox(target, next_ms) WHERE state = 1 AND head = 1;
CREATE INDEX ledger_outbox_leased ON ledger_outbox(target, lease_until_ms) WHERE state = 2;
CREATE INDEX ledger_outbox_stuck ON ledger_outbox(target, id) WHERE state IN (4, 5);
CREATE INDEX ledger_outbox_done ON ledger_outbox(id) WHERE state IN (3, 6);
-- How many messages are not done.
ALTER TABLE ledger_meta ADD COLUMN outbox_open INTEGER NOT NULL DEFAULT 0 CHECK(outbox_open >= 0);
