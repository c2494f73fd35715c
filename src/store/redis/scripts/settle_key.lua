-- KEYS: signing keys. ARGV: signing key, the last expiry of its sessions that was read, the new one. A session that was
-- created meanwhile has changed the last expiry: then it stays, and its sessions are looked at again.
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
