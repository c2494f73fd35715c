-- KEYS: sessions. ARGV: now, then the last use of each. A time after now was written before a clock was set back.
for number, key in ipairs(KEYS) do
    local noted = redis.call('GETRANGE', key, 0, 12)
    if noted ~= '' and (tonumber(noted) < tonumber(ARGV[number + 1]) or tonumber(noted) > tonumber(ARGV[1])) then
        redis.call('SETRANGE', key, 0, ARGV[number + 1])
    end
end
return #KEYS
