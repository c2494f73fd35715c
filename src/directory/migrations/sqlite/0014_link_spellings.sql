-- Platform user ids are unique whatever their case.
CREATE INDEX platform_links_folded ON platform_links (corp_id, lower(user_id));
