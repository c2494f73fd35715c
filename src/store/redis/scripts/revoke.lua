-- KEYS: index, feed, then session and denial of each id. ARGV: lifetime, capacity and lifetime of the feed, text of the
-- entries before the id, 'new' or 'again', ids. 'again' repeats denials that a failover may have lost: one that is there
-- was repeated by another gateway.
local function is_there(denial) return redis.call('PTTL', denial) >= ARGV[1] - 5000 end

for number = 6, #ARGV do
    local id, session, denial = ARGV[number], KEYS[2 * number - 9], KEYS[2 * number - 8]
    local record = redis.call('GET', session)
    if record then remove(KEYS[1], session, record, id) end
    local known = is_there(denial)
    if redis.call('PTTL', denial) < tonumber(ARGV[1]) then redis.call('SET', denial, 1, 'PX', ARGV[1]) end
    if ARGV[5] == 'new' or record or not known then
        announce(KEYS[2], 'e', ARGV[4] .. id, ARGV[2], ARGV[3])
    end
end
return #ARGV - 5
