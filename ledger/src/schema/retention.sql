-- Results expire, keys stay. `latest_ms` is the latest time that the ledger is sure of, so that a clock that jumps back
-- makes nothing young again; `ahead_ms` is a time far ahead of it that no later look at the clock has confirmed yet.
ALTER TABLE ledger_meta ADD COLUMN latest_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger_meta ADD COLUMN ahead_ms INTEGER;
CREATE INDEX ledger_key_due ON ledger_key(expires_ms) WHERE state IN (2, 3);
