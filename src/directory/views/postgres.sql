-- Employees, roles and agents that the help desk keeps in tables of its own. These views take the place of our tables on the
-- search path and add to each row what is ours, which stays in our tables. Made at every start.

CREATE OR REPLACE VIEW deskgate_views.employees AS
SELECT desk.corp_id::text COLLATE "C" AS corp_id,
    desk.employee_id::text COLLATE "C" AS employee_id,
    coalesce(desk.name, desk.employee_id)::text COLLATE "C" AS name,
    coalesce(desk.department, '')::text COLLATE "C" AS department,
    coalesce(desk.avatar, '')::text AS avatar,
    -- Unknown is disabled. So is an employee whom the platform calls inactive, whatever the desk says.
    (CASE WHEN desk.disabled IS NOT FALSE OR own.inactive IS NOT NULL THEN 1 ELSE 0 END)::bigint AS disabled,
    own.last_login_ip,
    0::bigint AS created_at,
    own.inactive,
    own.platform_active_at,
    own.platform_checked_at,
    (CASE WHEN EXISTS (SELECT 1 FROM deskgate.desk_user_roles AS held
        WHERE held.corp_id = desk.corp_id AND held.employee_id = desk.employee_id) THEN 1 ELSE 0 END)::bigint AS ever_assigned
FROM deskgate.desk_employees AS desk
LEFT JOIN deskgate.employees AS own ON own.corp_id = desk.corp_id::text AND own.employee_id = desk.employee_id::text;

-- The desk has no ids of roles; their names are as good.
CREATE OR REPLACE VIEW deskgate_views.user_roles AS
SELECT DISTINCT corp_id::text COLLATE "C" AS corp_id, employee_id::text COLLATE "C" AS employee_id,
    role::text COLLATE "C" AS role_id
FROM deskgate.desk_user_roles;

CREATE OR REPLACE VIEW deskgate_views.roles AS
SELECT DISTINCT role::text COLLATE "C" AS id, role::text COLLATE "C" AS name FROM deskgate.desk_user_roles;

CREATE OR REPLACE VIEW deskgate_views.agents AS
SELECT desk.corp_id::text COLLATE "C" AS corp_id,
    desk.employee_id::text COLLATE "C" AS employee_id,
    desk.role::text COLLATE "C" AS role,
    own.password_hash,
    own.password_id,
    (CASE WHEN desk.otp_required IS NOT FALSE THEN 1 ELSE 0 END)::bigint AS otp_required
FROM deskgate.desk_agents AS desk
LEFT JOIN deskgate.agents AS own ON own.corp_id = desk.corp_id::text AND own.employee_id = desk.employee_id::text;

-- A change writes what is ours, and only if it is still as the statement saw it: a view's rows cannot be locked.
CREATE OR REPLACE FUNCTION deskgate_views.update_employee() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.name, NEW.department, NEW.avatar, NEW.ever_assigned)
        IS DISTINCT FROM (OLD.name, OLD.department, OLD.avatar, OLD.ever_assigned)
        OR (NEW.disabled <> OLD.disabled AND NEW.inactive IS NOT DISTINCT FROM OLD.inactive) THEN
        RAISE EXCEPTION 'employees belong to the help desk' USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    INSERT INTO deskgate.employees AS own (corp_id, employee_id, name, department, avatar, created_at, last_login_ip, inactive,
        platform_active_at, platform_checked_at)
    VALUES (OLD.corp_id, OLD.employee_id, '', '', '', 0, NEW.last_login_ip, NEW.inactive, NEW.platform_active_at,
        NEW.platform_checked_at)
    ON CONFLICT (corp_id, employee_id) DO UPDATE SET
        last_login_ip = CASE WHEN NEW.last_login_ip IS DISTINCT FROM OLD.last_login_ip
            THEN NEW.last_login_ip ELSE own.last_login_ip END,
        platform_active_at = CASE WHEN NEW.platform_active_at IS DISTINCT FROM OLD.platform_active_at
            THEN NEW.platform_active_at ELSE own.platform_active_at END,
        inactive = CASE WHEN NEW.inactive IS DISTINCT FROM OLD.inactive THEN NEW.inactive ELSE own.inactive END,
        platform_checked_at = CASE WHEN NEW.platform_checked_at IS DISTINCT FROM OLD.platform_checked_at
            THEN NEW.platform_checked_at ELSE own.platform_checked_at END
    WHERE (NEW.inactive IS NOT DISTINCT FROM OLD.inactive OR own.inactive IS NOT DISTINCT FROM OLD.inactive)
        AND (NEW.platform_checked_at IS NOT DISTINCT FROM OLD.platform_checked_at
            OR own.platform_checked_at IS NOT DISTINCT FROM OLD.platform_checked_at);
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER update_employee INSTEAD OF UPDATE ON deskgate_views.employees
    FOR EACH ROW EXECUTE FUNCTION deskgate_views.update_employee();

CREATE OR REPLACE FUNCTION deskgate_views.update_agent() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.role, NEW.otp_required) IS DISTINCT FROM (OLD.role, OLD.otp_required) THEN
        RAISE EXCEPTION 'agents belong to the help desk' USING ERRCODE = 'read_only_sql_transaction';
    END IF;
    INSERT INTO deskgate.agents AS own (corp_id, employee_id, role, password_hash, password_id)
    VALUES (OLD.corp_id, OLD.employee_id, '', NEW.password_hash, NEW.password_id)
    ON CONFLICT (corp_id, employee_id) DO UPDATE SET password_hash = NEW.password_hash, password_id = NEW.password_id
    WHERE own.password_hash IS NOT DISTINCT FROM OLD.password_hash AND own.password_id IS NOT DISTINCT FROM OLD.password_id;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    RETURN NEW;
END $$;

CREATE OR REPLACE TRIGGER update_agent INSTEAD OF UPDATE ON deskgate_views.agents
    FOR EACH ROW EXECUTE FUNCTION deskgate_views.update_agent();
