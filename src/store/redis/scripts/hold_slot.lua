-- Adds the slot ARGV[1] to the set KEYS[1], however many it has, and keeps the set for ARGV[2] ms.
redis.call('SADD', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
