#!/usr/bin/env python3
"""`make bench`: compares the CPU and memory cost of deskgate with nginx and a bare Pingora proxy.

The figure is the CPU time of the proxy process per completed request, because throughput and latency are unstable on
shared machines. All variants alternate within one run, because conditions differ between runs. Other load on the
machine only adds CPU time (cold caches), so the report shows the lower quartile of the rounds and the ratios of
these quartiles. Needs nginx and wrk.
"""

import argparse
import asyncio
import json
import os
import pathlib
import platform
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import polls
import sockets
import traffic
from servers import CORES, LOAD_CORES, Fault, Servers, build, program, target_folder

# A path whose rule checks roles, from the rules in the repository.
PATH = "/api/queue/next"
SOCKET_PATH = "/ws/employee"
TOKENS = 10_000
SOCKETS = 2_000
ECHO_SOCKETS = 64
POLLS = 2_000
IDLE_SECONDS = 10
ECHO_ROUNDS = 3
ECHO_SECONDS = 2
WARM_UP_SECONDS = 1

NGINX, BARE = "nginx, plain proxy", "bare Pingora proxy"
ONE, MANY = "deskgate, one token", f"deskgate, {TOKENS:,} tokens"
FIRST = "deskgate, first use of a token"
BAD, BAD_MANY = "deskgate, one invalid token", f"deskgate, {TOKENS:,} invalid tokens"

# The performance targets: a multiple of the bare proxy, or KiB.
MAX_TIMES_BARE = {ONE: 1.15, MANY: 1.25, BAD: 0.5}
MAX_KIB = {"deskgate": 8.0}


def write(text, end="\n"):
    print(text, end=end, flush=True)


def progress(what, total):
    """Returns a callback that prints the progress, on a terminal only."""
    def report(done):
        if sys.stdout.isatty() and (done % 250 == 0 or done == total):
            write(f"\r{what}: {done:,} of {total:,}", end="\n" if done == total else "")
    return report


def micros(seconds, count):
    return seconds * 1e6 / count


def measure_requests(servers, folder, rounds, seconds):
    """CPU microseconds per request of every variant, round by round."""
    upstream = servers.upstream()
    nginx, bare = servers.nginx(upstream.address), servers.bare_proxy(upstream.address)
    deskgate = servers.deskgate(upstream.address)
    tokens = asyncio.run(traffic.sign_in(deskgate, TOKENS, progress("signing in", TOKENS)))
    before = deskgate.cpu_seconds()
    asyncio.run(traffic.use_once(deskgate, PATH, tokens))
    first = micros(deskgate.cpu_seconds() - before, TOKENS)

    bad = traffic.with_bad_signatures(tokens[0], TOKENS)
    accepted, refused = "accepted", "refused"
    one = tokens[:1]
    variants = [(NGINX, nginx, one, accepted), (BARE, bare, one, accepted), (ONE, deskgate, one, accepted),
                (MANY, deskgate, tokens, accepted), (BAD, deskgate, bad[:1], refused),
                (BAD_MANY, deskgate, bad, refused)]
    results = {name: [] for name, *_ in variants}
    for number in range(rounds):
        for name, server, sent, expected in variants:
            write(f"\rround {number + 1} of {rounds}: {name:<40}", end="") if sys.stdout.isatty() else None
            file = folder / "tokens"
            file.write_text("\n".join(sent) + "\n")
            # After a pause every session gets a new assertion signature. That happens once in 40 s per session:
            # negligible under steady load, but not in a short round.
            if number == 0 or name == MANY:
                traffic.load(server, PATH, file, WARM_UP_SECONDS)
            before = server.cpu_seconds()
            counted = traffic.load(server, PATH, file, seconds)
            used = server.cpu_seconds() - before
            check(name, counted, expected)
            results[name].append({"cpu_us": micros(used, counted["requests"]), "cores": used / counted["seconds"],
                                  **counted})
    write("\r" + " " * 70 + "\r", end="") if sys.stdout.isatty() else None
    return results, first


def check(name, counted, expected):
    """Raises a fault if a variant did not respond as expected, because its figures would be meaningless."""
    refused = counted["requests"] if expected == "refused" else 0
    if counted["failed"] or counted["refused"] != refused:
        raise Fault(f"{name}: expected every request to be {expected}, got {counted}")


async def measure_sockets(servers):
    """KiB per idle socket and CPU microseconds per echo of every proxy."""
    address, _alive = await sockets.serve()
    proxies = [servers.deskgate(address), servers.nginx(address), servers.bare_proxy(address)]
    deskgate = proxies[0]
    # One session per socket, cached beforehand, so that only the socket is measured.
    tokens = await traffic.sign_in(deskgate, SOCKETS, progress("signing in", SOCKETS))
    await traffic.use_once(deskgate, "/api/conversations", tokens)
    results, echo_sockets = {}, []
    for proxy in proxies:
        await sockets.close_all(await sockets.open_all(proxy, SOCKET_PATH, tokens[:ECHO_SOCKETS]))
        before = proxy.memory()
        opened = await sockets.open_all(proxy, SOCKET_PATH, tokens)
        after = proxy.memory()
        kib = {kind: (after[kind] - before[kind]) / len(opened) for kind in before}
        results[proxy.name] = {"kib": kib, "open": len(opened), "lost": SOCKETS - len(opened), "echo_us": []}
        await sockets.close_all(opened)
    for proxy in proxies:
        echo_sockets.append(await sockets.open_all(proxy, SOCKET_PATH, tokens[:ECHO_SOCKETS]))
    for _ in range(ECHO_ROUNDS):
        for proxy, opened in zip(proxies, echo_sockets):
            before = proxy.cpu_seconds()
            echoes = await sockets.echo(opened, ECHO_SECONDS)
            results[proxy.name]["echo_us"].append(micros(proxy.cpu_seconds() - before, echoes))
    for opened in echo_sockets:
        await sockets.close_all(opened)
    if results["deskgate"]["lost"]:
        raise Fault(f"deskgate lost {results['deskgate']['lost']} of {SOCKETS} sockets")
    return results


async def measure_polls(servers):
    """The cost of a QR code and of a sign-in page that waits for its scan."""
    address, _alive = await sockets.serve()
    deskgate = servers.deskgate(address)
    issued, code_seconds = await polls.tickets(deskgate, POLLS, progress("QR codes", POLLS))
    # A warm-up: buffers that the first polls allocate stay allocated.
    for poll in await polls.open_polls(deskgate, issued[:polls.CONCURRENCY]):
        poll.transport.abort()
    await asyncio.sleep(0.5)
    before = deskgate.memory()
    opened_polls = await polls.open_polls(deskgate, issued)
    after, used = deskgate.memory(), deskgate.cpu_seconds()
    await asyncio.sleep(IDLE_SECONDS)
    used = deskgate.cpu_seconds() - used
    early = sum(poll.answer.done() for poll in opened_polls)
    answers = [poll.answer for poll in opened_polls]
    statuses = [(await answer or {}).get("data", {}).get("status") for answer in answers]
    if early or statuses.count("waiting") != POLLS:
        raise Fault(f"of {POLLS} polls {early} ended early and {statuses.count('waiting')} returned `waiting`")
    kib = {kind: (after[kind] - before[kind]) / POLLS for kind in before}
    return {"polls": POLLS, "kib": kib, "cpu_percent_idle": 100 * used / IDLE_SECONDS,
            "qr_code_us": code_seconds * 1e6}


def lower_quartile(values):
    return statistics.quantiles(values, n=4, method="inclusive")[0] if len(values) > 1 else values[0]


def ratio(results, name, base):
    cost = {key: lower_quartile([one["cpu_us"] for one in results[key]]) for key in (name, base)}
    return cost[name] / cost[base]


def target_text(value, limit, unit):
    if limit is None:
        return ""
    return f"≤ {limit:g} {unit}: {'met' if value <= limit else 'MISSED'}"


def summarise(results, first, idle, waiting):
    """The rows of the tables, also written to the JSON file."""
    requests = []
    for name, rounds in results.items():
        values = [one["cpu_us"] for one in rounds]
        times_bare, limit = ratio(results, name, BARE), MAX_TIMES_BARE.get(name)
        requests.append({
            "name": name, "cpu_us": lower_quartile(values), "least_us": min(values), "most_us": max(values),
            "times_nginx": ratio(results, name, NGINX), "times_bare": times_bare, "target_times_bare": limit,
            "met": None if limit is None else times_bare <= limit,
        })
    rows = []
    for name, one in idle.items():
        limit = MAX_KIB.get(name)
        rows.append({"name": name, **one, "echo_us_quartile": lower_quartile(one["echo_us"]), "target_kib": limit,
                     "met": None if limit is None else one["kib"]["rss"] <= limit})
    return {"requests": requests, "first_use_us": first, "sockets": rows, "polls": waiting}


def show(summary, rounds):
    write(f"\nCPU µs per request: 1 KiB responses, HTTP/1.1 keep-alive, {traffic.CONNECTIONS} connections,"
          f" one thread each,\nno access log; lower quartile of {rounds} interleaved rounds"
          f" [least–most]\n")
    write(f"{'':<40}{'µs':>7}  {'':<15}{'× nginx':>8}{'× bare':>8}  target")
    for row in summary["requests"]:
        spread = f"[{row['least_us']:.1f}–{row['most_us']:.1f}]"
        target = target_text(row["times_bare"], row["target_times_bare"], "× bare")
        write(f"{row['name']:<40}{row['cpu_us']:>7.1f}  {spread:<15}{row['times_nginx']:>8.2f}{row['times_bare']:>8.2f}"
              f"  {target}")
    write(f"{FIRST:<40}{summary['first_use_us']:>7.1f}  signature verified, session read, assertion signed"
          f" (again every 40 s)")
    write(f"\nWebSockets: {SOCKETS:,} idle sockets, and echoes of {len(sockets.PAYLOAD)} bytes"
          f" on {ECHO_SOCKETS} sockets\n")
    write(f"{'':<40}{'KiB RSS':>8}{'private':>9}{'µs/echo':>9}{'lost':>6}  target")
    for row in summary["sockets"]:
        target = target_text(row["kib"]["rss"], row["target_kib"], "KiB")
        write(f"{row['name']:<40}{row['kib']['rss']:>8.1f}{row['kib']['private']:>9.1f}{row['echo_us_quartile']:>9.1f}"
              f"{row['lost']:>6}  {target}")
    waiting = summary["polls"]
    write(f"\nSign-in pages: each of {waiting['polls']:,} long polls takes {waiting['kib']['rss']:.1f} KiB RSS with its"
          f" connection;\nall of them together use {waiting['cpu_percent_idle']:.2f} % of a core;"
          f" creating a QR code and its ticket takes {waiting['qr_code_us']:.0f} µs CPU")


def machine():
    cpu = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    version = subprocess.run([program("nginx"), "-v"], stderr=subprocess.PIPE, text=True).stderr
    return {"cpu": cpu[0] if cpu else platform.processor(), "cores": len(CORES), "kernel": platform.release(),
            "nginx": version.strip().rpartition("/")[2]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=24, help="rounds per variant")
    arguments.add_argument("--seconds", type=int, default=1, help="seconds per round and variant")
    chosen = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _, max_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    if 0 < max_files < 2 * SOCKETS + 200:
        raise Fault(f"{SOCKETS:,} sockets need more than the allowed {max_files} open files")
    programs, out = build(), target_folder() / "bench.json"
    os.sched_setaffinity(0, LOAD_CORES)
    started, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="deskgate-bench-") as name:
        folder = pathlib.Path(name)
        with Servers(folder / "requests", *programs) as servers:
            results, first = measure_requests(servers, folder, chosen.rounds, chosen.seconds)
        with Servers(folder / "sockets", *programs) as servers:
            idle = asyncio.run(measure_sockets(servers))
        with Servers(folder / "polls", *programs) as servers:
            waiting = asyncio.run(measure_polls(servers))
    summary = summarise(results, first, idle, waiting)
    show(summary, chosen.rounds)
    out.write_text(json.dumps({"machine": {**machine(), "load_before": load}, **summary, "rounds": results}, indent=1)
                   + "\n")
    write(f"\n{time.monotonic() - started:.0f} s on {len(CORES)} cores, load average {load:.1f} at the start (the"
          f" lower, the more accurate); all figures are in {out}")


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"bench: {fault}")
    except KeyboardInterrupt:
        sys.exit(130)
