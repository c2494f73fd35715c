-- Appends an entry to the feed of the partition. Entries are numbered without a gap, so that a reader sees that it missed one.
local function announce(feed, kind, text, capacity, lifetime)
    local last = redis.call('XREVRANGE', feed, '+', '-', 'COUNT', 1)[1]
    local number = last and tonumber(last[2][2]) + 1 or 1
    redis.call('XADD', feed, 'MAXLEN', '~', capacity, '*', 'n', number, kind, text)
    redis.call('PEXPIRE', feed, lifetime)
    -- Wakes the readers of a cluster. One that may not be woken reads a moment later.
    redis.pcall('PUBLISH', feed, '')
end
