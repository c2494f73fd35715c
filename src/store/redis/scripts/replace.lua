-- KEYS: session, denial, feed. ARGV: version that was read, record without its last use, lifetime, capacity and lifetime of the feed.
local record = redis.call('GET', KEYS[1])
if not record or version(record) ~= tonumber(ARGV[1]) or redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
redis.call('SET', KEYS[1], string.sub(record, 1, 13) .. ARGV[2], 'PX', ARGV[3])
announce(KEYS[3], 'c', ARGV[2], ARGV[4], ARGV[5])
return 1
