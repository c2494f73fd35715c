"""Memory of idle connections and WebSockets, the cost of an echo, and what signing in costs."""

import asyncio
import resource

import connections
import contestants
import polls
import sockets
import summary
import traffic
from contestants import SMALL_PATH, SOCKET_PATH
from rounds import Rounds, in_turn
from servers import Fault, Servers
from workloads import ALL, chosen_for

OPEN = 5_000
ECHO_SOCKETS = 64
# Whose ratio is close to its target, see `rounds`.
ECHO_OFTEN = ("nginx", "deskgate")
# Memory hardly varies, but a process that had the connections once keeps some of it: each round starts new processes.
MEMORY_ROUNDS = 3
POLLS = 2_000
IDLE_SECONDS = 10
SETTLE_SECONDS = 0.5


def most_open():
    """How many connections this machine can have. The client has one file for each, the upstream in the same process
    another one, and proxies keep more in reserve."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN if allowed == resource.RLIM_INFINITY else min(OPEN, allowed // 4)


async def kib_of_each(server, tokens, open_all):
    """KiB of resident memory that each connection adds."""
    # Every session is used and a few connections are opened before, so that only the connections are measured. In a thread,
    # because the upstream may be in this one.
    await asyncio.to_thread(traffic.use_once, server, SMALL_PATH, tokens)
    await sockets.close_all(await open_all(tokens[:64]))
    before = server.memory()["rss"]
    opened = await open_all(tokens)
    after = server.memory()["rss"]
    await sockets.close_all(opened)
    if len(opened) < len(tokens):
        raise Fault(f"{server.contestant.title} lost {len(tokens) - len(opened)} of {len(tokens)} connections")
    return (after - before) / len(tokens)


async def measure_memory(run, key, title, upstream, open_all):
    """A workload of memory; `open_all(server, tokens)` opens the connections."""
    taking_part = chosen_for(ALL, run)
    values = {contestant.key: [] for contestant in taking_part}
    for number in range(min(run.rounds, MEMORY_ROUNDS)):
        for contestant in in_turn(taking_part, number):
            run.progress.show(f"{title}: {contestant.title}")
            tokens = run.place.tokens[contestant.tokens or "ES256"][:most_open()]
            with Servers() as servers:
                server = run.place.start(servers, contestant, upstream)
                values[contestant.key].append(await kib_of_each(server, tokens, lambda some: open_all(server, some)))
            run.progress.step()
    titles = {contestant.key: contestant.title for contestant in taking_part}
    note = (f"{most_open():,} connections of as many sessions, resident memory, {min(run.rounds, MEMORY_ROUNDS)} rounds with new processes. "
            f"What a server reserves at its start is not counted.")
    return summary.workload_of(key, title, "KiB each", "nginx", titles, values, note)


def measure_idle(run):
    title = "Idle keep-alive connections"
    run.progress.begin(title)
    with Servers() as servers:
        upstream = servers.add(contestants.upstream_server(run.place))
        return asyncio.run(measure_memory(run, "idle", title, upstream.address,
                                          lambda server, some: connections.open_all(server, SMALL_PATH, some)))


def measure_sockets(run):
    async def measure():
        address, _alive = await sockets.serve()
        return await measure_memory(run, "sockets", title, address,
                                    lambda server, some: sockets.open_all(server, SOCKET_PATH, some))

    title = "Idle WebSockets"
    run.progress.begin(title)
    return asyncio.run(measure())


async def echoes(run, title):
    address, _alive = await sockets.serve()
    with Servers() as servers:
        started = {contestant.key: run.place.start(servers, contestant, address) for contestant in chosen_for(ALL, run)}
        opened = {}
        for key, server in started.items():
            tokens = run.place.tokens[server.contestant.tokens or "ES256"][:ECHO_SOCKETS]
            opened[key] = await sockets.open_all(server, SOCKET_PATH, tokens)
        rounds = Rounds(started, run.rounds, ECHO_OFTEN)
        for key in rounds.turns():
            run.progress.show(f"{title}: {started[key].contestant.title}")
            for _ in run.host.tries():
                before = started[key].cpu_seconds()
                count = await sockets.echo(opened[key], run.seconds)
                used = started[key].cpu_seconds() - before
            rounds.add(key, used * 1e6 / count)
            run.progress.step()
        for sockets_of_one in opened.values():
            await sockets.close_all(sockets_of_one)
    titles = {key: server.contestant.title for key, server in started.items()}
    note = f"{len(sockets.PAYLOAD)} bytes there and back on {ECHO_SOCKETS} WebSockets at once."
    return summary.workload_of("echo", title, "CPU µs per echo", "nginx", titles, rounds.values, note)


def measure_echo(run):
    title = "WebSocket echo"
    run.progress.begin(title)
    return asyncio.run(echoes(run, title))


async def signing_in(run):
    """KiB of a sign-in page that waits, per cent of a core for all of them, and CPU microseconds of a QR code and of the first
    request with a token: its signature is verified, its session read and an assertion signed."""
    address, _alive = await sockets.serve()
    with Servers() as servers:
        deskgate = servers.add(contestants.start_deskgate(run.place, address))
        tokens = run.place.tokens["ES256"]
        before = deskgate.cpu_seconds()
        await asyncio.to_thread(traffic.use_once, deskgate, SMALL_PATH, tokens)
        first = (deskgate.cpu_seconds() - before) * 1e6 / len(tokens)
        run.progress.show("Sign-in: QR codes")
        issued, code_seconds = await polls.tickets(deskgate, POLLS, lambda done: None)
        # A warm-up: buffers that the first polls allocate stay allocated.
        for poll in await polls.open_polls(deskgate, issued[:polls.CONCURRENCY]):
            poll.transport.abort()
        await asyncio.sleep(SETTLE_SECONDS)
        before = deskgate.memory()["rss"]
        run.progress.show("Sign-in: pages that wait")
        opened = await polls.open_polls(deskgate, issued)
        after, used = deskgate.memory()["rss"], deskgate.cpu_seconds()
        await asyncio.sleep(IDLE_SECONDS)
        used = deskgate.cpu_seconds() - used
        early = sum(poll.answer.done() for poll in opened)
        statuses = [(await poll.answer or {}).get("data", {}).get("status") for poll in opened]
        if early or statuses.count("waiting") != POLLS:
            raise Fault(f"of {POLLS} polls {early} ended early and {statuses.count('waiting')} returned `waiting`")
    return {"kib": (after - before) / POLLS, "percent": 100 * used / IDLE_SECONDS, "code": code_seconds * 1e6,
            "first": first}


def measure_signin(run):
    title = "Sign-in"
    run.progress.begin(title)
    measured = asyncio.run(signing_in(run))
    titles = {"kib": "a page that waits for its scan: KiB, connection included",
              "percent": f"{POLLS:,} of them: per cent of a core", "code": "a QR code and its ticket: CPU µs",
              "first": "the first request with a token, ES256: CPU µs"}
    values = {key: [value] for key, value in measured.items()}
    run.progress.step()
    return summary.workload_of("signin", title, "", None, titles, values, "deskgate only, measured once.")
