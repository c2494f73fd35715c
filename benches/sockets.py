"""A minimal WebSocket implementation: an echo upstream, and clients that are idle or exchange echoes."""

import asyncio
import base64
import hashlib
import os

CONCURRENCY = 64
PAYLOAD = b"m" * 64
# Masked with zeros, so that masking costs the client no CPU time.
FROM_CLIENT = bytes([0x82, 0x80 | len(PAYLOAD), 0, 0, 0, 0]) + PAYLOAD
FROM_SERVER = bytes([0x82, len(PAYLOAD)]) + PAYLOAD


class Echo(asyncio.Protocol):
    """The upstream: accepts handshakes, echoes messages, and answers other requests with an empty 200."""

    def connection_made(self, transport):
        self.transport, self.buffer, self.upgraded = transport, b"", False

    def data_received(self, data):
        self.buffer += data
        if not self.upgraded:
            head, end, rest = self.buffer.partition(b"\r\n\r\n")
            if not end:
                return
            self.buffer = rest
            fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
            if b"upgrade" not in fields:
                self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                return
            key = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key:"))
            accept = hashlib.sha1(key.split(b":")[1].strip() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
            self.upgraded = True
            self.transport.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                                 b"Sec-WebSocket-Accept: " + base64.b64encode(accept) + b"\r\n\r\n")
        whole = len(self.buffer) // len(FROM_CLIENT)
        if whole and self.buffer.startswith(FROM_CLIENT[:2]):
            self.buffer = self.buffer[whole * len(FROM_CLIENT):]
            self.transport.write(FROM_SERVER * whole)


class Socket(asyncio.Protocol):
    """A client. `open` resolves after the handshake; while `echoing`, each echo triggers the next message."""

    def __init__(self, address, path, token):
        key = base64.b64encode(os.urandom(16)).decode()
        self.handshake = (f"GET {path} HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                          f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
                          f"Authorization: Bearer {token}\r\n\r\n").encode()
        self.open = asyncio.get_running_loop().create_future()
        self.buffer, self.echoes, self.echoing, self.lost = b"", 0, False, False

    def connection_made(self, transport):
        self.transport = transport
        transport.write(self.handshake)

    def data_received(self, data):
        self.buffer += data
        if not self.open.done():
            head, end, rest = self.buffer.partition(b"\r\n\r\n")
            if end:
                self.buffer = rest
                self.open.set_result(head.startswith(b"HTTP/1.1 101"))
            return
        if len(self.buffer) >= len(FROM_SERVER):
            self.buffer = self.buffer[len(FROM_SERVER):]
            self.echoes += 1
            if self.echoing:
                self.transport.write(FROM_CLIENT)

    def connection_lost(self, _):
        self.lost = True
        if not self.open.done():
            self.open.set_result(False)

    def start_echo(self):
        self.echoing = True
        self.transport.write(FROM_CLIENT)


async def serve():
    """Starts the upstream; returns its address and the server object that keeps it alive."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    return f"127.0.0.1:{port}", server


async def open_all(server, path, tokens):
    """Opens a socket per token and returns those that stay open."""
    left, opened = iter(tokens), []

    async def worker():
        for token in left:
            _, one = await asyncio.get_running_loop().create_connection(
                lambda token=token: Socket(server.address, path, token), "127.0.0.1", server.port)
            await one.open
            opened.append(one)

    await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))
    # Lets the work that follows the handshake finish.
    await asyncio.sleep(1)
    return [one for one in opened if one.open.result() and not one.lost]


async def close_all(sockets):
    for one in sockets:
        one.transport.abort()
    await asyncio.sleep(0.5)


async def echo(sockets, seconds):
    """Exchanges echoes on all sockets for some seconds; returns their number."""
    before = sum(one.echoes for one in sockets)
    for one in sockets:
        one.start_echo()
    await asyncio.sleep(seconds)
    for one in sockets:
        one.echoing = False
    # Waits for the last echo of each socket.
    await asyncio.sleep(0.2)
    return sum(one.echoes for one in sockets) - before
