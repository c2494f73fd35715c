"""A small HTTP/2 client: one request after another on a connection, header fields without compression."""

import asyncio
import struct

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 7, 8
ACK, END_STREAM, END_HEADERS = 1, 1, 4

# Of the static table of HPACK: the index of `:status` with its value.
STATUS = {8: 200, 9: 204, 10: 206, 11: 304, 12: 400, 13: 404, 14: 500}


class Http2:
    """A connection; None of its answers is awaited longer than the gateway takes."""

    def __init__(self, gateway, reader, writer):
        self.gateway, self.reader, self.writer, self.next_stream = gateway, reader, writer, 1

    @classmethod
    async def connect(cls, gateway):
        connection = cls(gateway, *await gateway.connect("h2"))
        connection.writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
        return connection

    async def send(self, method, path, token, body=b""):
        """Sends a request. Returns the status of the answer; 0 if the stream or the connection ended, or if it is a rare
        one."""
        stream, self.next_stream = self.next_stream, self.next_stream + 2
        fields = [(":method", method), (":scheme", "https"), (":path", path),
                  (":authority", f"127.0.0.1:{self.gateway.port}"), ("authorization", f"Bearer {token}")]
        block = b"".join(b"\x00" + string(name) + string(value) for name, value in fields)
        self.writer.write(frame(HEADERS, END_HEADERS | (0 if body else END_STREAM), stream, block))
        if body:
            self.writer.write(frame(DATA, END_STREAM, stream, body))
        try:
            return await asyncio.wait_for(self.status(stream), 10)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            return 0

    async def status(self, wanted):
        """Reads frames until the stream ends."""
        found = 0
        while True:
            head = await self.reader.readexactly(9)
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            stream = int.from_bytes(head[5:], "big") & 0x7FFFFFFF
            payload = await self.reader.readexactly(length)
            if kind == SETTINGS and not flags & ACK:
                self.writer.write(frame(SETTINGS, ACK, 0, b""))
            if kind == GOAWAY or (kind == RST_STREAM and stream == wanted):
                return 0
            if kind == DATA and payload:
                self.writer.write(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", len(payload))))
            if kind == HEADERS and stream == wanted:
                # A change of the table's size may precede the status.
                first = next((byte for byte in payload if byte >> 5 != 1), 0)
                found = STATUS.get(first & 0x7F, 0) if first & 0x80 else 0
            if kind in (HEADERS, DATA) and stream == wanted and flags & END_STREAM:
                return found

    def close(self):
        self.writer.close()


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def string(text):
    """A string of HPACK: its length and its bytes."""
    data = text.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    length, rest = b"\x7f", len(data) - 127
    while rest >= 128:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return length + bytes([rest]) + data
