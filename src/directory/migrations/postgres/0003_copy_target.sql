-- At most one row: the copy of another directory that was made here, or is being made, and that no gateway has used yet.
CREATE TABLE copy_target (
    row_id BIGINT NOT NULL PRIMARY KEY CHECK (row_id = 1),
    copy_id TEXT NOT NULL,
    -- NULL until the copy is complete.
    completed_at BIGINT
);
