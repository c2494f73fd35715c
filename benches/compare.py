#!/usr/bin/env python3
"""`make bench`: what deskgate costs beside nginx and a bare Pingora proxy.

Measured is CPU time of the proxy's process over requests that the client counted: on shared machines the only
figure that is steady. Everything takes turns within one run, because two runs meet two different machines.
What others do there makes a turn dearer, never cheaper, by emptying the caches; so the lower quartile of the
turns is shown, and ratios are taken between quartiles. Needs nginx and wrk.
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

# A rule that looks at roles, among the ones that the repository ships.
PATH = "/api/queue/next"
SOCKET_PATH = "/ws/employee"
TOKENS = 10_000
SOCKETS = 2_000
PLAYERS = 64
POLLS = 2_000
REST_SECONDS = 10
ECHO_ROUNDS = 3
ECHO_SECONDS = 2
WARM_UP_SECONDS = 1

NGINX, BARE = "nginx, plain proxy", "bare Pingora proxy"
ONE, MANY = "deskgate, one token", f"deskgate, {TOKENS:,} tokens"
FIRST = "deskgate, first use of a token"
BAD, BAD_MANY = "deskgate, a bad token again and again", f"deskgate, {TOKENS:,} bad tokens"

# What the project wants: times the bare proxy, or KiB.
MOST_TIMES_BARE = {ONE: 1.15, MANY: 1.25, BAD: 0.5}
MOST_KIB = {"deskgate": 8.0}


def say(text, end="\n"):
    print(text, end=end, flush=True)


def progress(what, total):
    """Shows every now and then how far something has come, on a terminal only."""
    def tell(done):
        if sys.stdout.isatty() and (done % 250 == 0 or done == total):
            say(f"\r{what}: {done:,} of {total:,}", end="\n" if done == total else "")
    return tell


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
    plain, refused = "answered", "refused"
    variants = [(NGINX, nginx, tokens[:1], plain), (BARE, bare, tokens[:1], plain), (ONE, deskgate, tokens[:1], plain),
                (MANY, deskgate, tokens, plain), (BAD, deskgate, bad[:1], refused),
                (BAD_MANY, deskgate, bad, refused)]
    results = {name: [] for name, *_ in variants}
    for number in range(rounds):
        for name, server, sent, expected in variants:
            say(f"\rround {number + 1} of {rounds}: {name:<40}", end="") if sys.stdout.isatty() else None
            file = folder / "tokens"
            file.write_text("\n".join(sent) + "\n")
            # Sessions that have waited for their turn have their assertions signed anew: once in 40 s each, which
            # is next to nothing under steady load and a lot in two seconds.
            if number == 0 or name == MANY:
                traffic.load(server, PATH, file, WARM_UP_SECONDS)
            before = server.cpu_seconds()
            counted = traffic.load(server, PATH, file, seconds)
            used = server.cpu_seconds() - before
            check(name, counted, expected)
            results[name].append({"cpu_us": micros(used, counted["requests"]), "cores": used / counted["seconds"],
                                  **counted})
    say("\r" + " " * 70 + "\r", end="") if sys.stdout.isatty() else None
    return results, first


def check(name, counted, expected):
    """A variant that does not do what it is measured for must not be measured."""
    refused = counted["requests"] if expected == "refused" else 0
    if counted["failed"] or counted["refused"] != refused:
        raise Fault(f"{name}: expected every request to be {expected}, got {counted}")


async def measure_sockets(servers):
    """KiB per idle socket and CPU microseconds per echo of every proxy."""
    address, _alive = await sockets.serve()
    proxies = [servers.deskgate(address), servers.nginx(address), servers.bare_proxy(address)]
    deskgate = proxies[0]
    # One session per socket, as people have it. They are known before: what is measured is the socket.
    tokens = await traffic.sign_in(deskgate, SOCKETS, progress("signing in", SOCKETS))
    await traffic.use_once(deskgate, "/api/conversations", tokens)
    results, players = {}, []
    for proxy in proxies:
        await sockets.close_all(await sockets.open_all(proxy, SOCKET_PATH, tokens[:PLAYERS]))
        before = proxy.memory()
        opened = await sockets.open_all(proxy, SOCKET_PATH, tokens)
        after = proxy.memory()
        kib = {kind: (after[kind] - before[kind]) / len(opened) for kind in before}
        results[proxy.name] = {"kib": kib, "open": len(opened), "lost": SOCKETS - len(opened), "echo_us": []}
        await sockets.close_all(opened)
    for proxy in proxies:
        players.append(await sockets.open_all(proxy, SOCKET_PATH, tokens[:PLAYERS]))
    for _ in range(ECHO_ROUNDS):
        for proxy, playing in zip(proxies, players):
            before = proxy.cpu_seconds()
            echoes = await sockets.play(playing, ECHO_SECONDS)
            results[proxy.name]["echo_us"].append(micros(proxy.cpu_seconds() - before, echoes))
    for playing in players:
        await sockets.close_all(playing)
    if results["deskgate"]["lost"]:
        raise Fault(f"deskgate lost {results['deskgate']['lost']} of {SOCKETS} sockets")
    return results


async def measure_polls(servers):
    """What a QR code and a sign-in page that waits for its scan cost."""
    address, _alive = await sockets.serve()
    deskgate = servers.deskgate(address)
    issued, code_seconds = await polls.tickets(deskgate, POLLS, progress("QR codes", POLLS))
    # What the first polls make the process set aside for good is not theirs alone.
    for poll in await polls.park(deskgate, issued[:polls.AT_ONCE]):
        poll.transport.abort()
    await asyncio.sleep(0.5)
    before = deskgate.memory()
    parked = await polls.park(deskgate, issued)
    after, used = deskgate.memory(), deskgate.cpu_seconds()
    await asyncio.sleep(REST_SECONDS)
    used = deskgate.cpu_seconds() - used
    early = sum(poll.answer.done() for poll in parked)
    answers = [poll.answer for poll in parked]
    statuses = [(await answer or {}).get("data", {}).get("status") for answer in answers]
    if early or statuses.count("waiting") != POLLS:
        raise Fault(f"of {POLLS} polls {early} were answered early and {statuses.count('waiting')} with waiting")
    kib = {kind: (after[kind] - before[kind]) / POLLS for kind in before}
    return {"polls": POLLS, "kib": kib, "cpu_percent_at_rest": 100 * used / REST_SECONDS,
            "qr_code_us": code_seconds * 1e6}


def usual(values):
    """The lower quartile."""
    return statistics.quantiles(values, n=4, method="inclusive")[0] if len(values) > 1 else values[0]


def ratio(results, name, base):
    return usual([one["cpu_us"] for one in results[name]]) / usual([one["cpu_us"] for one in results[base]])


def verdict(value, most, unit):
    if most is None:
        return ""
    return f"≤ {most:g} {unit}: {'met' if value <= most else 'MISSED'}"


def summarise(results, first, idle, waiting):
    """The rows of the tables, as they go into the JSON."""
    requests = []
    for name, rounds in results.items():
        values = [one["cpu_us"] for one in rounds]
        times_bare, most = ratio(results, name, BARE), MOST_TIMES_BARE.get(name)
        requests.append({
            "name": name, "cpu_us": usual(values), "least_us": min(values), "most_us": max(values),
            "times_nginx": ratio(results, name, NGINX), "times_bare": times_bare, "target_times_bare": most,
            "met": None if most is None else times_bare <= most,
        })
    rows = []
    for name, one in idle.items():
        most = MOST_KIB.get(name)
        rows.append({"name": name, **one, "echo_us_usual": usual(one["echo_us"]), "target_kib": most,
                     "met": None if most is None else one["kib"]["rss"] <= most})
    return {"requests": requests, "first_use_us": first, "sockets": rows, "polls": waiting}


def show(summary, rounds):
    say(f"\nCPU µs per request: 1 KiB answers, HTTP/1.1 keep-alive, {traffic.CONNECTIONS} connections,"
        f" one thread each,\nno log line per request in any of them; lower quartile of {rounds} interleaved rounds"
        f" [least–most]\n")
    say(f"{'':<40}{'µs':>7}  {'':<15}{'× nginx':>8}{'× bare':>8}  target")
    for row in summary["requests"]:
        spread = f"[{row['least_us']:.1f}–{row['most_us']:.1f}]"
        target = verdict(row["times_bare"], row["target_times_bare"], "× bare")
        say(f"{row['name']:<40}{row['cpu_us']:>7.1f}  {spread:<15}{row['times_nginx']:>8.2f}{row['times_bare']:>8.2f}"
            f"  {target}")
    say(f"{FIRST:<40}{summary['first_use_us']:>7.1f}  signature checked, session read, assertion signed"
        f" (again every 40 s)")
    say(f"\nWebSockets: {SOCKETS:,} idle ones, and echoes of {len(sockets.PAYLOAD)} bytes on {PLAYERS}\n")
    say(f"{'':<40}{'KiB RSS':>8}{'private':>9}{'µs/echo':>9}{'lost':>6}  target")
    for row in summary["sockets"]:
        target = verdict(row["kib"]["rss"], row["target_kib"], "KiB")
        say(f"{row['name']:<40}{row['kib']['rss']:>8.1f}{row['kib']['private']:>9.1f}{row['echo_us_usual']:>9.1f}"
            f"{row['lost']:>6}  {target}")
    waiting = summary["polls"]
    say(f"\nSign-in pages: {waiting['polls']:,} that wait for a scan cost {waiting['kib']['rss']:.1f} KiB RSS each,"
        f" connection included,\nand all together {waiting['cpu_percent_at_rest']:.2f} % of a core;"
        f" a QR code with its ticket, on disk, takes {waiting['qr_code_us']:.0f} µs CPU")


def machine():
    cpu = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    told = subprocess.run([program("nginx"), "-v"], stderr=subprocess.PIPE, text=True).stderr
    return {"cpu": cpu[0] if cpu else platform.processor(), "cores": len(CORES), "kernel": platform.release(),
            "nginx": told.strip().rpartition("/")[2]}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=24, help="how often every variant has its turn")
    arguments.add_argument("--seconds", type=int, default=1, help="how long a turn is counted")
    chosen = arguments.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    if 0 < most_files < 2 * SOCKETS + 200:
        raise Fault(f"{SOCKETS:,} sockets need more than the {most_files} open files that are allowed")
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
    say(f"\n{time.monotonic() - started:.0f} s on {len(CORES)} cores (load {load:.1f} before it began: the closer to 0,"
        f" the closer to the truth); everything in {out}")


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"bench: {fault}")
    except KeyboardInterrupt:
        sys.exit(130)
