ALTER TABLE login_log ADD COLUMN client TEXT NOT NULL DEFAULT '';

CREATE INDEX login_log_by_time ON login_log (at);
