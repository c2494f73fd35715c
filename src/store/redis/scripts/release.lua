-- Removes the claim KEYS[1] if its value is ARGV[1], and its name ARGV[2] from the list KEYS[2] of its network.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[2])
