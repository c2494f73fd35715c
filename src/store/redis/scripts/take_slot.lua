-- Adds the slot ARGV[2] of the gateway ARGV[1] to the set KEYS[1], unless it has ARGV[3] slots of living gateways, and
-- keeps the set for ARGV[4] ms. KEYS[2] has the living gateways by their end. Returns 1 (taken), 0 (as many as may be) or
-- -1 (the gateway is unknown).
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function lives(gateway)
  local ends = redis.call('ZSCORE', KEYS[2], gateway)
  return ends and tonumber(ends) > now
end
if not lives(ARGV[1]) then return -1 end
if redis.call('SISMEMBER', KEYS[1], ARGV[2]) == 1 then return 1 end
local count = 0
for _, slot in ipairs(redis.call('SMEMBERS', KEYS[1])) do
  if lives(string.match(slot, '^[^:]*')) then
    count = count + 1
  else
    redis.call('SREM', KEYS[1], slot)
  end
end
if count >= tonumber(ARGV[3]) then return 0 end
redis.call('SADD', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
return 1
