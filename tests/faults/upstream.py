"""An upstream of the soak: answers GET and POST, and echoes what WebSockets send."""

import asyncio
import base64
import hashlib
import re
import threading


async def start():
    """Returns the server and its address."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, "127.0.0.1:%d" % server.sockets[0].getsockname()[1]


def start_in_thread():
    """Starts it in a thread of its own. Returns its address."""
    loop = asyncio.new_event_loop()
    server, address = loop.run_until_complete(start())

    def run():
        # The loop refers to the server only while it accepts.
        loop.run_until_complete(server.serve_forever())

    threading.Thread(target=run, daemon=True).start()
    return address


async def serve(reader, writer):
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            key = re.search(r"^sec-websocket-key: *(\S+)", head, re.M | re.I)
            if key:
                return await echo(reader, writer, key.group(1))
            size = await body_size(reader, head)
            answer = b'{"size": %d}' % size
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(answer), answer))
            await writer.drain()
    except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.CancelledError):
        pass  # a request that its client gave up, or the end of the trial
    finally:
        writer.close()


async def body_size(reader, head):
    """Reads the body of a request. Returns its size."""
    length = re.search(r"^content-length: *(\d+)", head, re.M | re.I)
    if length:
        return len(await reader.readexactly(int(length.group(1))))
    size = 0
    if re.search(r"^transfer-encoding: *chunked", head, re.M | re.I):
        while chunk := int(await reader.readline(), 16):
            size += len(await reader.readexactly(chunk + 2)) - 2
        await reader.readline()
    return size


async def echo(reader, writer, key):
    """Sends every frame back, without its mask, until the client closes."""
    accept = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
    writer.write(("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                  f"Sec-WebSocket-Accept: {accept}\r\n\r\n").encode())
    while True:
        first, second = await reader.readexactly(2)
        mask = await reader.readexactly(4)
        payload = bytes(byte ^ mask[index % 4] for index, byte in enumerate(await reader.readexactly(second & 127)))
        writer.write(bytes([first, len(payload)]) + payload)
        await writer.drain()
        if first & 15 == 8:
            return
