-- KEYS: index, signing keys, newest, feed, then session and denial of each imported session. ARGV: capacity of newest,
-- capacity and lifetime of the feed, then of each session: record, lifetime, signing key, entry of newest, member by employee,
-- member by platform account ('' without one). Returns how many were written, kept and denied.
local written, kept, denied, longest, entries = 0, 0, 0, 0, {}
for number = 1, (#KEYS - 4) / 2 do
    local session, denial, at = KEYS[2 * number + 3], KEYS[2 * number + 4], 6 * number - 3
    local record, lifetime, signing_key = ARGV[at + 1], tonumber(ARGV[at + 2]), ARGV[at + 3]
    local known = redis.call('GET', session)
    if redis.call('EXISTS', denial) == 1 then
        denied = denied + 1
    elseif known and version(known) >= version(record) then
        kept = kept + 1
    else
        written = written + 1
        redis.call('SET', session, record, 'PX', lifetime)
        redis.call('ZADD', KEYS[1], 0, ARGV[at + 5])
        if ARGV[at + 6] ~= '' then redis.call('ZADD', KEYS[1], 0, ARGV[at + 6]) end
        local latest = redis.call('HGET', KEYS[2], signing_key)
        if not latest or tonumber(latest) < expiry(record) then
            redis.call('HSET', KEYS[2], signing_key, string.sub(record, 14, 26))
        end
        entries[#entries + 1] = ARGV[at + 4]
        longest = math.max(longest, lifetime)
        if known then announce(KEYS[4], 'c', string.sub(record, 14), ARGV[2], ARGV[3]) end
    end
end
if written > 0 then
    -- Imported sessions come in any order; each entry begins with the time of its start.
    local listed = {}
    for _, entry in ipairs(entries) do listed[entry] = true end
    for _, entry in ipairs(redis.call('LRANGE', KEYS[3], 0, -1)) do
        if not listed[entry] then entries[#entries + 1] = entry end
    end
    table.sort(entries, function(one, other) return one > other end)
    local lifetimes = {}
    for number = 1, 3 do lifetimes[number] = math.max(redis.call('PTTL', KEYS[number]), longest) end
    redis.call('DEL', KEYS[3])
    for number = 1, math.min(#entries, tonumber(ARGV[1])) do redis.call('RPUSH', KEYS[3], entries[number]) end
    for number = 1, 3 do redis.call('PEXPIRE', KEYS[number], lifetimes[number]) end
end
return {written, kept, denied}
