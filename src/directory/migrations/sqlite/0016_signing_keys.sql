-- The signing keys of a fleet. The id carries the algorithm and the time from which the key signs; the private key is
-- encrypted, and NULL once the key was removed.
CREATE TABLE signing_keys (
    key_id TEXT NOT NULL PRIMARY KEY,
    private_key TEXT
);

-- One row: how often the keys have changed.
CREATE TABLE signing_key_generation (
    row_id BIGINT NOT NULL PRIMARY KEY CHECK (row_id = 1),
    generation BIGINT NOT NULL
);

INSERT INTO signing_key_generation (row_id, generation) VALUES (1, 0);
