"""A gateway under test: starts the program on free ports, sends requests, reads its logs and databases."""

import asyncio
import json
import os
import pathlib
import re
import signal
import sqlite3
import ssl
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent

RULES = """
[[rule]]
name = "anyone"
path = "/public/{*rest}"
upstream = "helpdesk"
public = true

[[rule]]
name = "everyone signed in"
path = "/api/desk/{*rest}"
upstream = "helpdesk"
signed_in = true

[[rule]]
name = "socket"
path = "/ws"
methods = ["GET"]
upstream = "helpdesk"
signed_in = true
"""


class Fault(Exception):
    """A condition that makes a trial impossible."""


class Answer:
    """A response of the gateway, or none."""

    def __init__(self, status=0, body=b""):
        self.status = status
        try:
            envelope = json.loads(body)
        except ValueError:
            envelope = {}
        self.code, self.data = envelope.get("code"), envelope.get("data")

    @property
    def is_done(self):
        return self.status == 200 and self.code in (0, None)


class Gateway:
    """A running gateway with a data directory of its own."""

    def __init__(self, program, folder, upstream="127.0.0.1:9", environment=None, limits=None, settings=(),
                 tls=False, data=None):
        self.program, self.folder, self.limits = program, pathlib.Path(folder), limits or []
        self.environment = {**os.environ, **(environment or {})}
        self.data = data or self.folder / "data"
        self.settings, self.port, self.tls, self.contexts = list(settings), 0, tls, {}
        (self.folder / "rules").mkdir(parents=True, exist_ok=True)
        (self.folder / "rules" / "test.toml").write_text(RULES)
        (self.folder / "deskgate.toml").write_text(f"""
            [server]
            admin_listen = "127.0.0.1:0"
            public_url = "{'https' if tls else 'http'}://127.0.0.1:0"
            development = true
            data_dir = "{self.data}"
            {self.certificate() if tls else ""}
            [platform]
            kind = "simulated"
            [rules]
            dir = "{self.folder}/rules"
            [upstreams.helpdesk]
            addresses = ["{upstream}"]
            """)
        self.log = open(self.folder / "log", "ab")
        self.start()

    def certificate(self):
        """Makes a certificate. Returns the setting that names it."""
        certificate, key = self.folder / "tls.crt", self.folder / "tls.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                        "-out", str(certificate), "-keyout", str(key)], check=True, capture_output=True)
        return f'tls = {{ cert_file = "{certificate}", key_file = "{key}" }}'

    def start(self):
        # After the first start always on the same port: tokens name it as their issuer.
        command = [self.program, "serve", "--config", str(self.folder / "deskgate.toml"), "--set",
                   f'server.listen=["127.0.0.1:{self.port}"]', "--set", "log.requests=refused"]
        for setting in self.settings:
            command += ["--set", setting]
        begun = time.monotonic()
        self.process = subprocess.Popen([*self.limits, *command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=self.log, env=self.environment, start_new_session=True)
        line = self.process.stdout.readline().decode()
        self.started_in = time.monotonic() - begun
        found = re.match(r"ready listen=127\.0\.0\.1:(\d+) admin=(\S+)", line)
        if not found:
            raise Fault(f"the gateway did not start, see {self.folder}/log")
        self.port, self.admin = int(found.group(1)), found.group(2)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process.stdout.close()

    def restart(self):
        if self.process.poll() is None:
            self.stop()
        for _ in range(50):
            try:
                return self.start()
            except Fault:
                time.sleep(0.1)
        raise Fault(f"the gateway did not start again, see {self.folder}/log")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        self.log.close()

    def memory_mib(self, field="VmRSS"):
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"^{field}:\s+(\d+) kB", text, re.M).group(1)) / 1024

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def command(self, *words):
        command = [self.program, *words, "--config", str(self.folder / "deskgate.toml")]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    def count(self, file, query):
        with sqlite3.connect(f"file:{self.data / file}?mode=ro", uri=True) as database:
            return database.execute(query).fetchone()[0]

    async def connect(self, protocol="http/1.1"):
        """Opens a connection, with TLS if the gateway serves it."""
        if not self.tls:
            return await asyncio.open_connection("127.0.0.1", self.port)
        if protocol not in self.contexts:
            self.contexts[protocol] = ssl.create_default_context(cafile=str(self.folder / "tls.crt"))
            self.contexts[protocol].set_alpn_protocols([protocol])
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=self.contexts[protocol])

    async def send(self, method, path, token=None, body=None, timeout=10):
        """Sends a request on a connection of its own. No answer in time has status 0."""
        try:
            return await asyncio.wait_for(self._send(method, path, token, body), timeout)
        except (OSError, asyncio.TimeoutError, asyncio.IncompleteReadError, IndexError, ValueError):
            return Answer()

    async def _send(self, method, path, token, body):
        content = json.dumps(body).encode() if body is not None else b""
        head = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", "Connection: close",
                f"Content-Length: {len(content)}"]
        if body is not None:
            head.append("Content-Type: application/json")
        if token:
            head.append(f"Authorization: Bearer {token}")
        reader, writer = await self.connect()
        try:
            writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + content)
            raw = await reader.read()
        finally:
            writer.close()
        top, _, rest = raw.partition(b"\r\n\r\n")
        return Answer(int(top.split(b" ", 2)[1]), rest)

    async def sign_in(self, employee="u1001", **options):
        return await self.send("POST", "/api/dev/login", body={"employee_id": employee}, **options)

    async def log_out(self, token):
        return await self.send("POST", "/api/auth/logout", token)

    async def is_live(self, token):
        return (await self.send("GET", "/api/auth/me", token)).is_done


class Ledger:
    """What a gateway has acknowledged, to be compared with what it still knows after a restart."""

    def __init__(self, gateway):
        self.gateway, self.tried, self.acknowledged = gateway, 0, 0
        self.live, self.ended = [], []
        # Sessions whose logout was refused or got no answer: they may have ended or not.
        self.undecided = 0

    async def sign_in(self, **options):
        self.tried += 1
        answer = await self.gateway.sign_in(**options)
        if answer.is_done:
            self.acknowledged += 1
            self.live.append(answer.data["token"])
        return answer

    async def log_out_one(self):
        """Ends the oldest live session."""
        if not self.live:
            return
        self.tried += 1
        token = self.live.pop(0)
        answer = await self.gateway.log_out(token)
        if answer.is_done:
            self.acknowledged += 1
            self.ended.append(token)
        else:
            self.undecided += 1

    async def lost(self):
        """How many acknowledged changes are gone: sessions, logouts, and the records of both."""
        lost = 0
        for token in self.live:
            lost += not await self.gateway.is_live(token)
        for token in self.ended:
            lost += await self.gateway.is_live(token)
        signed_in = len(self.live) + len(self.ended) + self.undecided
        logins = self.gateway.count("directory.db", "SELECT count(*) FROM login_log WHERE result = 'success'")
        logouts = self.gateway.count("directory.db",
                                     "SELECT count(*) FROM audit_log WHERE event = 'logout' AND refused = ''")
        return lost + max(0, signed_in - logins) + max(0, len(self.ended) - logouts)
