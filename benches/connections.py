"""Idle keep-alive connections: each has had one request and its response."""

import asyncio

CONCURRENCY = 64


class Connection(asyncio.Protocol):
    """Sends one request; `answer` resolves to its status, or to 0 if the connection ends first."""

    def __init__(self, address, path, token):
        self.request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        self.answer, self.buffer, self.lost = asyncio.get_running_loop().create_future(), b"", False

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.request)

    def data_received(self, data):
        self.buffer += data
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if end and not self.answer.done():
            lines = head.lower().split(b"\r\n")
            length = next((int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:")), 0)
            if len(body) >= length:
                self.answer.set_result(int(head[9:12]))
                self.buffer = b""

    def connection_lost(self, _):
        self.lost = True
        if not self.answer.done():
            self.answer.set_result(0)


async def open_all(server, path, tokens):
    """Opens a connection per token and returns those that stay open after a response with 200."""
    left, opened = iter(tokens), []

    async def worker():
        for token in left:
            _, one = await asyncio.get_running_loop().create_connection(
                lambda token=token: Connection(server.address, path, token), "127.0.0.1", server.port)
            await one.answer
            opened.append(one)

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    # Lets the work that follows the response finish.
    await asyncio.sleep(1)
    return [one for one in opened if one.answer.result() == 200 and not one.lost]
