"""Mixed load for minutes: memory and descriptors must be flat."""

import asyncio
import collections
import itertools
import os
import statistics
import sys
import time

import upstream
from gateway import Gateway
from http2 import Http2

# How many clients of each kind run at the same time.
CLIENTS = {"pages": 4, "kept connection": 2, "uploads": 3, "WebSockets": 4, "HTTP/2": 3, "polls": 3, "bad tokens": 2}

EMPLOYEES = itertools.cycle(["u1001", "a2001", "s3001", "c4001", "m5001"])

SAMPLE_SECONDS = 5


async def mixed_load(options, folder):
    """Runs every kind of client; each signs in and, before it begins again, out, so that no session is left."""
    seconds, counts, samples = max(options.soak, 30), collections.Counter(), []
    server, address = await upstream.start()
    # One address sends everything.
    settings = ["limits.rate_keys=100000"]
    with Gateway(options.program, folder, upstream=address, settings=settings, tls=True) as gateway:
        begun = time.monotonic()
        end = begun + seconds
        clients = [asyncio.create_task(run(kind, KINDS[kind], gateway, end, counts))
                   for kind, number in CLIENTS.items() for _ in range(number)]
        while time.monotonic() < end:
            await asyncio.sleep(min(SAMPLE_SECONDS, max(0.1, end - time.monotonic())))
            samples.append((time.monotonic() - begun, gateway.memory_mib(), gateway.descriptors()))
            print(f"  {int(end - time.monotonic())} s left, {samples[-1][1]:.1f} MiB, {samples[-1][2]} descriptors, "
                  f"{counts['done']} requests", file=sys.stderr, flush=True)
        await asyncio.gather(*clients)
        sessions = gateway.count("state.db", "SELECT count(*) FROM sessions")
    server.close()
    return judge(samples, counts, sessions)


def judge(samples, counts, sessions):
    """Flat: over the last two thirds, the line through the samples rises by at most 3 % or 2 MiB, and by at most as many
    descriptors as there are clients. The first third fills caches and pools."""
    steady = samples[len(samples) // 3:]
    times, memory, files = zip(*steady)
    grown, more_files = rise(times, memory), rise(times, files)
    kinds = ", ".join(f"{kind} {counts[kind]}" for kind in CLIENTS)
    note = (f"{counts['done']} requests ({kinds}), {counts['failed']} failed; over the last {times[-1] - times[0]:.0f} s "
            f"{statistics.mean(memory):.1f} MiB {grown:+.2f}, {statistics.mean(files):.0f} descriptors {more_files:+.1f}; "
            f"{sessions} sessions left")
    is_flat = grown <= max(2, 0.03 * statistics.mean(memory)) and more_files <= sum(CLIENTS.values())
    return {"tried": counts["done"] + counts["failed"], "acknowledged": counts["done"], "lost": 0, "note": note,
            "failed": counts["failed"] > 0 or sessions > 0 or not is_flat}


def rise(times, values):
    """How much the line of least squares rises from the first to the last moment."""
    if len(times) < 2:
        return 0
    return statistics.linear_regression(times, values).slope * (times[-1] - times[0])


async def run(kind, client, gateway, end, counts):
    """Runs a client again and again, each time with a session of its own."""

    def note(expected):
        counts["done" if expected else "failed"] += 1
        counts[kind] += 1
        if not expected:
            counts[f"{kind} failed"] += 1
            print(f"  {kind}: an unexpected answer", file=sys.stderr, flush=True)

    while time.monotonic() < end:
        signed_in = await gateway.sign_in(next(EMPLOYEES))
        note(signed_in.is_done)
        if not signed_in.is_done:
            continue
        token = signed_in.data["token"]
        try:
            await client(gateway, token, note)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            note(False)
        # Some clients have signed out themselves.
        note((await gateway.log_out(token)).status in (200, 401))
        note((await gateway.send("GET", "/api/auth/me", token)).status == 401)


async def pages(gateway, token, note):
    """A connection for each request."""
    for number in range(20):
        note((await gateway.send("GET", f"/api/desk/tickets/{number}", token)).status == 200)
    note((await gateway.send("GET", "/api/auth/me", token)).is_done)


async def kept_connection(gateway, token, note):
    """A hundred requests on one connection."""
    reader, writer = await gateway.connect()
    request = f"GET /api/desk/x HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {token}\r\n\r\n"
    for _ in range(100):
        writer.write(request.encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        await asyncio.wait_for(reader.readuntil(b"}"), 10)
        note(head.startswith(b"HTTP/1.1 200"))
        await asyncio.sleep(0.005)
    writer.close()


async def uploads(gateway, token, note):
    """Bodies of both framings, and one that its client gives up."""
    for size in (10, 5_000, 200_000):
        answer = await gateway.send("POST", "/api/desk/files", token, body="x" * size)
        note(answer.status == 200)
    reader, writer = await gateway.connect()
    head = (f"POST /api/desk/files HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {token}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n")
    writer.write(head.encode() + b"".join(b"3e8\r\n" + b"x" * 1000 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n")
    note((await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)).startswith(b"HTTP/1.1 200"))
    writer.write(head.encode() + b"3e8\r\nunfinished")
    await writer.drain()
    writer.close()


async def websockets(gateway, token, note):
    """Opens a WebSocket, sends messages and closes it; another one ends with its session."""
    for is_closed in (True, False):
        reader, writer = await gateway.connect()
        writer.write((f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{gateway.port}\r\nAuthorization: Bearer {token}\r\n"
                      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n").encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
        note(head.startswith(b"HTTP/1.1 101"))
        for number in range(20):
            message = b"message %d" % number
            writer.write(masked(1, message))
            note(await asyncio.wait_for(reader.readexactly(2 + len(message)), 10) == bytes([129, len(message)]) + message)
        if is_closed:
            writer.write(masked(8, b"\x03\xe8"))
            note((await asyncio.wait_for(reader.readexactly(4), 10))[0] == 136)
            writer.close()
    note((await gateway.log_out(token)).is_done)
    note((await asyncio.wait_for(reader.readexactly(4), 10))[0] == 136)
    writer.close()


def masked(opcode, payload):
    mask = os.urandom(4)
    return bytes([128 | opcode, 128 | len(payload)]) + mask + bytes(
        byte ^ mask[index % 4] for index, byte in enumerate(payload))


async def http2(gateway, token, note):
    """Forty requests on one connection, half of them with a body."""
    connection = await Http2.connect(gateway)
    for number in range(20):
        note(await connection.send("GET", f"/api/desk/{number}", token) == 200)
        note(await connection.send("POST", "/api/desk/files", token, body=b"x" * 4000) == 200)
    connection.close()


async def polls(gateway, _, note):
    """Asks for a QR code and waits for its scan; the second wait is given up."""
    answer = await gateway.send("GET", "/api/auth/qrcode")
    note(answer.is_done)
    path = f"/api/auth/scan/status?ticket={answer.data['ticket']}&wait=1"
    note((await gateway.send("GET", path)).is_done)
    note((await gateway.send("GET", path.replace("wait=1", "wait=20"), timeout=0.5)).status == 0)


async def bad_tokens(gateway, token, note):
    """Tokens with another signature, no token at all, and a head that does not end."""
    for _ in range(5):
        forged = token[:-20] + os.urandom(10).hex()
        note((await gateway.send("GET", "/api/desk/tickets", forged)).status in (401, 429))
        note((await gateway.send("GET", "/api/desk/tickets")).status == 401)
    _, writer = await gateway.connect()
    writer.write(b"GET /api/desk/unfinished HTTP/1.1\r\nHost: ")
    await writer.drain()
    writer.close()
    # Forged tokens are limited by address; more of them would only be refused.
    await asyncio.sleep(1)


KINDS = {"pages": pages, "kept connection": kept_connection, "uploads": uploads, "WebSockets": websockets,
         "HTTP/2": http2, "polls": polls, "bad tokens": bad_tokens}
