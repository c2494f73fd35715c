"""Long polls of QR-code tickets, each on its own connection."""

import asyncio
import itertools
import json

CONCURRENCY = 64
WAIT_SECONDS = 25
# The gateway holds 1000 polls of one address.
SOURCES = [f"127.0.0.{number}" for number in range(1, 5)]


class Poll(asyncio.Protocol):
    """One request; `answer` resolves to its JSON body, or to None if the connection ends first."""

    def __init__(self, address, target):
        self.request = f"GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        self.answer = asyncio.get_running_loop().create_future()
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        length = next((int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
                       if line.startswith(b"content-length:")), 0)
        if end and len(body) >= length and not self.answer.done():
            self.answer.set_result(json.loads(body))

    def connection_lost(self, _):
        if not self.answer.done():
            self.answer.set_result(None)


async def send(server, target, source="127.0.0.1"):
    """Sends one request and does not wait for its response."""
    _, poll = await asyncio.get_running_loop().create_connection(
        lambda: Poll(server.address, target), "127.0.0.1", server.port, local_addr=(source, 0))
    return poll


async def tickets(server, count, report):
    """Creates tickets; returns them and the server's mean CPU seconds per ticket."""
    left, issued = iter(range(count)), []

    async def worker():
        for _ in left:
            poll = await send(server, "/api/auth/qrcode")
            issued.append((await poll.answer)["data"]["ticket"])
            poll.transport.abort()
            report(len(issued))

    before = server.cpu_seconds()
    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    return issued, (server.cpu_seconds() - before) / count


async def open_polls(server, ids):
    """Opens one long poll per ticket."""
    opened = []
    for start in range(0, len(ids), CONCURRENCY):
        targets = [f"/api/auth/scan/status?ticket={ticket}&wait={WAIT_SECONDS}&seen=waiting"
                   for ticket in ids[start:start + CONCURRENCY]]
        sources = itertools.cycle(SOURCES)
        opened += await asyncio.gather(*(send(server, *poll) for poll in zip(targets, sources)))
    # Lets the server read the last requests and start waiting.
    await asyncio.sleep(1)
    return opened
