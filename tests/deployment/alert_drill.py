#!/usr/bin/env python3
"""Fires the alerts of deploy/prometheus by provoking their causes, on real gateways that a real Prometheus watches.

    tests/deployment/alert_drill.py [--program FILE] [--only CASE]

Each case is a job of its own: one or two gateways, and what is done to them. Time runs sixty times as fast in the rules: every minute of
`for`, of a range and of an offset is a second. Prints which alert fired after how long, and exits with 1 if one did not or has no
case, or if an alert fired on the gateways to which nothing is done. Needs prometheus, redis-server, faketime and openssl.
"""

import argparse
import concurrent.futures
import itertools
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from drill_gateway import DONE, MANY_SOCKETS, OTHER_USER, REPOSITORY, Case, Upstream, forever, traffic, unused_address

sys.path.insert(0, str(REPOSITORY / "tests" / "faults"))

from http2 import END_HEADERS, HEADERS, SETTINGS, frame, string  # noqa: E402
from upstream import start_in_thread as start_echo_upstream  # noqa: E402

PATIENCE = 240


# The cases: each prepares its gateways and returns what provokes the alerts. Its name is the job's.


def nothing(case):
    gateway = case.gateway()
    traffic(gateway, 0.1)
    return lambda: None


def deskgate(case):
    """The job's own name: the alert on `up` looks at no other."""
    gateway = case.gateway()
    return gateway.stop


def without_proof(case):
    case.gateway(more='[bind]\nproof = "none"')
    return lambda: None


def restarts(case):
    admin = unused_address()
    gateway = case.gateway(server="")
    gateway.config.write_text(gateway.config.read_text().replace('admin_listen = "127.0.0.1:0"', f'admin_listen = "{admin}"'))
    gateway.stop()
    gateway.start()

    def provoke():
        for _ in range(4):
            time.sleep(3)
            gateway.stop()
            gateway.start()

    return provoke


def lost_data(case):
    gateway = case.gateway()
    return lambda: subprocess.run(["rm", "-rf", gateway.folder / "data"], check=True)


def redis_ends(case):
    server, settings = case.redis()
    gateway = case.gateway(**settings)
    token = gateway.sign_in()
    forever(lambda: gateway.call("/api/conversations", token=token))
    forever(gateway.sign_in)
    # A request with a shared rate limit.
    forever(lambda: gateway.call("/api/conversations", "POST", token=token, body={}))
    return server.kill


def overloaded(case):
    gateway = case.gateway()
    traffic(gateway)
    text = gateway.config.read_text() + "[limits]\nmemory = 1000000\n"

    def provoke():
        gateway.config.write_text(text)
        gateway.process.send_signal(signal.SIGHUP)

    return provoke


def upstream_ends(case):
    upstream = Upstream()
    gateway = case.gateway(upstream=upstream.address)
    traffic(gateway)
    return upstream.stop


def upstream_flaps(case):
    """One of two addresses refuses connections; without a health check only requests find that out."""
    upstream, dead = Upstream(), Upstream()
    gateway = case.gateway(addresses=[upstream.address, dead.address])
    gateway.stop()
    gateway.config.write_text(re.sub("health = .*", "", gateway.config.read_text()))
    gateway.start()
    traffic(gateway, 0.005)
    return dead.stop


def stalls(case):
    gateway = case.gateway()
    for _ in range(4):
        traffic(gateway, 0)

    # Long compared with the time between: many requests are caught in the middle.
    return lambda: forever(lambda: gateway.stand_still(0.05, 0.005), 0)


def slow_revocation(case):
    """The second gateway stands still while sessions end on the first."""
    _, settings = case.redis()
    first, second = case.gateway(**settings), case.gateway(**settings)

    def end_session():
        token = first.sign_in()
        second.call("/api/conversations", token=token)
        second.process.send_signal(signal.SIGSTOP)
        first.log_out(token)
        time.sleep(0.3)
        second.process.send_signal(signal.SIGCONT)

    return lambda: forever(end_session, 0.3)


def slow_closes(case):
    """As under a CPU limit that is too low: the gateway stands still most of the time, while sessions with many WebSockets end."""
    gateway = case.gateway(upstream=start_echo_upstream(), rules=case.rules(MANY_SOCKETS))

    def end_session():
        token = gateway.sign_in()
        sockets = [gateway.open_socket(token, "/ws") for _ in range(50)]
        logout = threading.Thread(target=gateway.log_out, args=[token])
        logout.start()
        while logout.is_alive():
            gateway.stand_still(0.2, 0.003)
        for connection in sockets:
            connection.close()

    return lambda: forever(end_session, 0)


def short_certificate(case):
    crt, key = case.certificate(1)
    case.gateway(server=f'tls = {{ cert_file = "{crt}", key_file = "{key}" }}')
    return lambda: None


def old_certificate(case):
    crt, key = case.certificate(10)
    case.gateway(server=f'tls = {{ cert_file = "{crt}", key_file = "{key}" }}')
    return lambda: key.write_text("no key\n")


def bad_reload(case):
    gateway = case.gateway()

    def provoke():
        gateway.config.write_text(gateway.config.read_text() + "\n[nonsense]\n")
        gateway.process.send_signal(signal.SIGHUP)

    return provoke


def different_rules(case):
    case.gateway()
    rules = case.folder / "rules"
    subprocess.run(["cp", "-r", REPOSITORY / "lua-free-rules", rules], check=True)
    (rules / "queue.toml").unlink()
    case.gateway(rules=rules)
    return lambda: None


def different_versions(case):
    """A copy of the program with another commit in it stands for another version."""
    case.gateway()
    program = pathlib.Path(case.options.program)
    commit = subprocess.run([program, "--version"], check=True, capture_output=True).stdout.split(b"(")[1].split(b")")[0]
    other = case.folder / "deskgate"
    other.write_bytes(program.read_bytes().replace(commit, commit[::-1]))
    other.chmod(0o755)
    case.gateway(program=other)
    return lambda: None


def platform_fails(case):
    gateway = case.gateway()
    forever(gateway.sign_in_by_platform, 0.1)
    return gateway.stop_platform


def platform_fails_for_hours(case):
    """The clocks jump, both of them: three hours pass in which the platform has not answered."""
    offset, environment = case.clock()
    gateway = case.gateway(platform='recheck = "1s"', environment=environment)
    gateway.sign_in_by_platform()
    forever(gateway.sign_in_by_platform, 1)

    def provoke():
        gateway.stop_platform()
        time.sleep(5)
        offset.write_text("+10800\n")

    return provoke


def refused_sign_ins(case):
    gateway = case.gateway()
    return lambda: forever(lambda: gateway.sign_in("unknown"), 0.1)


def bad_tokens(case):
    gateway = case.gateway()
    return lambda: forever(lambda: gateway.call("/api/conversations", token="a.b.c"), 0.01)


def many_connections(case):
    gateway = case.gateway(more="[limits]\nconnections = 20")
    held = []

    def provoke():
        held.extend(gateway.connect() for _ in range(40))

        def keep():
            """The gateway closes silent connections after a while: they are replaced."""
            for index, connection in enumerate(held):
                connection.setblocking(False)
                try:
                    closed = connection.recv(1) == b""
                except BlockingIOError:
                    closed = False
                except OSError:
                    closed = True
                if closed:
                    held[index] = gateway.connect()

        forever(keep, 0.2)

    return provoke


def greedy_address(case):
    gateway = case.gateway(server="trusted_proxies = []", more="[limits]\nconnections_per_address = 3")
    held = []

    def connect():
        held.append(gateway.connect())
        del held[:-10]

    return lambda: forever(connect, 0.1)


def unread_log(case):
    reading, writing = os.pipe()
    gateway = case.gateway(log='level = "trace"', stderr=writing)
    case.pipe = reading
    os.close(writing)
    return lambda: [forever(lambda: gateway.pipeline(100), 0) for _ in range(4)]


def no_collector(case):
    gateway = case.gateway(more=f'[traces]\nendpoint = "http://{unused_address()}"\nsample = 1.0')
    traffic(gateway, 0.05)
    return lambda: None


def no_syslog(case):
    """The syslog daemon ends, and its socket is gone."""
    path = case.folder / "syslog"
    daemon = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    daemon.bind(str(path))
    gateway = case.gateway(more=f'[audit]\noutput = "syslog"\nsyslog_socket = "{path}"')
    forever(lambda: daemon.recv(65536), 0)
    forever(lambda: gateway.log_out(gateway.sign_in()), 0.2)

    def provoke():
        path.unlink()
        daemon.shutdown(socket.SHUT_RDWR)
        daemon.close()

    return provoke


def no_threads(case):
    """The kernel grants no more threads, and a password check needs one. Root has no such limit."""
    gateway = case.gateway(user=OTHER_USER if os.getuid() == 0 else None)

    def provoke():
        subprocess.run(["prlimit", f"--pid={gateway.process.pid}", "--nproc=0:0"], check=True, **gateway.user)
        # Each time another employee: accounts are locked after wrong passwords.
        employees = itertools.count()
        forever(lambda: gateway.call("/api/agents/login", "POST", body={"employee_id": f"x{next(employees)}", "password": "wrong"}), 1)

    return provoke


def many_files(case):
    """Every client has a WebSocket, but for two that upload many files at once on HTTP/2 connections."""
    settings = {"rules": case.rules(MANY_SOCKETS), "limits": ["prlimit", "--nofile=1024:1024"]}
    gateway = case.gateway(upstream=start_echo_upstream(), server='[[server.listeners]]\naddress = "127.0.0.1:0"\nh2c = true', **settings)
    held = []

    def upload(token):
        connection = gateway.connect(gateway.other_addresses[0])
        fields = {":method": "POST", ":scheme": "http", ":path": "/files/x", ":authority": gateway.other_addresses[0], "authorization": f"Bearer {token}"}
        block = b"".join(b"\0" + string(name) + string(value) for name, value in fields.items())
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b""))
        for stream in range(1, 120, 2):
            connection.sendall(frame(HEADERS, END_HEADERS, stream, block))
        held.append(connection)

    def provoke():
        token = gateway.sign_in()
        for _ in range(2):
            upload(token)
        for _ in range(int(gateway.metric("deskgate_connections_limit")) - 5):
            held.append(gateway.open_socket(token, "/ws"))

    return provoke


def large_heads(case):
    """Clients that send most of a large head and no more, near a limit on memory."""
    gateway = case.gateway(more='[limits]\nhead_deadline = "10m"')
    held = []

    def provoke():
        limit = int(gateway.metric("deskgate_process_resident_memory_bytes")) + 40_000_000
        gateway.config.write_text(gateway.config.read_text() + f"memory = {limit}\n")
        gateway.process.send_signal(signal.SIGHUP)
        for _ in range(2000):
            connection = gateway.connect()
            connection.sendall(b"GET / HTTP/1.1\r\nX-Large: " + b"x" * 30_000)
            held.append(connection)
            if gateway.metric("deskgate_process_resident_memory_bytes") > 0.9 * limit:
                break

    return provoke


def clock(case):
    offset, environment = case.clock(FAKETIME_DONT_FAKE_MONOTONIC="1")
    case.gateway(environment=environment)
    return lambda: offset.write_text("+600\n")


CASES = {
    nothing: [],
    deskgate: ["Down"],
    without_proof: ["BindWithoutProof", "DevelopmentMode"],
    restarts: ["Restarts"],
    lost_data: ["StoreDown", "DirectoryDown"],
    redis_ends: ["StoreDown", "FeedDown", "StoreErrors", "RateLeasesFailing"],
    overloaded: ["Saturated", "ErrorsFast", "ErrorsSlow"],
    upstream_ends: ["UpstreamDown", "UpstreamAddressDown", "UpstreamErrorsFast", "UpstreamErrorsSlow"],
    upstream_flaps: ["UpstreamEjections"],
    stalls: ["OverheadHigh"],
    slow_revocation: ["RevocationSlow"],
    slow_closes: ["WebSocketCloseSlow"],
    short_certificate: ["CertificateExpires"],
    old_certificate: ["CertificateExpiresSoon", "CertificateReloadFailed"],
    bad_reload: ["ConfigReloadFailed"],
    different_rules: ["ConfigDiffers"],
    different_versions: ["VersionsDiffer"],
    platform_fails: ["PlatformErrors", "PlatformCircuitOpen"],
    platform_fails_for_hours: ["PlatformTokenOld", "RecheckOverdue"],
    refused_sign_ins: ["SignInFailures"],
    bad_tokens: ["TokensRefused"],
    many_connections: ["ConnectionsNearLimit", "ConnectionsFull"],
    greedy_address: ["LimitReached"],
    unread_log: ["LogLinesDropped"],
    no_syslog: ["AuditLinesDropped"],
    no_collector: ["SpansLost"],
    no_threads: ["Panics"],
    many_files: ["FileDescriptors"],
    large_heads: ["MemoryHigh"],
    clock: ["ClockJumped"],
}

def prometheus(folder):
    rules = []
    for name in ("recording.yaml", "alerts.yaml"):
        text = (REPOSITORY / "deploy" / "prometheus" / name).read_text()
        text = re.sub(r"\[(\d+)([mhd])\]|(for: |offset )(\d+)([mhd])\b", hurry, text)
        (folder / name).write_text(text)
        rules.append(str(folder / name))
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": rules,
        "scrape_configs": [{"job_name": "unnamed", "file_sd_configs": [{"files": [str(folder / "targets.json")], "refresh_interval": "1s"}]}],
    }
    (folder / "prometheus.json").write_text(json.dumps(config))
    address = unused_address()
    command = ["prometheus", f"--config.file={folder}/prometheus.json", f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={address}", "--log.level=warn"]
    return subprocess.Popen(command, stderr=(folder / "prometheus.log").open("w")), address


def alert_names():
    text = (REPOSITORY / "deploy" / "prometheus" / "alerts.yaml").read_text()
    return set(re.findall(r"- alert: Deskgate(\w+)", text))


def hurry(match):
    number, unit = match[1] or match[4], match[2] or match[5]
    length = f"{int(number) * {'m': 1, 'h': 60, 'd': 1440}[unit]}s"
    return f"[{length}]" if match[1] else f"{match[3]}{length}"


def firing(address):
    """Alerts that fire, as (job, alert)."""
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/alerts", timeout=5) as answer:
            alerts = json.load(answer)["data"]["alerts"]
    except OSError:
        return set()
    return {(alert["labels"]["job"], alert["labels"]["alertname"].removeprefix("Deskgate")) for alert in alerts if alert["state"] == "firing"}


def wait_for(address, wanted, begin):
    """Waits until all are firing: the seconds that each took."""
    took = {}
    while wanted - took.keys() and time.monotonic() < begin + PATIENCE:
        for found in firing(address) & wanted:
            took.setdefault(found, time.monotonic() - begin)
        time.sleep(0.5)
    return took


def write_targets(folder, cases):
    rows = [{"targets": [gateway.admin for gateway in case.gateways], "labels": {"job": name}} for name, case in cases.items()]
    temporary = folder / "targets.new"
    temporary.write_text(json.dumps(rows))
    temporary.rename(folder / "targets.json")


def drill(options, folder):
    chosen = {case.__name__: (case, alerts) for case, alerts in CASES.items() if options.only in (None, case.__name__)}
    cases = {name: Case(folder / name, options) for name in chosen}
    server = None
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            prepared = dict(zip(chosen, pool.map(lambda name: chosen[name][0](cases[name]), chosen)))
        write_targets(folder, cases)
        server, address = prometheus(folder)
        time.sleep(25)
        # What a gateway is from its start on fires already.
        early = {(name, alert) for name, alert in firing(address)}
        begin = time.monotonic()
        for provoke in prepared.values():
            threading.Thread(target=provoke, daemon=True).start()
        wanted = {(name, alert) for name, (_, alerts) in chosen.items() for alert in alerts}
        took = wait_for(address, wanted, begin)
        seen = {alert for name, alert in firing(address) | early if name == "nothing"} - {"DevelopmentMode"}
        for name, alert in sorted(wanted, key=lambda pair: list(chosen).index(pair[0])):
            result = f"{took[name, alert]:.0f} s" if (name, alert) in took else "DID NOT FIRE"
            when = " (from the start)" if (name, alert) in early else ""
            print(f"Deskgate{alert:24} {name:20} {result}{when}", flush=True)
        faults = [f"Deskgate{alert} did not fire" for name, alert in sorted(wanted - took.keys())]
        faults += [f"Deskgate{alert} fired on a gateway to which nothing was done" for alert in sorted(seen)]
        if not options.only:
            write_targets(folder, {name: case for name, case in cases.items() if name != "deskgate"})
            took |= wait_for(address, {("deskgate", "Absent")}, time.monotonic())
            fired, all_alerts = {alert for _, alert in took}, alert_names()
            faults += [f"Deskgate{alert} has no case" for alert in sorted(all_alerts - {alert for _, alert in wanted} - {"Absent"})]
            faults += [] if "Absent" in fired else ["DeskgateAbsent did not fire"]
            print(f"{len(fired)} of {len(all_alerts)} alerts fired, {time.monotonic() - begin:.0f} s after the first cause", flush=True)
        return faults
    finally:
        DONE.set()
        if server:
            server.kill()
        for case in cases.values():
            case.end()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    arguments.add_argument("--program", type=pathlib.Path, default=target / "debug" / "deskgate", help="a gateway with the feature demo")
    arguments.add_argument("--only", help="run one case")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="alert-drill-") as folder:
        faults = drill(options, pathlib.Path(folder))
    print("\n".join(faults) if faults else "every provoked alert fired")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
