-- An employee who has signed in through the platform before it was asked for their status: 0, until it calls them active.
-- So far such employees had the time of their creation.
UPDATE employees SET platform_active_at = 0 WHERE platform_active_at = created_at;
