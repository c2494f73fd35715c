-- Why an employee was disabled because of the platform; NULL: it was not the reason.
ALTER TABLE employees ADD COLUMN inactive TEXT;

-- When the platform last called the employee active; NULL: never.
ALTER TABLE employees ADD COLUMN platform_active_at BIGINT;

-- The recheck queue: when the platform was last asked; NULL: not in the queue.
ALTER TABLE employees ADD COLUMN platform_checked_at BIGINT;

CREATE INDEX employees_by_platform_check ON employees (platform_checked_at, corp_id, employee_id)
    WHERE platform_checked_at IS NOT NULL;

UPDATE employees SET platform_checked_at = 0;

-- Those who have signed in through the platform, as far as the logs tell. Who was created before the first audit record
-- may have been added by an operator: the platform's first "active" decides.
UPDATE employees SET platform_active_at = created_at WHERE
    EXISTS (SELECT 1 FROM login_log WHERE login_log.corp_id = employees.corp_id
        AND login_log.employee_id = employees.employee_id
        AND result = 'success' AND login_method IN ('oauth2', 'qrcode'))
    OR created_at >= (SELECT min(at) FROM audit_log) AND NOT EXISTS (SELECT 1 FROM audit_log WHERE audit_log.corp_id = employees.corp_id
        AND audit_log.employee_id = employees.employee_id AND detail = 'employee add' AND refused = '');
