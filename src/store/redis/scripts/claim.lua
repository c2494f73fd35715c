-- Claims KEYS[1] for ARGV[2] ms with the value ARGV[1], unless it is claimed: then returns the value of that claim.
-- KEYS[2] lists the unconfirmed claims of the same network by their end; ARGV[3] names this one there. Beyond ARGV[4] of
-- them the one that ends first is removed; ARGV[5] with its name is its key.
local taken = redis.call('GET', KEYS[1])
if taken then return taken end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[3])
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
if redis.call('ZCARD', KEYS[2]) > tonumber(ARGV[4]) then
  redis.call('DEL', ARGV[5] .. redis.call('ZPOPMIN', KEYS[2])[1])
end
return false
