CREATE TABLE audit_log (
    id TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    corp_id TEXT NOT NULL,
    employee_id TEXT NOT NULL,
    event TEXT NOT NULL,
    by_whom TEXT NOT NULL,
    session_id TEXT NOT NULL,
    detail TEXT NOT NULL,
    refused TEXT NOT NULL
);

CREATE INDEX audit_log_of_employee ON audit_log (employee_id, at);

CREATE INDEX audit_log_by_time ON audit_log (at);
