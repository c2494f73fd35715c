-- When the platform called the account of a link inactive; NULL: it has not, or has called it active since.
ALTER TABLE platform_links ADD COLUMN platform_inactive_at BIGINT;
