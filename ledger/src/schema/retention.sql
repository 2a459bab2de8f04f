-- Results expire, keys stay. `latest_ms` is the latest time that the ledger is sure of, so that a clock that jumps back
-- makes nothing young again; `ahead_ms` is a time far ahead of it that no later look at the clock has confirmed yet.
ALTER TABLE ledger_meta ADD COLUMN latest_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger_meta ADD COLUMN ahead_ms INTEGER;
CREATE INDEX ledger_key_due ON ledger_key(expires_ms) WHERE state IN (2, 3);
-- The time that the key of a tombstone carries, if it carries one. Only such a tombstone may be deleted.
ALTER TABLE ledger_key ADD COLUMN born_ms INTEGER;
CREATE INDEX ledger_key_born ON ledger_key(born_ms) WHERE state = 5 AND born_ms IS NOT NULL;
-- Who told the ledger to take what its clock shows for the time.
CREATE TABLE ledger_clock_audit(
    id INTEGER PRIMARY KEY,
    before_ms INTEGER NOT NULL,
    after_ms INTEGER NOT NULL,
    actor TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT;
-- New keys that carry a time before this one are refused, as their tombstones may be gone.
ALTER TABLE ledger_meta ADD COLUMN forgotten_ms INTEGER;
-- What the program that owns the file has configured, for tools beside it. No horizon if there is none.
ALTER TABLE ledger_meta ADD COLUMN retention_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger_meta ADD COLUMN horizon_ms INTEGER;
