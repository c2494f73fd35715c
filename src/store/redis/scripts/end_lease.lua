-- Ends the lease KEYS[1] if the gateway ARGV[1] has it.
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
