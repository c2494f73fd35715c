"""Measures a fleet of two gateways on a Redis Cluster and PostgreSQL: how fast a logout reaches the other one, how often Redis is asked, and what a
session takes there.

    fleet.py [--program FILE] [--rounds 300] [--sockets 5000] [--logouts 500] [--seconds 10] [--sessions 20000]

All times are measured by the client. Prints the table of docs/benchmarks.md.
"""

import argparse
import asyncio
import base64
import itertools
import json
import os
import pathlib
import resource
import socket
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "deploy" / "fleet"))

from run import Fleet  # noqa: E402

RULES = """
[[rule]]
name = "bench"
path = "/api/bench/{*rest}"
upstream = "helpdesk"
signed_in = true

[[rule]]
name = "bench with a shared rate"
path = "/api/rated/{*rest}"
upstream = "helpdesk"
signed_in = true
rate = [{ by = "employee", limit = 2000000, per = "1m" }]

[[rule]]
name = "bench socket"
path = "/ws/employee"
methods = ["GET"]
upstream = "helpdesk"
signed_in = true
"""


class Connection:
    """A kept connection to a gateway."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def send(self, method, path, token=None, body=None):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        content = json.dumps(body).encode() if body is not None else b""
        head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", f"Content-Length: {len(content)}"]
        if body is not None:
            head.append("Content-Type: application/json")
        if token:
            head.append(f"Authorization: Bearer {token}")
        self.writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + content)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        status = int(answer.split(b" ", 2)[1])
        lower = answer.lower()
        if b"content-length:" in lower:
            length = int(lower.split(b"content-length:")[1].split(b"\r\n")[0])
            return status, await self.reader.readexactly(length)
        parts = []
        while b"chunked" in lower:
            size = int(await self.reader.readline(), 16)
            parts.append(await self.reader.readexactly(size + 2))
            if size == 0:
                break
        return status, b"".join(part[:-2] for part in parts)

    def close(self):
        if self.writer:
            self.writer.close()


async def sign_in(connection, employee="a2001"):
    status, body = await connection.send("POST", "/api/dev/login", body={"employee_id": employee})
    assert status == 200, (status, body)
    return json.loads(body)["data"]["token"]


async def open_socket(port, token):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    key = base64.b64encode(os.urandom(16)).decode()
    writer.write((f"GET /ws/employee HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n"
                  f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n").encode())
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 101 " in head.split(b"\r\n")[0], head
    return reader, writer


async def closed_at(reader):
    """When the close frame came, and its code."""
    while True:
        first, length = await reader.readexactly(2)
        if length == 126:
            length = int.from_bytes(await reader.readexactly(2), "big")
        payload = await reader.readexactly(length)
        if first & 15 == 8:
            return time.perf_counter(), int.from_bytes(payload[:2], "big")


async def refused_at(connection, token):
    """When the gateway first refuses the token."""
    while True:
        status, _ = await connection.send("GET", "/api/bench/x", token)
        if status == 401:
            return time.perf_counter()


async def revocations(ports, rounds):
    """Logouts one after the other: the time from sending the logout until the other gateway refuses and closes."""
    here, there, closing, refusing = Connection(ports[0]), Connection(ports[1]), [], []
    for _ in range(rounds):
        token = await sign_in(here)
        assert (await there.send("GET", "/api/bench/x", token))[0] == 200
        reader, writer = await open_socket(ports[1], token)
        socket_closed, refused = asyncio.create_task(closed_at(reader)), asyncio.create_task(refused_at(there, token))
        begun = time.perf_counter()
        status, _ = await here.send("POST", "/api/auth/logout", token)
        assert status == 200
        at, code = await socket_closed
        assert code == 4401, code
        closing.append(at - begun)
        refusing.append(await refused - begun)
        writer.close()
    return closing, refusing


async def storm(ports, sockets, rate, seconds):
    """Logouts at a fixed rate while sockets are open on both gateways, each with a session of its own. As many sockets are
    opened in addition as are closed, so that `sockets` of them stay open to the end."""
    connections = [[Connection(port) for _ in range(16)] for port in ports]
    open_sockets, gate = [], asyncio.Semaphore(64)

    async def open_one(number):
        async with gate:
            here, there = number % 2, (number + 1) % 2
            connection = connections[here].pop()
            token = await sign_in(connection)
            connections[here].append(connection)
            open_sockets.append((here, token, *await open_socket(ports[there], token)))

    count = int(rate * seconds)
    for first in range(0, sockets + count, 16):
        await asyncio.gather(*(open_one(number) for number in range(first, min(first + 16, sockets + count))))
    times = []

    async def end(here, token, reader, writer):
        connection = connections[here].pop() if connections[here] else Connection(ports[here])
        closing = asyncio.create_task(closed_at(reader))
        begun = time.perf_counter()
        status, _ = await connection.send("POST", "/api/auth/logout", token)
        assert status == 200, status
        connections[here].append(connection)
        at, code = await closing
        assert code == 4401
        times.append(at - begun)
        writer.close()

    begun, tasks = time.perf_counter(), []
    for number in range(count):
        pause = begun + number / rate - time.perf_counter()
        if pause > 0:
            await asyncio.sleep(pause)
        tasks.append(asyncio.create_task(end(*open_sockets[number])))
    await asyncio.gather(*tasks)
    return times, count / (time.perf_counter() - begun)


def redis_commands(fleet):
    """How many commands all primaries have processed for requests, and the microseconds that they took."""
    calls = microseconds = 0
    for _, port in fleet.redis.primaries():
        for line in fleet.redis.cli(port, "info", "commandstats").splitlines():
            name, _, rest = line.partition(":")
            # What the gateways ask for requests; not the feed, the announcements and the cluster's own.
            if name.removeprefix("cmdstat_") in ("get", "mget", "evalsha", "eval", "set", "exists"):
                figures = dict(figure.split("=") for figure in rest.strip().split(","))
                calls, microseconds = calls + int(figures["calls"]), microseconds + int(figures["usec"])
    return calls, microseconds


def processor_seconds(process):
    """What a process has used so far."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(process):
    return int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# What a gateway asks Redis by itself, however many requests there are: see `store_seconds` in docs/operations.md.
BACKGROUND = ("announce", "denials", "deny_again", "feed", "gateways", "inspect", "keys", "lease", "note_seen", "ready", "slots", "sweep")


def questions(fleet, number):
    """How often a gateway has asked Redis for its requests."""
    counts = fleet.gateways.counts(number, "store_seconds_count", "op")
    return sum(count for operation, count in counts.items() if operation not in BACKGROUND)


async def commands_per_request(fleet, path, tokens, rate, seconds, number):
    """How often a gateway asks Redis per proxied request at a fixed rate."""
    before, port = questions(fleet, number), fleet.gateways.ports[number]
    connections, answered = [Connection(port) for _ in range(16)], 0
    chosen, begun = itertools.cycle(tokens), time.perf_counter()

    async def one(connection):
        nonlocal answered
        while time.perf_counter() < begun + seconds:
            started = time.perf_counter()
            status, _ = await connection.send("GET", path, next(chosen))
            assert status == 200, status
            answered += 1
            await asyncio.sleep(max(0, len(connections) / rate - (time.perf_counter() - started)))

    await asyncio.gather(*(one(connection) for connection in connections))
    return (questions(fleet, number) - before) / answered, answered / seconds


async def cold_tokens(fleet, ports, count):
    """Redis commands for a token that the gateway does not know, and the microseconds that they take there."""
    here, there = Connection(ports[0]), Connection(ports[1])
    tokens = [await sign_in(here) for _ in range(count)]
    calls, microseconds = redis_commands(fleet)
    for token in tokens:
        assert (await there.send("GET", "/api/bench/x", token))[0] == 200
    calls_after, microseconds_after = redis_commands(fleet)
    return (calls_after - calls) / count, (microseconds_after - microseconds) / count


async def many_sessions(fleet, ports, count):
    """What sessions cost: bytes in Redis, processor time of a sign-in, and bytes and processor time of a gateway that caches them."""
    def used():
        return sum(int(fleet.redis.cli(member, "info", "memory").split("used_memory:")[1].splitlines()[0])
                   for _, member in fleet.redis.primaries())

    def processors():
        servers = [server for server, _ in fleet.redis.primaries()]
        return [sum(map(processor_seconds, servers)), processor_seconds(fleet.gateways.gateways[0])]

    async def each(port, work):
        connections = [Connection(port) for _ in range(16)]
        await asyncio.gather(*(work(connection, number) for number, connection in enumerate(connections)))

    tokens, share = [[] for _ in range(16)], count // 16

    async def sign_in_some(connection, number):
        for _ in range(share):
            tokens[number].append(await sign_in(connection, "u1001"))

    async def work_with_some(connection, number):
        for token in tokens[number]:
            assert (await connection.send("GET", "/api/bench/x", token))[0] == 200

    memory, (redis, gateway) = used(), processors()
    await each(ports[0], sign_in_some)
    count = share * 16
    in_redis = (used() - memory) / count
    per_sign_in = [(after - before) / count for after, before in zip(processors(), (redis, gateway))]
    other = fleet.gateways.gateways[1]
    memory = resident_bytes(other)
    await each(ports[1], work_with_some)
    return in_redis, per_sign_in, (resident_bytes(other) - memory) / count


class RawRedis:
    """A blocking connection that sends commands and reads answers as bytes."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words))

    def read(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind in b"*>":
            return None if rest == b"-1" else [self.read() for _ in range(int(rest))]
        return rest

    def ask(self, *words):
        self.send(*words)
        return self.read()


def feeds_compared(fleet, rounds=2000):
    """The time from a change to its arrival: a stream with a blocking read against publish and subscribe."""
    _, port = fleet.redis.primaries()[0]
    own = next(key for key in (f"bench:{{{number}}}" for number in range(1000))
               if RawRedis(port).ask("SET", key, 1, "PX", 60000) == b"OK")
    writer, reader, subscriber = RawRedis(port), RawRedis(port), RawRedis(port)
    by_stream, by_channel, last = [], [], b"0"
    for _ in range(rounds):
        reader.send("XREAD", "BLOCK", 1000, "STREAMS", own + ":s", last)
        time.sleep(0.0005)
        begun = time.perf_counter()
        writer.send("XADD", own + ":s", "MAXLEN", "~", 1000, "*", "c", "x" * 60)
        answer = reader.read()
        by_stream.append(time.perf_counter() - begun)
        writer.read()
        last = answer[0][1][-1][0]
    subscriber.ask("SUBSCRIBE", own + ":c")
    for _ in range(rounds):
        time.sleep(0.0005)
        begun = time.perf_counter()
        writer.send("PUBLISH", own + ":c", "x" * 60)
        subscriber.read()
        by_channel.append(time.perf_counter() - begun)
        writer.read()
    return by_stream, by_channel


def percentiles(times):
    times = sorted(times)
    return f"p50 {times[len(times) // 2] * 1000:.1f} ms, p99 {times[int(len(times) * 0.99)] * 1000:.1f} ms"


async def measure(fleet, options):
    ports = fleet.gateways.ports
    rows = []

    def row(what, value):
        rows.append(f"| {what} | {value} |")
        print(f"  {what}: {value}", file=sys.stderr, flush=True)

    closing, refusing = await revocations(ports, options.rounds)
    row(f"logout until 4401 on the other gateway's socket, {options.rounds} times", percentiles(closing))
    row("logout until the other gateway refuses the token", percentiles(refusing))
    times, rate = await storm(ports, options.sockets, options.logouts, options.seconds)
    row(f"the same while {options.sockets} other sockets are open, at {rate:.0f} logouts a second", percentiles(times))
    tokens = [await sign_in(Connection(ports[0])) for _ in range(20)]
    warm = Connection(ports[1])
    for token in tokens:
        await warm.send("GET", "/api/bench/x", token)
    asked, rate = await commands_per_request(fleet, "/api/bench/x", tokens, 1000, options.seconds, 1)
    row(f"questions to Redis per request with a warm token, {rate:.0f} requests a second", f"{asked:.4f}")
    asked, rate = await commands_per_request(fleet, "/api/rated/x", tokens, 1000, options.seconds, 1)
    row(f"the same with a shared rate, {rate:.0f} requests a second", f"{asked:.4f}")
    calls, microseconds = await cold_tokens(fleet, ports, 500)
    row("Redis commands per request with a cold token", f"{calls:.3f}, {microseconds:.0f} µs each")
    in_redis, (redis, gateway), cached = await many_sessions(fleet, ports, options.sessions)
    row(f"a session in Redis, {options.sessions} sessions of one employee", f"{in_redis:.0f} bytes")
    row("a sign-in", f"{gateway * 1e6:.0f} µs of the gateway's processor time, {redis * 1e6:.0f} µs of Redis")
    row("a session in a gateway's cache, just used", f"{cached:.0f} bytes")
    stream, channel = await asyncio.to_thread(feeds_compared, fleet)
    row("a change to its arrival: stream and blocking read", percentiles(stream))
    row("a change to its arrival: publish and subscribe", percentiles(channel))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(REPOSITORY / "target/release/deskgate"))
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--sockets", type=int, default=5000)
    parser.add_argument("--logouts", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--sessions", type=int, default=20000)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    rules = pathlib.Path("/tmp") / f"deskgate-bench-{os.getpid()}"
    rules.mkdir()
    (rules / "bench.toml").write_text(RULES)
    settings = [f"rules.dir={rules}", "limits.connections_per_address=20000", "log.requests=refused"]
    try:
        with Fleet(options.program, 2, settings, report=lambda line: print(line, file=sys.stderr, flush=True)) as fleet:
            rows = asyncio.run(measure(fleet, options))
    finally:
        (rules / "bench.toml").unlink()
        rules.rmdir()
    print("| what | measured |\n|---|---|")
    print("\n".join(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
