"""Ten times as many clients as keep the gateway busy."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import time

from gateway import Fault, Gateway

# As many connections as one thread carries at once, and ten times as many.
BUSY, OVERLOAD = 64, 640

PEAK_SECONDS = 10

# How much of the peak must be left, how long an answer may take and how soon the gateway must be itself again.
LEAST_SHARE, LONGEST_P99_MS, LONGEST_RECOVERY = 0.70, 6_000, 5

NGINX = """daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{ access_log off; keepalive_requests 1000000;
server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "ok"; }} }} }}
"""


async def ten_times(options, folder):
    """The gateway has one core, the load and the upstream have the others."""
    cores = sorted(os.sched_getaffinity(0))
    gateway_core, load_cores = str(cores[0]), ",".join(map(str, cores[1:] or cores))
    nginx, address = start_nginx(folder, load_cores)
    settings = ["server.threads=1", "limits.connections_per_address=10000"]
    try:
        with Gateway(options.program, folder / "gateway", upstream=address, settings=settings,
                     limits=["taskset", "-c", gateway_core]) as gateway:
            token = (await gateway.sign_in()).data["token"]
            peak = await load(gateway, token, BUSY, PEAK_SECONDS, load_cores)
            probes = asyncio.create_task(probe(gateway))
            beyond = await load(gateway, token, OVERLOAD, options.overload, load_cores)
            ended = time.monotonic()
            while (await timed(gateway, "/api/desk/x", token)) > 0.5:
                pass
            recovery = time.monotonic() - ended
            probes.cancel()
            slowest = await probes
    finally:
        nginx.terminate()
        nginx.wait()
    share = beyond["goodput"] / peak["goodput"]
    note = (f"{options.overload} s with {OVERLOAD} connections: {beyond['goodput']:.0f} answers a second, {share:.0%} of "
            f"{peak['goodput']:.0f} with {BUSY}; p99 {peak['p99_ms']:.0f} to {beyond['p99_ms']:.0f} ms; "
            f"{beyond['refused']} refused with 503, {beyond['errors']} connections failed; readiness within {slowest:.2f} s; "
            f"recovered in {recovery:.2f} s")
    missed = (share < LEAST_SHARE or beyond["p99_ms"] > LONGEST_P99_MS or beyond["errors"] > 0
              or recovery > LONGEST_RECOVERY or slowest > LONGEST_RECOVERY)
    return {"tried": beyond["answers"], "acknowledged": beyond["answers"] - beyond["refused"], "lost": 0, "note": note,
            "failed": missed}


def start_nginx(folder, cores):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=port))
    program = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
    process = subprocess.Popen(["taskset", "-c", cores, program, "-p", str(folder), "-c", str(folder / "nginx.conf")],
                               stdin=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return process, f"127.0.0.1:{port}"
        except OSError:
            time.sleep(0.02)
    process.kill()
    raise Fault("nginx does not listen")


async def load(gateway, token, connections, seconds, cores):
    """Sends requests on this many connections as fast as they are answered. Returns what the load generator counted."""
    command = ["taskset", "-c", cores, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", "--timeout", "10s",
               "-H", f"Authorization: Bearer {token}", f"http://127.0.0.1:{gateway.port}/api/desk/x"]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    print(f"  {connections} connections for {seconds} s", file=sys.stderr, flush=True)
    text = (await process.communicate())[0].decode()
    answers, lasted = re.search(r"(\d+) requests in ([\d.]+)(s|m)", text).group(1, 2)
    lasted = float(lasted) * (60 if re.search(r"requests in [\d.]+m", text) else 1)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    p99, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", text).groups()
    refused = int(refused.group(1)) if refused else 0
    return {"answers": int(answers), "refused": refused, "errors": sum(map(int, errors.groups())) if errors else 0,
            "goodput": (int(answers) - refused) / lasted, "p99_ms": float(p99) * {"us": 0.001, "ms": 1, "s": 1000}[unit]}


async def timed(gateway, path, token=None):
    """How many seconds an answer takes; many if it is no success."""
    begun = time.monotonic()
    answer = await gateway.send("GET", path, token)
    return time.monotonic() - begun if answer.status == 200 else 10


async def probe(gateway):
    """Asks for readiness until it is cancelled. Returns how long the slowest answer took."""
    slowest = 0
    try:
        while True:
            slowest = max(slowest, await timed(gateway, "/api/ready"))
            await asyncio.sleep(0.2)
    except asyncio.CancelledError:
        return slowest
