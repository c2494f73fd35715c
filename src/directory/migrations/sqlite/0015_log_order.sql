-- The order of records that one gateway wrote in the same millisecond.
ALTER TABLE audit_log ADD COLUMN sequence BIGINT NOT NULL DEFAULT 0;

UPDATE audit_log SET sequence = rowid;

ALTER TABLE login_log ADD COLUMN sequence BIGINT NOT NULL DEFAULT 0;

UPDATE login_log SET sequence = rowid;
