-- Keys and results. `executions` can only be 1 for a committed key and 0 for a rejected one: the proof of "once" is part
-- of the schema. States: 1 started, 2 committed, 3 rejected, 4 in doubt, 5 expired.
CREATE TABLE ledger_meta(
    id INTEGER PRIMARY KEY CHECK(id = 1),
    secret BLOB CHECK(length(secret) = 32),
    secret_check BLOB NOT NULL,
    created_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE ledger_key(
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    key TEXT NOT NULL CHECK(length(key) BETWEEN 1 AND 255),
    fingerprint BLOB NOT NULL CHECK(length(fingerprint) = 32),
    state INTEGER NOT NULL CHECK(state BETWEEN 1 AND 5),
    executions INTEGER NOT NULL CHECK(executions IN (0, 1)),
    result_id INTEGER,
    result_digest BLOB CHECK(length(result_digest) = 32),
    lease_until_ms INTEGER,
    recorded_ms INTEGER NOT NULL,
    expires_ms INTEGER NOT NULL,
    CHECK((state = 1) = (lease_until_ms IS NOT NULL)),
    CHECK((state IN (2, 3)) = (result_id IS NOT NULL)),
    CHECK((result_id IS NULL) = (result_digest IS NULL)),
    CHECK(state <> 2 OR executions = 1),
    CHECK(state <> 3 OR executions = 0),
    PRIMARY KEY(principal, operation, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE ledger_result(id INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
CREATE TABLE ledger_unkeyed(
    principal TEXT NOT NULL,
    operation TEXT NOT NULL,
    executions INTEGER NOT NULL,
    PRIMARY KEY(principal, operation)
) STRICT, WITHOUT ROWID;
