CREATE TABLE platform_links (
    corp_id TEXT NOT NULL,
    user_id TEXT NOT NULL,
    employee_corp_id TEXT NOT NULL,
    employee_id TEXT NOT NULL,
    requested_at BIGINT NOT NULL,
    approved_by TEXT,
    approved_at BIGINT,
    PRIMARY KEY (corp_id, user_id)
);

CREATE INDEX platform_links_of_employee ON platform_links (employee_corp_id, employee_id);

ALTER TABLE login_log ADD COLUMN platform_account TEXT NOT NULL DEFAULT '';
