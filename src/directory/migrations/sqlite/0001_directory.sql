CREATE TABLE employees (
    corp_id TEXT NOT NULL,
    employee_id TEXT NOT NULL,
    name TEXT NOT NULL,
    department TEXT NOT NULL,
    avatar TEXT NOT NULL,
    disabled INTEGER NOT NULL DEFAULT 0,
    last_login_ip TEXT,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (corp_id, employee_id)
);

CREATE TABLE roles (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
);

CREATE TABLE user_roles (
    corp_id TEXT NOT NULL,
    employee_id TEXT NOT NULL,
    role_id INTEGER NOT NULL REFERENCES roles (id),
    PRIMARY KEY (corp_id, employee_id, role_id)
);

CREATE TABLE agents (
    corp_id TEXT NOT NULL,
    employee_id TEXT NOT NULL,
    role TEXT NOT NULL,
    password_hash TEXT,
    PRIMARY KEY (corp_id, employee_id)
);

CREATE TABLE login_log (
    at BIGINT NOT NULL,
    corp_id TEXT NOT NULL,
    employee_id TEXT NOT NULL,
    login_method TEXT NOT NULL,
    login_source TEXT NOT NULL,
    ip_address TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    result TEXT NOT NULL,
    reason TEXT NOT NULL
);

CREATE INDEX login_log_of_employee ON login_log (corp_id, employee_id, at);
