"""The workloads of requests, and the targets of all workloads."""

from dataclasses import dataclass

import contestants
import summary
import traffic
from contestants import LARGE, LARGE_PATH, SMALL, SMALL_PATH, UPLOAD_PATH
from rounds import Rounds
from servers import Fault, Servers
from traffic import Load

REQUEST_UNIT = "CPU µs per request"


@dataclass(frozen=True)
class Requests:
    """Requests of one kind. `tokens` says which: "one", "many", or "bad", which has to be refused. `often` are those of the contestants whose
    ratio is close to its target, see `rounds`."""

    key: str
    title: str
    load: Load
    tokens: str
    contestants: tuple
    base: str = "nginx"
    often: tuple = ()

    def tokens_for(self, contestant, place):
        all_tokens = place.tokens[contestant.tokens or "ES256"]
        choice = {"one": all_tokens[:1], "many": all_tokens, "bad": [traffic.with_bad_signature(all_tokens[0])]}
        return choice[self.tokens]

    def prepare_turn(self, server, place):
        """Lets a contestant do before a turn what it has to do again after a pause, or after its start."""
        if self.tokens == "many":
            # deskgate signs an assertion for each session once in 40 s. Under steady load that is less than one request in a
            # hundred, but with pauses between the turns of a contestant it would be up to one in four.
            traffic.use_once(server, self.load.path, self.tokens_for(server.contestant, place))
        elif self.tokens == "bad":
            # The session is in use, as that of an altered token usually is.
            traffic.use_once(server, self.load.path, place.tokens[server.contestant.tokens][:1])


@dataclass(frozen=True)
class Target:
    """The most that `row` may take, as a multiple of `over` or in `unit`."""

    workload: str
    row: str
    over: str | None
    limit: float
    unit: str
    text: str


CHECKING = ("lua", "haproxy", "envoy", "deskgate", "deskgate-pingora", "deskgate-earlier")
PLAIN_TOO = ("nginx", *CHECKING)
BAD = ("lua-hs256", *CHECKING, "deskgate-eddsa")
ALL = ("nginx", "lua", "haproxy", "envoy", "bare", "deskgate", "deskgate-pingora", "deskgate-earlier")

REQUESTS = [
    Requests("one", "One token", Load(SMALL_PATH), "one", (*ALL, "deskgate-eddsa"), often=("nginx", "deskgate", "deskgate-eddsa")),
    Requests("many", "10,000 tokens", Load(SMALL_PATH), "many", PLAIN_TOO, often=("lua", "deskgate")),
    Requests("bad-same", "The same bad token", Load(SMALL_PATH), "bad", BAD, "lua"),
    Requests("bad-different", "Bad tokens, all different", Load(SMALL_PATH, unique=True), "bad", BAD, "lua"),
    Requests("post", "POST with 1 KiB", Load(UPLOAD_PATH, body=SMALL), "one", ALL),
    Requests("upload", "POST with 100 KiB", Load(UPLOAD_PATH, body=LARGE), "one", ALL),
    Requests("download", "100 KiB in the response", Load(LARGE_PATH), "one", ALL),
    Requests("tls", "HTTP/1.1 with TLS", Load(SMALL_PATH, tls=True), "one", PLAIN_TOO),
    Requests("http2", "HTTP/2 with TLS", Load(SMALL_PATH, tls=True, http2=True), "one", PLAIN_TOO),
]

TARGETS = [
    Target("one", "deskgate", "nginx", 1.0, "× nginx", "one token"),
    Target("one", "deskgate-eddsa", "nginx", 1.0, "× nginx", "one token, EdDSA"),
    Target("many", "deskgate", "lua", 0.7, "× nginx with Lua", "10,000 tokens"),
    Target("post", "deskgate", "nginx", 1.1, "× nginx", "POST with 1 KiB"),
    Target("bad-same", "deskgate", "lua", 1.0, "× nginx with Lua", "the same bad token"),
    Target("bad-same", "deskgate", "lua-hs256", 1.0, "× nginx with Lua, HS256", "the same bad token"),
    Target("bad-different", "deskgate", "lua", 1.0, "× nginx with Lua", "bad tokens, all different"),
    Target("bad-different", "deskgate-eddsa", "lua-hs256", 1.0, "× nginx with Lua, HS256", "bad tokens, all different, EdDSA"),
    Target("http2", "deskgate", "nginx", 1.3, "× nginx", "HTTP/2 with TLS"),
    Target("sockets", "deskgate", None, 3.0, "KiB", "an idle WebSocket"),
    Target("echo", "deskgate", "nginx", 1.1, "× nginx", "an echo on a WebSocket"),
    Target("idle", "deskgate", None, 8.0, "KiB", "an idle keep-alive connection"),
    Target("sessions", "1000000", "1", 1.2, "× one session", "1,000,000 sessions"),
    Target("rules", "5000", "10", 1.05, "× 10 rules", "5,000 rules"),
    # Two per cent: as much as medians of the same program differ.
    Target("one", "deskgate-pingora", "deskgate-earlier", 1.02, "× earlier program", "Pingora's lane, one token"),
    Target("post", "deskgate-pingora", "deskgate-earlier", 1.02, "× earlier program", "Pingora's lane, POST with 1 KiB"),
]


def chosen_for(keys, run):
    """The contestants of a workload that take part in this run, in their order."""
    return [contestant for contestant in run.contestants if contestant.key in keys]


def needs_lua(workload):
    """Whether the upstream has to read a request body, which takes Lua."""
    return workload.load.path == UPLOAD_PATH


def measure_requests(run, workloads):
    """Measures the workloads, with all contestants started once."""
    keys = {key for workload in workloads for key in workload.contestants}
    with Servers() as servers:
        upstream = servers.add(contestants.upstream_server(run.place))
        started = [run.place.start(servers, contestant, upstream.address) for contestant in chosen_for(keys, run)]
        return [measure_one(run, workload, started) for workload in workloads]


def measure_one(run, workload, started):
    run.progress.begin(workload.title)
    taking_part = {server.contestant.key: server for server in started if server.contestant.key in workload.contestants}
    files = {key: run.place.folder / f"tokens-{key}" for key in taking_part}
    for key, server in taking_part.items():
        files[key].write_text("\n".join(workload.tokens_for(server.contestant, run.place)) + "\n")
    rounds = Rounds(taking_part, run.rounds, workload.often)
    for key in rounds.turns():
        server = taking_part[key]
        run.progress.show(f"{workload.title}: {server.contestant.title}")
        workload.prepare_turn(server, run.place)
        rounds.add(key, turn(run, server, workload, files[key]))
        run.progress.step()
    titles = {key: server.contestant.title for key, server in taking_part.items()}
    return summary.workload_of(workload.key, workload.title, REQUEST_UNIT, workload.base, titles, rounds.values)


def turn(run, server, workload, tokens_file):
    """CPU microseconds per request of one turn."""
    for _ in run.host.tries():
        before = server.cpu_seconds()
        counted = traffic.generate(server, workload.load, tokens_file, run.seconds)
        used = server.cpu_seconds() - before
    check(f"{workload.title}, {server.contestant.title}", counted, workload.tokens == "bad")
    return used * 1e6 / counted["requests"]


def check(name, counted, is_bad):
    """Raises a fault if a contestant did not answer as it has to, because its figures would be meaningless."""
    refused = counted["requests"] if is_bad else 0
    if counted["failed"] or counted["refused"] != refused or not counted["requests"]:
        raise Fault(f"{name}: expected every request to be {'refused' if is_bad else 'accepted'}, got {counted}")
