-- Returns the announcements in the hash KEYS[1] that still count, and removes the others.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local live, all = {}, redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
    if tonumber(string.sub(all[at + 1], 1, 13)) > now then
        live[#live + 1] = string.sub(all[at + 1], 14)
    else
        redis.call('HDEL', KEYS[1], all[at])
    end
end
return live
