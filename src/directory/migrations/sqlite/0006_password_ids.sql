ALTER TABLE agents ADD COLUMN password_id TEXT;

UPDATE agents SET password_id = lower(hex(randomblob(8))) WHERE password_hash IS NOT NULL;
