#!/usr/bin/env python3
"""Fires the alerts of deploy/prometheus by provoking their causes, on real gateways that a real Prometheus watches.

    tests/deployment/alert_drill.py [--program FILE] [--other-program FILE] [--only CASE]

Each case is a job of its own: one or two gateways, and what is done to them. Time runs sixty times as fast in the rules: every minute of
`for`, of a range and of an offset is a second. Prints which alert fired after how long, and exits with 1 if one did not, or if
an alert fired on the gateways to which nothing is done. Needs prometheus, redis-server, faketime and openssl.
"""

import argparse
import concurrent.futures
import glob
import http.server
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
import urllib.error
import urllib.parse
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
PATIENCE = 240
DONE = threading.Event()

CONFIG = """
[server]
listen = ["127.0.0.1:0"]
admin_listen = "127.0.0.1:0"
public_url = "http://127.0.0.1:0"
development = true
data_dir = "data"
{server}
[platform]
kind = "simulated"
[rules]
dir = "{rules}"
[log]
format = "json"
{log}
[upstreams.helpdesk]
addresses = [{addresses}]
path_case = "sensitive"
ejection = {{ failures = 2, for = "1s" }}
health = {{ path = "/", every = "1s" }}
{more}
"""


class Gateway:
    """A gateway with a folder of its own."""

    def __init__(self, folder, program, server="", more="", log="", addresses=None, rules=REPOSITORY / "lua-free-rules", environment=None, stderr=None):
        folder.mkdir()
        self.folder, self.program, self.stderr = folder, program, stderr
        self.environment = {**os.environ, "TMPDIR": str(folder), **(environment or {})}
        self.config = folder / "deskgate.toml"
        listed = ", ".join(f'"{address}"' for address in addresses or [])
        self.config.write_text(CONFIG.format(server=server, more=more, log=log, rules=rules, addresses=listed))
        self.start()

    def start(self):
        command = [self.program, "serve", "--config", self.config]
        stderr = self.stderr or (self.folder / "log").open("ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=self.environment)
        for line in self.process.stdout:
            if line.startswith("ready "):
                words = dict(word.split("=", 1) for word in line.split()[1:])
                self.address, self.admin, self.platform = words["listen"], words["admin"], words.get("platform")
                return
        raise RuntimeError(f"the gateway did not start: {(self.folder / 'log').read_text()[-500:]}")

    def stop(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait()

    def call(self, path, method="GET", token=None, body=None, scheme="http"):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = None
        if body is not None:
            headers["Content-Type"], data = "application/json", json.dumps(body).encode()
        request = urllib.request.Request(f"{scheme}://{self.address}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return json.loads(answer.read() or b"null")
        except (urllib.error.URLError, OSError, ValueError):
            return None

    def sign_in(self, employee="u1001"):
        answer = self.call("/api/dev/login", "POST", body={"employee_id": employee})
        return answer["data"]["token"] if answer else None


def forever(action, pause=0.02):
    """Repeats an action in the background until the drill ends."""
    def repeat():
        while not DONE.is_set():
            try:
                action()
            except (OSError, ValueError, KeyError, TypeError):
                pass
            time.sleep(pause)

    threading.Thread(target=repeat, daemon=True).start()


class Upstream:
    """A service that answers everything with 200."""

    def __init__(self):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()


def unused_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Case:
    """What a case can use: gateways, upstreams, programs."""

    def __init__(self, folder, options):
        self.folder, self.options, self.gateways, self.processes = folder, options, [], []
        folder.mkdir()

    def gateway(self, **settings):
        upstream = settings.pop("upstream", None) or Upstream().address
        addresses = settings.pop("addresses", [upstream])
        program = settings.pop("program", self.options.program)
        gateway = Gateway(self.folder / f"gateway-{len(self.gateways)}", program, addresses=addresses, **settings)
        self.gateways.append(gateway)
        return gateway

    def redis(self):
        port = unused_address().split(":")[1]
        server = subprocess.Popen(["redis-server", "--port", port, "--save", "", "--dir", self.folder], stdout=subprocess.DEVNULL)
        self.processes.append(server)
        secret = self.folder / "secret"
        subprocess.run([self.options.program, "secret", "new", secret], check=True, capture_output=True)
        store = f'[store]\nurl = "redis://127.0.0.1:{port}"\noutage_grace = "5m"\n'
        return server, {"server": f'secret_file = "{secret}"', "more": store}

    def certificate(self, days):
        files = self.folder / "tls.crt", self.folder / "tls.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", str(days), "-subj", "/CN=drill"]
        command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
        subprocess.run(command, check=True, capture_output=True)
        return files

    def end(self):
        for gateway in self.gateways:
            gateway.process.kill()
        for process in self.processes:
            process.kill()


def traffic(gateway, pause=0.02):
    token = gateway.sign_in()
    forever(lambda: gateway.call("/api/conversations", token=token), pause)


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

    def stall():
        """Long compared with the time between: many requests are caught in the middle."""
        gateway.process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        gateway.process.send_signal(signal.SIGCONT)
        time.sleep(0.005)

    return lambda: forever(stall, 0)


def slow_revocation(case):
    """The second gateway stands still while sessions end on the first."""
    _, settings = case.redis()
    first, second = case.gateway(**settings), case.gateway(**settings)

    def end_session():
        token = first.sign_in()
        second.call("/api/conversations", token=token)
        second.process.send_signal(signal.SIGSTOP)
        first.call("/api/auth/logout", "POST", token=token, body={})
        time.sleep(0.3)
        second.process.send_signal(signal.SIGCONT)

    return lambda: forever(end_session, 0.3)


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
    case.gateway()
    case.gateway(program=case.options.other_program)
    return lambda: None


def platform_fails(case):
    gateway = case.gateway()
    class Stay(urllib.request.HTTPRedirectHandler):
        """The page to which the platform sends the employee back is that of a client which does not run here."""

        def redirect_request(self, *_):
            return None

    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), Stay())

    def redirect_of(url):
        try:
            opener.open(url, timeout=5).read()
        except urllib.error.HTTPError as answer:
            return answer.headers["Location"]
        raise ValueError(f"{url} does not redirect")

    def sign_in():
        """An employee is sent to the platform and comes back with a code."""
        target = urllib.parse.quote("http://127.0.0.1:8080/h5/", safe="")
        with opener.open(f"http://{gateway.address}/api/auth/oauth2/url?redirect_uri={target}", timeout=5) as answer:
            url = json.load(answer)["data"]["authorize_url"].split("#")[0]
        query = redirect_of(f"{url}&as=u1001").split("?", 1)[1]
        redirect_of(f"http://{gateway.address}/api/auth/oauth2/callback?{query}")

    forever(sign_in, 0.1)

    def provoke():
        faults = urllib.parse.urlencode({"name": "bad_gateway", "value": json.dumps({"*": 100000})}).encode()
        urllib.request.urlopen(f"http://{gateway.platform}/simulator/switches", faults, timeout=5).read()

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
        host, port = gateway.address.split(":")
        held.extend(socket.create_connection((host, int(port)), timeout=5) for _ in range(40))

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
                    held[index] = socket.create_connection((host, int(port)), timeout=5)

        forever(keep, 0.2)

    return provoke


def greedy_address(case):
    gateway = case.gateway(server="trusted_proxies = []", more="[limits]\nconnections_per_address = 3")
    held = []

    def connect():
        host, port = gateway.address.split(":")
        held.append(socket.create_connection((host, int(port)), timeout=5))
        del held[:-10]

    return lambda: forever(connect, 0.1)


def unread_log(case):
    reading, writing = os.pipe()
    gateway = case.gateway(log='level = "trace"', stderr=writing)
    case.pipe = reading
    os.close(writing)
    return lambda: [traffic(gateway, 0) for _ in range(4)]


def no_collector(case):
    gateway = case.gateway(more=f'[traces]\nendpoint = "http://{unused_address()}"\nsample = 1.0')
    traffic(gateway, 0.05)
    return lambda: None


def clock(case):
    offset = case.folder / "offset"
    offset.write_text("+0\n")
    library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")[0]
    case.gateway(environment={"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
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
    short_certificate: ["CertificateExpires"],
    old_certificate: ["CertificateExpiresSoon", "CertificateReloadFailed"],
    bad_reload: ["ConfigReloadFailed"],
    different_rules: ["ConfigDiffers"],
    different_versions: ["VersionsDiffer"],
    platform_fails: ["PlatformErrors", "PlatformCircuitOpen"],
    refused_sign_ins: ["SignInFailures"],
    bad_tokens: ["TokensRefused"],
    many_connections: ["ConnectionsNearLimit", "ConnectionsFull"],
    greedy_address: ["LimitReached"],
    unread_log: ["LogLinesDropped"],
    no_collector: ["SpansLost"],
    clock: ["ClockJumped"],
}

# Alerts whose causes cannot be provoked within minutes, and why.
LEFT_OUT = {
    "Absent": "needs a Prometheus without the job; checked at the end",
    "Panics": "a panic is a bug",
    "WebSocketCloseSlow": "a gateway that stands still does not measure the delay",
    "PlatformTokenOld": "takes two hours",
    "RecheckOverdue": "takes two hours",
    "AuditLinesDropped": "takes a full disk",
    "FileDescriptors": "the gateway stops accepting before, unless every client has a WebSocket",
    "MemoryHigh": "takes 1.5 GiB",
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
    if not options.other_program:
        chosen.pop("different_versions", None)
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
            absent = wait_for(address, {("deskgate", "Absent")}, time.monotonic())
            print("DeskgateAbsent: " + ("fired" if absent else "DID NOT FIRE"))
            faults += [] if absent else ["DeskgateAbsent did not fire"]
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
    arguments.add_argument("--other-program", type=pathlib.Path, help="one of another version, for VersionsDiffer")
    arguments.add_argument("--only", help="run one case")
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="alert-drill-") as folder:
        faults = drill(options, pathlib.Path(folder))
    left = dict(LEFT_OUT, **({} if options.other_program else {"VersionsDiffer": "needs --other-program"}))
    print("not provoked: " + "; ".join(f"Deskgate{name} ({why})" for name, why in left.items() if name != "Absent"))
    print("\n".join(faults) if faults else "every provoked alert fired")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
