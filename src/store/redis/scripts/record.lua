-- A session's record: when it was last used (13 digits), its expiry (13), its version (10), its body.
local function expiry(record) return tonumber(string.sub(record, 14, 26)) end
local function version(record) return tonumber(string.sub(record, 27, 36)) end

local function remove(index, key, record, id)
    redis.call('DEL', key)
    local readable, body = pcall(cjson.decode, string.sub(record, 37))
    if not readable then return end
    redis.call('ZREM', index, table.concat({'e', body.c, body.e, id}, '\0'))
    if body.a then
        redis.call('ZREM', index, table.concat({'a', body.a.corp_id, body.a.user_id, id}, '\0'))
    end
end
