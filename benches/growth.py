"""How the cost of a request grows with the number of sessions and of rules. deskgate only."""

import itertools
import random
import time

import contestants
import summary
import tokens
import traffic
from contestants import SMALL_PATH
from rounds import Rounds
from servers import Fault, Servers
from workloads import REQUEST_UNIT, Requests, turn

SESSIONS = [1, 1_000, 100_000, 1_000_000]
RULES = [10, 100, 1_000, 5_000]
# Tokens in use: the cache holds all sessions, but a load generator cannot hold the tokens of a million.
USED = 10_000
# For the first use of every session: an endpoint of the gateway itself, and the algorithm that is verified in less time. With
# an upstream, an assertion and ES256 the first uses of a million sessions would take twice as long.
FIRST_USE, ALGORITHM = "/api/auth/me", "EdDSA"
IDLE_LIMIT = 300


def compare(run, key, title, unit_of_row, started, files, path, note):
    """Interleaved turns of gateways that differ in one number. The targets compare the largest with the smallest."""
    workload = Requests(key, title, traffic.Load(path), "many", ())
    rounds = Rounds(started, run.rounds, often_of(started))
    for number in rounds.turns():
        run.progress.show(f"{title}: {number:,}")
        # Signs the assertions, see `Requests.prepare_turn`.
        traffic.use_once(started[number], path, files[number].read_text().split())
        rounds.add(number, turn(run, started[number], workload, files[number]))
        run.progress.step()
    values = {str(number): measured for number, measured in rounds.values.items()}
    titles = {str(number): f"{number:,} {unit_of_row if number != 1 else unit_of_row.rstrip('s')}" for number in started}
    return summary.workload_of(key, title, REQUEST_UNIT, str(min(started)), titles, values, note)


def often_of(sizes):
    """The sizes that the targets compare."""
    return (min(sizes), max(sizes)) if sizes else ()


def until_idle(server):
    """Waits until a gateway has compared its sessions with the directory, which it does in the background after its start:
    it uses next to no CPU time for two seconds."""
    deadline, idle, before = time.monotonic() + IDLE_LIMIT, 0, server.cpu_seconds()
    while idle < 4:
        if time.monotonic() > deadline:
            raise Fault("the gateway is still busy with its sessions")
        time.sleep(0.5)
        now = server.cpu_seconds()
        idle, before = (idle + 1 if now - before < 0.02 else 0), now


def start_with_sessions(run, servers, upstream, count):
    """A gateway with so many sessions, all of them in its cache, and a file with the tokens of some of them."""
    run.progress.show(f"Sessions: {count:,} are written")
    data, signer = run.place.make_sessions(ALGORITHM, count)
    settings = [f"token.cache={max(count, 1000) * 2}"]
    server = contestants.start_deskgate(run.place, upstream, ALGORITHM, settings, data)
    server.contestant = next(one for one in contestants.CONTESTANTS if one.key == "deskgate")
    servers.add(server)
    used = set(random.Random(count).sample(range(count), min(count, USED)))
    kept = []

    def all_tokens():
        for number, token in enumerate(tokens.tokens(signer, signer.file.stem, range(count), count)):
            if number in used:
                kept.append(token)
            yield token

    traffic.use_once(server, FIRST_USE, all_tokens(),
                     lambda done: done % 6400 or run.progress.show(f"Sessions: {done:,} of {count:,} are used"))
    # In another order than that of the first uses, and as many for each number of sessions, so that the load costs the same.
    random.Random(count).shuffle(kept)
    file = run.place.folder / f"tokens-of-{count}"
    file.write_text("\n".join(itertools.islice(itertools.cycle(kept), USED)) + "\n")
    return server, file


def measure_sessions(run):
    title = "Sessions"
    run.progress.begin(title)
    started, files = {}, {}
    with Servers() as servers:
        upstream = servers.add(contestants.upstream_server(run.place)).address
        # The largest first, so that it has the most time.
        for count in reversed(run.sizes(SESSIONS)):
            started[count], files[count] = start_with_sessions(run, servers, upstream, count)
        run.progress.show("Sessions: the gateways compare them with the directory")
        for server in started.values():
            until_idle(server)
        started = dict(sorted(started.items()))
        note = (f"EdDSA. Every session was used once, so that all of them are in the gateway's cache; the requests have the tokens of at "
                f"most {USED:,} of them, chosen at random.")
        return compare(run, "sessions", title, "sessions", started, files, SMALL_PATH, note)


def rules_text(count):
    """So many rules of different paths."""
    rules = [
        f'[[rule]]\nname = "rule {number}"\npath = "/api/area{number % 100}/kind{number}/{{id}}/items"\nmethods = ["GET"]\n'
        f'upstream = "helpdesk"\naccess = "conversations:read"\nroles = ["user", "agent"]\n'
        for number in range(count)
    ]
    return "\n".join(rules)


def measure_rules(run):
    title = "Rules"
    run.progress.begin(title)
    started, files = {}, {}
    # Every set has it.
    path = "/api/area5/kind5/7/items"
    file = run.place.folder / "tokens-of-rules"
    file.write_text("\n".join(run.place.tokens["ES256"][:1]) + "\n")
    with Servers() as servers:
        upstream = servers.add(contestants.upstream_server(run.place)).address
        for count in run.sizes(RULES):
            server = contestants.start_deskgate(run.place, upstream, rules=rules_text(count), only_these=True)
            server.contestant = next(one for one in contestants.CONTESTANTS if one.key == "deskgate")
            started[count], files[count] = servers.add(server), file
        return compare(run, "rules", title, "rules", started, files, path, "One token, one path that every set of rules has.")
