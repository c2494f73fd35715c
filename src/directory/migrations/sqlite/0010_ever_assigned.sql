-- Whether the employee ever had a role assignment: the agent record's role and the default role then apply no more.
ALTER TABLE employees ADD COLUMN ever_assigned INTEGER NOT NULL DEFAULT 0;

-- Assignments that were removed before this column existed are in the audit log, as far as it is kept.
UPDATE employees SET ever_assigned = 1
WHERE EXISTS (SELECT 1 FROM user_roles AS held
        WHERE held.corp_id = employees.corp_id AND held.employee_id = employees.employee_id)
    OR EXISTS (SELECT 1 FROM audit_log AS record
        WHERE record.corp_id = employees.corp_id AND record.employee_id = employees.employee_id
        AND record.at >= employees.created_at AND record.refused = ''
        AND (record.event IN ('grant_role', 'take_role')
            OR record.detail LIKE 'role grant %' OR record.detail LIKE 'role take %'));
