-- KEYS: ticket, feed. ARGV: version that was read, record, lifetime, capacity and lifetime of the feed, the ticket's digest.
local record = redis.call('GET', KEYS[1])
if not record or tonumber(string.sub(record, 1, 10)) ~= tonumber(ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
announce(KEYS[2], 't', ARGV[6], ARGV[4], ARGV[5])
return 1
