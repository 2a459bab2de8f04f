-- Effects outside of this file. A key whose state is 1 (started) or 4 (in doubt) has its latest attempt here.
CREATE TABLE ledger_attempt(
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    -- Who may say what became of it: random, and another one for each attempt.
    token BLOB NOT NULL CHECK(length(token) = 16),
    number INTEGER NOT NULL CHECK(number >= 1),
    lease_ms INTEGER NOT NULL CHECK(lease_ms >= 0),
    first_sent_ms INTEGER NOT NULL,
    -- Until when the same upstream key may be sent again; never if there is none.
    resend_until_ms INTEGER,
    PRIMARY KEY(principal, operation, key),
    FOREIGN KEY(principal, operation, key) REFERENCES ledger_key(principal, operation, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX ledger_key_leased ON ledger_key(lease_until_ms) WHERE state = 1;
CREATE INDEX ledger_key_in_doubt ON ledger_key(recorded_ms) WHERE state = 4;
-- Who decided what about a key or a message, apart from the plain course of things.
CREATE TABLE ledger_audit(
    id INTEGER PRIMARY KEY,
    at_ms INTEGER NOT NULL,
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL,
    -- The place of the message among those of its key; none if it is about the key itself.
    message INTEGER,
    action TEXT NOT NULL,
    actor TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT;
CREATE INDEX ledger_audit_key ON ledger_audit(principal, operation, key);
