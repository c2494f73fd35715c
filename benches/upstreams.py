"""Measures what a failing upstream address costs, and what health checks cost.

    upstreams.py [--program FILE] [--rate 150] [--seconds 8] [--addresses 200]

A gateway with three addresses gets requests at a fixed rate. After half of the time one of them is killed, paused or slowed
by 300 ms. Prints how many requests failed, and the 99th percentile of the answers of the other two before and after. Then a
gateway without requests checks many addresses; prints its processor time.
"""

import argparse
import asyncio
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from servers import REPOSITORY, free_port

CONFIG = """[server]
listen = ["127.0.0.1:{port}"]
admin_listen = "127.0.0.1:0"
public_url = "http://127.0.0.1:{port}"
development = true
data_dir = "{folder}/data"
[clients]
h5 = "http://127.0.0.1:{port}/h5/"
itagent = "http://127.0.0.1:{port}/itagent/"
itadmin = "http://127.0.0.1:{port}/itadmin/"
[platform]
kind = "simulated"
simulated_listen = "127.0.0.1:0"
[rules]
dir = "{folder}/rules"
[upstreams.desk]
addresses = [{addresses}]
path_case = "sensitive"
{health}
[log]
level = "error"
"""
RULES = '[[rule]]\nname = "desk"\npath = "/desk/{*rest}"\nupstream = "desk"\npublic = true\n'


async def serve(host, port):
    """An upstream that answers with its port; SIGUSR1 slows it down."""
    delay = [0.0]
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: delay.__setitem__(0, 0.3))
    body = str(port).encode()
    response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    async def answer(reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await asyncio.sleep(delay[0])
                writer.write(response)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(answer, host, port, backlog=4096)
    print("ready", flush=True)
    await server.serve_forever()


def start_upstream(host, port):
    command = [sys.executable, __file__, "--serve", f"{host}:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    return process


def start_gateway(program, folder, addresses, health):
    port = free_port()
    (folder / "rules").mkdir()
    (folder / "rules/desk.toml").write_text(RULES)
    quoted = ", ".join(f'"{address}"' for address in addresses)
    text = CONFIG.format(port=port, folder=folder, addresses=quoted, health=health)
    (folder / "deskgate.toml").write_text(text)
    command = [program, "serve", "--config", folder / "deskgate.toml"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    while not process.stdout.readline().startswith("ready "):
        if process.poll() is not None:
            sys.exit("the gateway did not start")
    return process, port


class Client:
    """Sends requests at a fixed rate, each on an idle connection."""

    def __init__(self, port):
        self.port, self.idle, self.results = port, [], []
        self.request = f"GET /desk/x HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()

    async def one(self):
        began = time.monotonic()
        status, body = 0, b""
        try:
            reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(self.request)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
            status = int(head[9:12])
            length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            body = await reader.readexactly(length)
            if b"connection: close" in head.lower():
                writer.close()
            else:
                self.idle.append((reader, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
            pass
        self.results.append((began, time.monotonic() - began, status, body))

    async def run(self, rate, seconds, fault):
        """Returns when the fault was made."""
        # Connections for all requests that may hang on the failing address: opening one would count as latency of the others.
        await asyncio.gather(*(self.one() for _ in range(2 * rate)))
        self.results.clear()
        start, tasks, at = time.monotonic(), [], None
        for number in range(int(rate * seconds)):
            due = start + number / rate
            await asyncio.sleep(max(0, due - time.monotonic()))
            if at is None and number >= rate * seconds / 2:
                fault()
                at = time.monotonic()
            tasks.append(asyncio.create_task(self.one()))
        await asyncio.gather(*tasks)
        return at


def percentile(times, share):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 if ordered else float("nan")


def failing_address(options, kind, number):
    ports = [free_port() for _ in range(3)]
    upstreams = [start_upstream("127.0.0.1", port) for port in ports]
    victim = upstreams[0]
    with tempfile.TemporaryDirectory() as temporary:
        health = 'health = { path = "/health", every = "1s", timeout = "500ms" }'
        addresses = [f"127.0.0.1:{port}" for port in ports]
        gateway, port = start_gateway(options.program, pathlib.Path(temporary), addresses, health)
        try:
            client = Client(port)
            asyncio.run(client.run(options.rate, 1, lambda: None))
            client.results.clear()
            client.idle.clear()
            at = asyncio.run(client.run(options.rate, options.seconds, lambda: victim.send_signal(number)))
        finally:
            gateway.terminate()
            gateway.wait()
            for upstream in upstreams:
                upstream.kill()
                upstream.wait()
    bad = str(ports[0]).encode()
    failed = sum(status != 200 for _, _, status, _ in client.results)
    others = [(began, took) for began, took, status, body in client.results if status == 200 and body != bad]
    before = percentile([took for began, took in others if began < at], 0.99)
    after = percentile([took for began, took in others if began >= at], 0.99)
    print(f"one of three addresses {kind}: {failed} of {len(client.results)} requests failed; p99 of the others "
          f"{before:.2f} ms before, {after:.2f} ms after", flush=True)


def health_checks(options):
    port = free_port()
    upstream = start_upstream("0.0.0.0", port)
    addresses = [f"127.0.{1 + number // 250}.{1 + number % 250}:{port}" for number in range(options.addresses)]
    idle = 0
    for name, health in (("none", ""), ("TCP", 'health = { every = "5s" }'), ("HTTP", 'health = { path = "/health", every = "5s" }')):
        with tempfile.TemporaryDirectory() as temporary:
            gateway, _ = start_gateway(options.program, pathlib.Path(temporary), addresses, health)
            time.sleep(6)
            before, began = cpu_seconds(gateway.pid), time.monotonic()
            time.sleep(20)
            share = (cpu_seconds(gateway.pid) - before) / (time.monotonic() - began)
            gateway.terminate()
            gateway.wait()
        if name == "none":
            idle = share
            print(f"an idle gateway without checks: {share:.2%} of a core", flush=True)
        else:
            print(f"{options.addresses} addresses checked every 5 s by {name}: {share - idle:.2%} of a core more", flush=True)
    upstream.kill()
    upstream.wait()


def cpu_seconds(pid):
    # By thread, in nanoseconds: what /proc/PID/stat has is too coarse for checks that take microseconds.
    threads = pathlib.Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(REPOSITORY / "target/release/deskgate"))
    parser.add_argument("--rate", type=int, default=150)
    parser.add_argument("--seconds", type=int, default=8)
    parser.add_argument("--addresses", type=int, default=200)
    parser.add_argument("--serve", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        host, port = options.serve.split(":")
        return asyncio.run(serve(host, int(port)))
    for kind, number in (("killed", signal.SIGKILL), ("paused", signal.SIGSTOP), ("slowed", signal.SIGUSR1)):
        failing_address(options, kind, number)
    health_checks(options)
    return None


if __name__ == "__main__":
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    main()
