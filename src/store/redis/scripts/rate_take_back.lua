-- Takes back one charge of a shared rate limit. KEYS[1]: the ledger. ARGV[1]: the number of the entry.
local field = 'c' .. ARGV[1]
if redis.call('HEXISTS', KEYS[1], field) == 0 then return 0 end
if redis.call('HINCRBY', KEYS[1], field, -1) <= 0 then redis.call('HDEL', KEYS[1], field) end
return 1
