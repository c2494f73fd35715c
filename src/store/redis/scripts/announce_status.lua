-- Keeps the announcement ARGV[2] of the gateway ARGV[1] in the hash KEYS[1] for ARGV[3] ms. It begins with its end (13
-- digits) by this server's clock: those of gateways differ. All are kept for the same time.
local time = redis.call('TIME')
local ends = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], string.format('%013.0f', ends) .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
