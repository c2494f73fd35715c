"""HTTP requests: the load that wrk and h2load generate, and one request with each of many tokens."""

import base64
import itertools
import json
import os
import pathlib
import re
import socket
import subprocess
from dataclasses import dataclass

from servers import LOAD_CORES, Fault, program

# Requests under way at once; over HTTP/2 on a quarter of the connections.
CONNECTIONS = 64
STREAMS = 4
# In base64url, of 64 bytes.
LETTERS_OF_A_SIGNATURE, LETTERS_OF_HALF_A_SIGNATURE = 86, 42
SCRIPT = pathlib.Path(__file__).with_name("requests.lua")


@dataclass(frozen=True)
class Load:
    """What is sent. `body` is the size of a POST in bytes, 0 for a GET. With `unique`, every request has another signature."""

    path: str
    body: int = 0
    tls: bool = False
    http2: bool = False
    unique: bool = False


def with_bad_signature(token):
    """A token with an invalid signature. Only the first half of it is changed, because a verifier can reject an invalid
    second half without the full computation."""
    signed, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    forged = raw[:4] + os.urandom(len(raw) // 2 - 4) + raw[len(raw) // 2:]
    return f"{signed}.{base64.urlsafe_b64encode(forged).decode().rstrip('=')}"


def generate(server, load, tokens_file, seconds):
    """Generates load for some seconds. Returns counts: requests, refused, failed, and seconds."""
    return with_h2load(server, load, tokens_file, seconds) if load.http2 else with_wrk(server, load, tokens_file, seconds)


def run(command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                          preexec_fn=lambda: os.sched_setaffinity(0, LOAD_CORES))


def with_wrk(server, load, tokens_file, seconds):
    command = [program("wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "-s", str(SCRIPT)]
    random_letters = LETTERS_OF_HALF_A_SIGNATURE if server.contestant.tokens == "EdDSA" else LETTERS_OF_A_SIGNATURE
    random_letters = random_letters if load.unique else 0
    command += [server.url(load.tls) + load.path, str(tokens_file), str(load.body), str(random_letters)]
    output = run(command)
    lines = [line for line in output.stdout.splitlines() if line.startswith("{")]
    if output.returncode != 0 or not lines:
        raise Fault(f"wrk failed: {output.stdout}")
    return json.loads(lines[-1])


def with_h2load(server, load, tokens_file, seconds):
    """HTTP/2, with the first token of the file only."""
    token = tokens_file.read_text().split()[0]
    command = [program("h2load"), "-t1", f"-c{CONNECTIONS // STREAMS}", f"-m{STREAMS}", f"-D{seconds}"]
    output = run([*command, "-H", f"Authorization: Bearer {token}", server.url(load.tls) + load.path])
    return counts_of_h2load(output.stdout)


def counts_of_h2load(text):
    """The counts that h2load prints. Requests that are under way at the end count as started, not as done."""
    done = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored, (\d+) timeout", text)
    statuses = re.search(r"(\d+) 2xx, (\d+) 3xx, (\d+) 4xx, (\d+) 5xx", text)
    seconds = re.search(r"finished in ([\d.]+)(ms|s),", text)
    if not (done and statuses and seconds) or "Application protocol: h2" not in text:
        raise Fault(f"h2load failed: {text}")
    answered, _, _, errored, timed_out = map(int, done.groups())
    _, *refused = map(int, statuses.groups())
    took = float(seconds.group(1)) / (1000 if seconds.group(2) == "ms" else 1)
    return {"requests": answered, "refused": sum(refused), "failed": errored + timed_out, "seconds": took}


def use_once(server, path, tokens, report=lambda done: None):
    """Sends one request with each token, on some connections in turn: a million of them in a few minutes. While a batch is answered,
    the next one is made, because some callers sign the tokens meanwhile."""
    opened = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CONNECTIONS)]
    done, waiting = 0, 0
    try:
        for batch in batches(tokens, len(opened)):
            for connection in opened[:waiting]:
                read_answer(connection)
            done += waiting
            report(done)
            for connection, token in zip(opened, batch):
                request = f"GET {path} HTTP/1.1\r\nHost: {server.address}\r\nAuthorization: Bearer {token}\r\n\r\n"
                connection.sendall(request.encode())
            waiting = len(batch)
        for connection in opened[:waiting]:
            read_answer(connection)
    finally:
        for connection in opened:
            connection.close()


def batches(items, size):
    """The items in lists of `size`; the last one may be shorter."""
    items = iter(items)
    while batch := list(itertools.islice(items, size)):
        yield batch


def read_answer(connection):
    """Reads a response with a Content-Length; raises a fault unless it is 200."""
    data = connection.recv(65536)
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            raise Fault("the connection was closed before the response")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise Fault(f"expected 200, got {head[:200]!r} {body[:200]!r}")
    length = int(re.search(rb"(?i)\r\ncontent-length: *(\d+)", head).group(1))
    left = length - len(body)
    while left > 0:
        left -= len(connection.recv(min(left, 65536)))
