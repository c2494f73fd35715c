-- KEYS: session, index, signing keys, newest. ARGV: record, lifetime, signing key, expiry, entry of newest, its capacity, members.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 0 end
for number = 7, #ARGV do redis.call('ZADD', KEYS[2], 0, ARGV[number]) end
local latest = redis.call('HGET', KEYS[3], ARGV[3])
if not latest or tonumber(latest) < tonumber(ARGV[4]) then redis.call('HSET', KEYS[3], ARGV[3], ARGV[4]) end
redis.call('LPUSH', KEYS[4], ARGV[5])
redis.call('LTRIM', KEYS[4], 0, ARGV[6] - 1)
for number = 2, 4 do
    if redis.call('PTTL', KEYS[number]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[number], ARGV[2]) end
end
return 1
