CREATE TABLE otp_devices (
    corp_id TEXT NOT NULL,
    employee_id TEXT NOT NULL,
    secret TEXT,
    pending TEXT,
    bound_at BIGINT,
    last_verified_at BIGINT,
    last_step BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (corp_id, employee_id)
);

CREATE TABLE lockouts (
    corp_id TEXT NOT NULL,
    employee_id TEXT NOT NULL,
    tried TEXT NOT NULL,
    state TEXT NOT NULL,
    version BIGINT NOT NULL,
    PRIMARY KEY (corp_id, employee_id, tried)
);
