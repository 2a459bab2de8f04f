-- Results expire, keys stay. `latest_ms` is the latest time that the ledger has seen, so that a clock that jumps back
-- makes nothing young again.
ALTER TABLE ledger_meta ADD COLUMN latest_ms INTEGER NOT NULL DEFAULT 0;
CREATE INDEX ledger_key_due ON ledger_key(expires_ms) WHERE state IN (2, 3);
