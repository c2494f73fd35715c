-- KEYS: index, session of each member. ARGV: members. Removes the members whose session is gone. Sessions expire by the
-- server's clock: a gateway whose clock is wrong must not end those of the others.
local removed = 0
for number = 2, #KEYS do
    if redis.call('EXISTS', KEYS[number]) == 0 then removed = removed + redis.call('ZREM', KEYS[1], ARGV[number - 1]) end
end
return removed
