-- KEYS: index, feed, then session and denial of each id. ARGV: capacity and lifetime of the feed, then of each id: lifetime of
-- the denial, text of the entry before the id, id. Ends the sessions and denies their tokens for at least that long.
for number = 1, (#KEYS - 2) / 2 do
    local session, denial, at = KEYS[2 * number + 1], KEYS[2 * number + 2], 3 * number - 1
    local lifetime, id = tonumber(ARGV[at + 1]), ARGV[at + 3]
    local record = redis.call('GET', session)
    if record then remove(KEYS[1], session, record, id) end
    local known = redis.call('PTTL', denial)
    if known < lifetime then redis.call('SET', denial, 1, 'PX', lifetime) end
    if record or known < 0 then announce(KEYS[2], 'e', ARGV[at + 2] .. id, ARGV[1], ARGV[2]) end
end
return (#KEYS - 2) / 2
