-- The wrk script: sends GETs with the tokens of a file in rotation and prints one line of JSON at the end.

local requests, turn = {}, 0

function init(arguments)
	for token in io.lines(arguments[1]) do
		requests[#requests + 1] = wrk.format("GET", nil, { ["Authorization"] = "Bearer " .. token })
	end
end

function request()
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
