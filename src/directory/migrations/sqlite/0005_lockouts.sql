ALTER TABLE lockouts ADD COLUMN changed_at BIGINT NOT NULL DEFAULT 0;

CREATE INDEX lockouts_by_time ON lockouts (corp_id, changed_at);

CREATE INDEX employees_by_folded_id ON employees (corp_id, lower(employee_id));
