"""HTTP requests: sign-ins, and the load that wrk generates."""

import asyncio
import base64
import json
import os
import pathlib
import subprocess

from servers import LOAD_CORES, Fault, program

CONNECTIONS = 64
SCRIPT = pathlib.Path(__file__).with_name("tokens.lua")


async def send(reader, writer, head, body=b""):
    """Sends one request on a keep-alive connection; returns status and body."""
    writer.write(head.encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in answer.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return int(answer[9:12]), await reader.readexactly(length)


async def for_each(port, items, work, report=None):
    """Runs `work(reader, writer, item)` for all items on concurrent connections; returns the results in order."""
    results, left, done = [None] * len(items), iter(enumerate(items)), 0

    async def one_connection():
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for index, item in left:
            results[index] = await work(reader, writer, item)
            done += 1
            if report:
                report(done)
        writer.close()

    await asyncio.gather(*(one_connection() for _ in range(min(CONNECTIONS, len(items)))))
    return results


async def sign_in(server, count, report=None):
    """Signs the same agent in `count` times; returns the tokens of the sessions."""
    body = b'{"employee_id":"a2001"}'
    head = (f"POST /api/dev/login HTTP/1.1\r\nHost: {server.address}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n")

    async def one(reader, writer, _):
        status, answer = await send(reader, writer, head, body)
        if status != 200:
            raise Fault(f"sign-in answered {status}: {answer[:200]!r}")
        return json.loads(answer)["data"]["token"]

    return await for_each(server.port, range(count), one, report)


async def use_once(server, path, tokens):
    """Sends one request with each token."""

    async def one(reader, writer, token):
        head = f"GET {path} HTTP/1.1\r\nHost: {server.address}\r\nAuthorization: Bearer {token}\r\n\r\n"
        status, _ = await send(reader, writer, head)
        if status != 200:
            raise Fault(f"{path} answered {status}")

    await for_each(server.port, tokens, one)


def with_bad_signatures(token, count):
    """Copies of a token with invalid signatures. Only the first half of a signature is changed, because a verifier can
    reject an invalid second half without the full computation."""
    signed, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    half = len(raw) // 2
    forged = [os.urandom(half) + raw[half:] for _ in range(count)]
    return [f"{signed}.{base64.urlsafe_b64encode(bad).decode().rstrip('=')}" for bad in forged]


def load(server, path, tokens_file, seconds):
    """Runs wrk for some seconds; returns its counts."""
    command = [program("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "-s", str(SCRIPT)]
    command += [f"http://{server.address}{path}", str(tokens_file)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, start_new_session=True,
                         preexec_fn=lambda: os.sched_setaffinity(0, LOAD_CORES))
    lines = [line for line in output.stdout.splitlines() if line.startswith("{")]
    if output.returncode != 0 or not lines:
        raise Fault(f"wrk failed: {output.stdout}")
    return json.loads(lines[-1])
