-- KEYS: feed, sessions. ARGV: new expiry, lifetime, capacity and lifetime of the feed. Returns the changed records without their last use.
local changed = {}
for number = 2, #KEYS do
    local record = redis.call('GET', KEYS[number])
    if record and expiry(record) > tonumber(ARGV[1]) then
        local text = string.format('%013.0f%010.0f', ARGV[1], version(record) + 1) .. string.sub(record, 37)
        redis.call('SET', KEYS[number], string.sub(record, 1, 13) .. text, 'PX', ARGV[2])
        announce(KEYS[1], 'c', text, ARGV[3], ARGV[4])
        changed[#changed + 1] = text
    end
end
return changed
