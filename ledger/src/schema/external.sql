-- Effects outside of this file. A key whose state is 1 (started) or 4 (in doubt) has its attempt here.
CREATE TABLE ledger_attempt(
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    attempt INTEGER NOT NULL CHECK(attempt >= 1),
    upstream_key TEXT NOT NULL UNIQUE,
    first_sent_ms INTEGER NOT NULL,
    -- Until when the same upstream key may be sent again; never if there is none.
    resend_until_ms INTEGER,
    PRIMARY KEY(principal, operation, key),
    FOREIGN KEY(principal, operation, key) REFERENCES ledger_key(principal, operation, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_key_open ON ledger_key(recorded_ms) WHERE state IN (1, 4);
-- Who decided what about a key that was in doubt.
CREATE TABLE ledger_audit(
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    from_state INTEGER NOT NULL,
    to_state INTEGER NOT NULL,
    actor TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT;
