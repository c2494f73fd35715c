-- Gives the claim KEYS[1] the value ARGV[2] for ARGV[3] ms, if its value is ARGV[1]. KEYS[2] lists the unconfirmed claims
-- of the same network by their end; ARGV[4] names this one there.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
local time = redis.call('TIME')
redis.call('ZADD', KEYS[2], 'XX', time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3], ARGV[4])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
return 1
