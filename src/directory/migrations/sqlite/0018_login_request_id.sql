-- The request that an attempt came with; empty if there was none, and in older records.
ALTER TABLE login_log ADD COLUMN request_id TEXT NOT NULL DEFAULT '';
