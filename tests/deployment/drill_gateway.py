"""The gateways of the alert drill, and what is around them: upstreams, Redis, certificates and clients."""

import glob
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent
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
{platform}
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

# Rules without a limit on the WebSockets of an employee.
MANY_SOCKETS = """
[[rule]]
name = "socket"
path = "/ws"
methods = ["GET"]
upstream = "helpdesk"
signed_in = true

[[rule]]
name = "files"
path = "/files/{*rest}"
upstream = "helpdesk"
signed_in = true
"""

# A user without processes, for what root may do and no other user.
OTHER_USER = 64321


class Gateway:
    """A gateway with a folder of its own."""

    def __init__(self, folder, program, server="", more="", log="", platform="", addresses=None, rules=REPOSITORY / "lua-free-rules", environment=None,
                 stderr=None, limits=(), user=None):
        folder.mkdir()
        self.folder, self.program, self.stderr, self.limits, self.user = folder, program, stderr, list(limits), {}
        self.environment = {**os.environ, "TMPDIR": str(folder), **(environment or {})}
        self.config = folder / "deskgate.toml"
        listed = ", ".join(f'"{address}"' for address in addresses or [])
        self.config.write_text(CONFIG.format(server=server, more=more, log=log, platform=platform, rules=rules, addresses=listed))
        if user is not None:
            self.become(user)
        self.start()

    def become(self, user):
        """Gives the gateway's files to another user, who may not be able to read those of the repository."""
        self.user = {"user": user, "group": user, "extra_groups": []}
        self.program = shutil.copy(self.program, self.folder / "deskgate")
        shutil.copytree(REPOSITORY / "lua-free-rules", self.folder / "rules")
        self.config.write_text(self.config.read_text().replace(f"{REPOSITORY}/lua-free-rules", "rules"))
        os.chown(self.folder, user, user)
        for folder in (self.folder.parent, self.folder.parent.parent):
            folder.chmod(0o711)

    def start(self):
        command = [*self.limits, self.program, "serve", "--config", self.config]
        stderr = self.stderr or (self.folder / "log").open("ab")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=self.environment, **self.user)
        for line in self.process.stdout:
            if line.startswith("ready "):
                words = dict(word.split("=", 1) for word in line.split()[1:])
                self.address, *self.other_addresses = words["listen"].split(",")
                self.admin, self.platform = words["admin"], words.get("platform")
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

    def log_out(self, token):
        self.call("/api/auth/logout", "POST", token=token, body={})

    def sign_in_by_platform(self):
        """An employee is sent to the platform and comes back with a code."""
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(), Stay())
        target = urllib.parse.quote("http://127.0.0.1:8080/h5/", safe="")
        with opener.open(f"http://{self.address}/api/auth/oauth2/url?redirect_uri={target}", timeout=5) as answer:
            url = json.load(answer)["data"]["authorize_url"].split("#")[0]
        query = redirect_of(opener, f"{url}&as=u1001").split("?", 1)[1]
        redirect_of(opener, f"http://{self.address}/api/auth/oauth2/callback?{query}")

    def stop_platform(self):
        """Every call of the platform fails from now on."""
        faults = urllib.parse.urlencode({"name": "bad_gateway", "value": json.dumps({"*": 100000})}).encode()
        urllib.request.urlopen(f"http://{self.platform}/simulator/switches", faults, timeout=5).read()

    def metric(self, name):
        """The first series of a metric."""
        with urllib.request.urlopen(f"http://{self.admin}/metrics", timeout=5) as answer:
            return float(re.search(rf"^{name}(?:{{.*}})? (\S+)", answer.read().decode(), re.M)[1])

    def connect(self, address=None):
        host, port = (address or self.address).split(":")
        return socket.create_connection((host, int(port)), timeout=5)

    def pipeline(self, requests):
        """Sends requests that are refused, one behind the other on one connection, and reads the answers."""
        request = f"GET /unknown HTTP/1.1\r\nHost: {self.address}\r\n".encode()
        with self.connect() as connection:
            connection.sendall((request + b"\r\n") * (requests - 1) + request + b"Connection: close\r\n\r\n")
            while connection.recv(65536):
                pass

    def open_socket(self, token, path):
        """Opens a WebSocket. Returns its connection."""
        connection = self.connect()
        head = [f"GET {path} HTTP/1.1", f"Host: {self.address}", f"Authorization: Bearer {token}", "Connection: Upgrade", "Upgrade: websocket",
                "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="]
        connection.sendall("\r\n".join(head).encode() + b"\r\n\r\n")
        answer = connection.recv(4096)
        if b" 101 " not in answer.split(b"\r\n")[0]:
            raise OSError(f"no WebSocket: {answer[:200]}")
        return connection

    def stand_still(self, seconds, runs):
        """Stops the process for a while and then lets it run for a while."""
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)
        time.sleep(runs)


class Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the client to which the platform sends the employee back does not run here."""

    def redirect_request(self, *_):
        return None


def redirect_of(opener, url):
    try:
        opener.open(url, timeout=5).read()
    except urllib.error.HTTPError as answer:
        return answer.headers["Location"]
    raise ValueError(f"{url} does not redirect")


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

    def clock(self, **environment):
        """The file with the offset of a gateway's clock, and the gateway's environment for it."""
        offset = self.folder / "offset"
        offset.write_text("+0\n")
        library = glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1")[0]
        return offset, {"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1", "NO_FAKE_STAT": "1", **environment}

    def rules(self, text):
        """A folder with one file of rules."""
        rules = self.folder / "rules"
        rules.mkdir()
        (rules / "drill.toml").write_text(text)
        return rules

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
