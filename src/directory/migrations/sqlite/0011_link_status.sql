-- When the platform last called the account of a link active; NULL: never.
ALTER TABLE platform_links ADD COLUMN platform_active_at BIGINT;
