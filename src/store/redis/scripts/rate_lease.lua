-- The ledger of one shared rate limit: one atomic step. See store/rate_leases.rs for why no window admits more than the limit.
-- KEYS[1]: a hash. Field `t` is the time of the last step and what this server's clock was set back since; `c` with the time at which they stop counting are charges beside
-- all shares; `r` with a record's name is "sequence valid_until counts_until share need" and pairs "count until".
-- ARGV: record, sequence, limit, window, validity, held, need, want, charge, then pairs "count time left".
-- All times are microseconds of this server's clock, which does not go back.
local key, record = KEYS[1], ARGV[1]
local sequence, limit, per, validity = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local held, need, want, charge = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local function digits(number) return string.format('%.0f', number) end

local clock = redis.call('TIME')
local now, set_back = tonumber(clock[1]) * 1000000 + tonumber(clock[2]), 0
local fields = redis.call('HGETALL', key)
for at = 1, #fields, 2 do
  if fields[at] == 't' then
    local last, offset = string.match(fields[at + 1], '(%d+) (%d+)')
    set_back = tonumber(offset) + math.max(tonumber(last) - now - tonumber(offset), 0)
    now = now + set_back
  end
end

-- What a record counts: its share, or the admissions that it reported.
local function admitted_of(admitted)
  local sum = 0
  for at = 1, #admitted, 2 do
    if admitted[at + 1] > now then sum = sum + admitted[at] end
  end
  return sum
end
local function share_of(one) return one.counts_until > now and one.share or 0 end
local function counted(one) return math.max(share_of(one), admitted_of(one.admitted)) end
local function is_alive(one) return one.valid_until > now and one.need > 0 end

local function read(text)
  local numbers = {}
  for number in string.gmatch(text, '%d+') do numbers[#numbers + 1] = tonumber(number) end
  local admitted = {}
  for at = 6, #numbers do admitted[at - 5] = numbers[at] end
  return { sequence = numbers[1], valid_until = numbers[2], counts_until = numbers[3], share = numbers[4],
    need = numbers[5], admitted = admitted }
end

local charges, charged_before, records, gone = {}, 0, {}, {}
for at = 1, #fields, 2 do
  local name, value = fields[at], fields[at + 1]
  local kind = string.sub(name, 1, 1)
  if kind == 'c' then
    local expires = tonumber(string.sub(name, 2))
    if expires > now then
      charges[#charges + 1] = { expires, tonumber(value) }
      charged_before = charged_before + tonumber(value)
    else
      gone[#gone + 1] = name
    end
  elseif kind == 'r' then
    local one = read(value)
    local is_own = name == 'r' .. record
    if counted(one) == 0 and not is_alive(one) then
      gone[#gone + 1] = name
    elseif not is_own then
      records[#records + 1] = one
    elseif one.sequence >= sequence then
      return { 0, 0, '0', digits(per), 0, digits(now) }
    end
  end
end

-- Before anything is written: the own record may be among them.
if #gone > 0 then redis.call('HDEL', key, unpack(gone)) end

local room = math.max(limit - charged_before, 0)
local others, needs, needed = 0, {}, need
for _, one in ipairs(records) do
  others = others + counted(one)
  if is_alive(one) then
    needs[#needs + 1] = one.need
    needed = needed + one.need
  end
end
if need > 0 then needs[#needs + 1] = need end
local capacity = math.max(room - others, 0)

-- While all needs can be met: the own need and a part of what is left, so that some remains for a gateway that is new to the
-- key. Otherwise nobody gets more than an equal part, but for what others do not need.
local fair
if needed <= room then
  fair = need + math.floor((room - needed) / (#needs + 1))
else
  table.sort(needs)
  local left, sharing = room, #needs
  for _, one in ipairs(needs) do
    if one > math.floor(left / sharing) then break end
    left, sharing = left - one, sharing - 1
  end
  fair = math.max(math.floor(left / math.max(sharing, 1)), 1)
end
local share = math.min(want, fair, capacity)

local own = { sequence = sequence, valid_until = now + validity, counts_until = now + validity + per,
  share = math.max(share, held), need = need, admitted = {} }
for at = 10, #ARGV, 2 do
  own.admitted[#own.admitted + 1] = tonumber(ARGV[at])
  own.admitted[#own.admitted + 1] = now + tonumber(ARGV[at + 1]) + 2
end

local free = math.max(capacity - counted(own), 0)
local charged, entry = math.min(free, charge), 0
if charged > 0 then
  entry = now + per
  if limit >= 16 then
    local group = math.max(math.floor(per / 32), 1)
    entry = math.ceil(entry / group) * group
  end
  redis.call('HINCRBY', key, 'c' .. digits(entry), digits(charged))
  charges[#charges + 1] = { entry, charged }
end

if counted(own) > 0 or is_alive(own) then
  local numbers = { digits(sequence), digits(own.valid_until), digits(own.counts_until), digits(own.share), digits(need) }
  for _, number in ipairs(own.admitted) do numbers[#numbers + 1] = digits(number) end
  redis.call('HSET', key, 'r' .. record, table.concat(numbers, ' '))
  records[#records + 1] = own
else
  redis.call('HDEL', key, 'r' .. record)
end

-- When one more request fits, and when nothing counts any more.
local ends, total, last = {}, 0, now
local function add(expires, count)
  if count > 0 then
    ends[#ends + 1] = { expires, count }
    total = total + count
  end
end
for _, one in ipairs(charges) do
  add(one[1], one[2])
  last = math.max(last, one[1])
end
for _, one in ipairs(records) do
  local part = share_of(one)
  add(math.min(one.counts_until, now + per), part)
  last = math.max(last, one.counts_until)
  local excess = math.max(admitted_of(one.admitted) - part, 0)
  for at = 1, #one.admitted, 2 do
    if one.admitted[at + 1] > now then
      local count = math.min(one.admitted[at], excess)
      add(one.admitted[at + 1], count)
      excess = excess - count
      last = math.max(last, one.admitted[at + 1])
    end
  end
end
table.sort(ends, function(one, other) return one[1] < other[1] end)
local retry_after = 0
if total >= limit then
  retry_after = per
  for _, one in ipairs(ends) do
    total = total - one[2]
    if total < limit then
      retry_after = math.min(one[1] - now, per)
      break
    end
  end
end

if last > now then
  redis.call('HSET', key, 't', digits(now) .. ' ' .. digits(set_back))
  redis.call('PEXPIRE', key, digits(math.ceil((last - now) / 1000) + 1000))
end
return { share, charged, digits(entry), digits(retry_after), #needs, digits(now) }
