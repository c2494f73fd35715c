-- The wrk script: sends requests with the tokens of a file in rotation and prints one line of JSON at the end.
-- Arguments: the file, the size of the request body (0: GET), and how many letters of the signature are random in each request.

local requests, turn = {}, 0
local head, tail, length
local pieces = {}

local LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
local PIECES, PIECE, COLLECT = 1024, 6, 64

local function random_letters(count)
	local text = {}
	for place = 1, count do
		local digit = math.random(#LETTERS)
		text[place] = LETTERS:sub(digit, digit)
	end
	return table.concat(text)
end

-- The signature is replaced by letters at random, except for the last one, not all of whose bits count. They differ from their
-- beginning to their end, as real ones do: LuaJIT looks at few bytes of a long string, and strings that are alike elsewhere
-- would slow down nginx with Lua. Of EdDSA only the first half, because the second one must be in a range, else the token is
-- refused at once.
local function prepare_unique(request, most)
	math.randomseed(os.time())
	for number = 1, PIECES do
		pieces[number] = random_letters(PIECE)
	end
	local start, stop = request:match("Bearer [%w_-]+%.[%w_-]+%.()[%w_-]+()")
	length = math.min(stop - start - 1, most)
	head, tail = request:sub(1, start - 1), request:sub(start + length)
end

function init(arguments)
	local size = tonumber(arguments[2])
	local method, body = "GET", nil
	if size > 0 then
		method, body = "POST", string.rep("b", size)
	end
	wrk.method, wrk.body = method, body
	for token in io.lines(arguments[1]) do
		wrk.headers["Authorization"] = "Bearer " .. token
		requests[#requests + 1] = wrk.format()
	end
	if tonumber(arguments[3]) > 0 then
		prepare_unique(requests[1], tonumber(arguments[3]))
	elseif #requests == 1 then
		-- Without this function wrk makes the request itself, and only once: the load must not cost more than it has to.
		request = nil
	end
end

function request()
	if length then
		-- The requests themselves are alike where LuaJIT looks, so it must not have many of them.
		turn = turn + 1
		if turn % COLLECT == 0 then
			collectgarbage()
		end
		local signature = {}
		for place = 1, math.ceil(length / PIECE) do
			signature[place] = pieces[math.random(PIECES)]
		end
		return head .. table.concat(signature):sub(1, length) .. tail
	end
	turn = turn % #requests + 1
	return requests[turn]
end

function done(summary, latency)
	local errors = summary.errors
	io.write(string.format(
		'{"requests": %d, "refused": %d, "failed": %d, "seconds": %.6f, "p50_us": %d, "p99_us": %d}\n',
		summary.requests, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
		summary.duration / 1e6, latency:percentile(50), latency:percentile(99)))
end
