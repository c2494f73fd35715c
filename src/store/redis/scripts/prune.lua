-- KEYS: index, session of each member. ARGV: now, members. Removes the members whose session is gone or has expired.
local removed = 0
for number = 2, #KEYS do
    local record = redis.call('GETRANGE', KEYS[number], 0, 35)
    if record == '' or expiry(record) <= tonumber(ARGV[1]) then
        redis.call('DEL', KEYS[number])
        removed = removed + redis.call('ZREM', KEYS[1], ARGV[number])
    end
end
return removed
