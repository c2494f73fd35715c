"""Clients that disconnect in each phase of a connection, thousands of times."""

import asyncio
import re
import socket
import struct
import time
import urllib.request

from gateway import Fault, Gateway, Ledger

REPETITIONS = 10_000
AT_ONCE = 50

# How much more than before may be left: idle connections to the upstream stay in the pool.
DESCRIPTORS = 150
MEMORY_MIB = 30


async def every_phase(options, folder):
    """Disconnects before, in and after a handshake, a head, a body, a response and a WebSocket, half of the time by a reset."""
    server = await asyncio.start_server(slow_upstream, "127.0.0.1", 0)
    upstream = "127.0.0.1:%d" % server.sockets[0].getsockname()[1]
    # One client opens them all.
    settings = ["limits.connections_per_address=1000", "limits.invalid_tokens=100000"]
    encrypted = folder / "encrypted"
    with (Gateway(options.program, folder / "plain", upstream=upstream, settings=settings) as plain,
          Gateway(options.program, encrypted, upstream=upstream, settings=settings, tls=True) as tls):
        ledger = Ledger(plain)
        token = (await ledger.sign_in()).data["token"]
        phases = phases_of(plain, tls, token)
        # The first ones fill caches and pools.
        await disconnect(phases, 1000)
        before = [(gateway.descriptors(), gateway.memory_mib()) for gateway in (plain, tls)]
        await disconnect(phases, REPETITIONS)
        left = await settle((plain, tls))
        after = [(gateway.descriptors(), gateway.memory_mib()) for gateway in (plain, tls)]
        works = all([(await ledger.sign_in()).is_done for _ in range(20)])
        lost = await ledger.lost()
    server.close()
    descriptors = max(now[0] - then[0] for now, then in zip(after, before))
    memory = max(now[1] - then[1] for now, then in zip(after, before))
    note = (f"{REPETITIONS} disconnects in {len(phases)} phases; {left} requests and WebSockets left after them, "
            f"descriptors {descriptors:+d}, memory {memory:+.1f} MiB")
    return {"tried": ledger.tried, "acknowledged": ledger.acknowledged, "lost": lost, "note": note,
            "failed": lost > 0 or left > 0 or not works or descriptors > DESCRIPTORS or memory > MEMORY_MIB}


def phases_of(plain, tls, token):
    """For each phase the port, what the client sends, and the status that it waits for, if any, before it disconnects."""
    host, authorization = f"Host: 127.0.0.1:{plain.port}\r\n", f"Authorization: Bearer {token}\r\n"
    upgrade = ("Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
               "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
    ask = f"GET /api/desk/slow HTTP/1.1\r\n{host}{authorization}\r\n"
    upload = f"POST /api/desk/upload HTTP/1.1\r\n{host}{authorization}Content-Length: 100000\r\n\r\n" + "x" * 1000
    return [
        (plain.port, "", None),
        (tls.port, "", None),
        (tls.port, "\x16\x03\x01\x02\x00\x01\x00\x01\xfc", None),
        (plain.port, f"GET /api/desk/slow HTTP/1.1\r\n{host}", None),
        (plain.port, ask, None),
        (plain.port, ask, 200),
        (plain.port, upload, None),
        (plain.port, f"POST /api/dev/login HTTP/1.1\r\n{host}Content-Length: 30\r\n\r\n{{", None),
        (plain.port, f"GET /ws HTTP/1.1\r\n{host}{authorization}{upgrade}\r\n", None),
        (plain.port, f"GET /ws HTTP/1.1\r\n{host}{authorization}{upgrade}\r\n", 101),
        (plain.port, ask * 5, 200),
    ]


async def disconnect(phases, count):
    numbers = iter(range(count))

    async def client():
        for number in numbers:
            port, sent, status = phases[number % len(phases)]
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent.encode("latin-1"))
            if status:
                answer = await asyncio.wait_for(reader.readline(), 30)
                if not answer.startswith(b"HTTP/1.1 %d " % status):
                    raise Fault(f"{answer!r} instead of {status}")
            if number // len(phases) % 2:
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))


async def settle(gateways):
    """Waits until nothing is in progress. Returns how much still is after that."""
    deadline = time.monotonic() + 30
    while True:
        left = sum([await asyncio.to_thread(in_progress, gateway) for gateway in gateways])
        if left == 0 or time.monotonic() > deadline:
            return left
        await asyncio.sleep(0.1)


def in_progress(gateway):
    """The requests and WebSockets in progress."""
    with urllib.request.urlopen(f"http://{gateway.admin}/metrics", timeout=10) as response:
        text = response.read().decode()
    gauges = re.findall(r"^deskgate_(?:requests_in_flight|websockets_open)(?:\{[^}]*\})? (\S+)$", text, re.M)
    return int(sum(map(float, gauges)))


async def slow_upstream(reader, writer):
    """Answers at once and then sends a piece of the body every 50 ms, until the gateway gives up."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        if "upgrade: websocket" in head.lower():
            accept = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
            writer.write(("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                          f"Sec-WebSocket-Accept: {accept}\r\n\r\n").encode())
            await reader.read()
            return
        if head.startswith("POST"):
            await reader.read()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"5\r\npiece\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)
    except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass  # the gateway gave up, or the trial has ended
    finally:
        writer.close()
