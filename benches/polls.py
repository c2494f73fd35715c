"""Sign-in pages that wait: long polls of QR-code tickets, each on a connection of its own."""

import asyncio
import json

AT_ONCE = 64
WAIT_SECONDS = 25


class Poll(asyncio.Protocol):
    """One question, and its answer."""

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


async def ask(server, target):
    """Sends one request; whoever wants the answer waits for it."""
    _, poll = await asyncio.get_running_loop().create_connection(
        lambda: Poll(server.address, target), "127.0.0.1", server.port)
    return poll


async def tickets(server, count, tell):
    """So many tickets, and how long one took in the mean, in CPU seconds of the server."""
    left, issued = iter(range(count)), []

    async def some():
        for _ in left:
            poll = await ask(server, "/api/auth/qrcode")
            issued.append((await poll.answer)["data"]["ticket"])
            poll.transport.abort()
            tell(len(issued))

    before = server.cpu_seconds()
    await asyncio.gather(*(some() for _ in range(AT_ONCE)))
    return issued, (server.cpu_seconds() - before) / count


async def park(server, ids):
    """One parked poll for each ticket."""
    parked = []
    for start in range(0, len(ids), AT_ONCE):
        targets = [f"/api/auth/scan/status?ticket={ticket}&wait={WAIT_SECONDS}&seen=waiting"
                   for ticket in ids[start:start + AT_ONCE]]
        parked += await asyncio.gather(*(ask(server, target) for target in targets))
    # Time for the last of them to be read and put to rest.
    await asyncio.sleep(1)
    return parked
