"""The servers of the benchmark: configuration, start, resource usage and stop."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")

# The measured proxy has its own core; client and upstream share the others.
CORES = sorted(os.sched_getaffinity(0))
PROXY_CORES = set(CORES[:1])
LOAD_CORES = set(CORES[1:] or CORES)


class Fault(Exception):
    """A condition that makes the measurement impossible or meaningless."""


def build():
    """Builds deskgate and the bare proxy with one command, so that both share profile and dependencies."""
    command = ["cargo", "build", "--release", "--locked", "--bin", "deskgate", "--bench", "bare_proxy"]
    command += ["--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        raise Fault("the build failed")
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    programs = {m["target"]["name"]: m["executable"] for m in messages if m.get("executable")}
    return programs["deskgate"], programs["bare_proxy"]


def target_folder():
    metadata = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    output = subprocess.run(metadata, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True)
    return pathlib.Path(json.loads(output.stdout)["target_directory"])


def program(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Fault(f"{name} is not installed")
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running server process and its children."""

    def __init__(self, name, command, port, cores, stop=signal.SIGTERM, stdout=subprocess.DEVNULL):
        self.name, self.port, self.stop_signal = name, port, stop
        # A new session, so that Ctrl-C reaches only the benchmark, which then stops its servers.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            start_new_session=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def wait_until_listening(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise Fault(f"{self.name} ended with {self.process.returncode}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return self
            except OSError:
                time.sleep(0.02)
        raise Fault(f"{self.name} does not listen")

    def _pids(self):
        own, pids = self.process.pid, [self.process.pid]
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if _stat_fields(entry)[1] == str(own):
                        pids.append(int(entry.name))
                except OSError:
                    pass  # the process has exited
        return pids

    def cpu_seconds(self):
        """User and system CPU time of all threads and children so far."""
        fields = [_stat_fields(pathlib.Path(f"/proc/{pid}")) for pid in self._pids()]
        return sum(int(f[11]) + int(f[12]) for f in fields) / TICKS

    def memory(self):
        """User-space memory in KiB: resident, proportional, and private to the process."""
        sums = {"rss": 0, "pss": 0, "private": 0}
        for pid in self._pids():
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            kib = {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+) kB", text, re.M)}
            sums["rss"] += kib["Rss"]
            sums["pss"] += kib["Pss"]
            sums["private"] += kib["Private_Clean"] + kib["Private_Dirty"]
        return sums

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(self.stop_signal)
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


def _stat_fields(folder):
    # The fields after the name, which may contain spaces: state, parent, …, utime (11), stime (12).
    return (folder / "stat").read_text().rpartition(")")[2].split()


class Servers:
    """The started servers; stops all of them on exit."""

    def __init__(self, folder, deskgate, bare_proxy):
        self.folder, self.programs, self.running = folder, (deskgate, bare_proxy), []

    def __enter__(self):
        self.folder.mkdir()
        return self

    def __exit__(self, *_):
        for server in reversed(self.running):
            server.stop()

    def _start(self, *arguments, **settings):
        server = Server(*arguments, **settings)
        self.running.append(server)
        return server

    def upstream(self):
        """An nginx that returns 1 KiB. It is not measured and must not be the bottleneck."""
        return self._nginx("upstream", LOAD_CORES, f'location / {{ return 200 "{"x" * 1024}"; }}')

    def nginx(self, upstream):
        """nginx as a plain proxy."""
        forward = """
            location / {
                proxy_pass http://upstream; proxy_http_version 1.1; proxy_set_header Connection "";
            }
            location /ws/ {
                proxy_pass http://upstream; proxy_http_version 1.1;
                proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection "upgrade";
            }"""
        pool = f"upstream upstream {{ server {upstream}; keepalive 1024; keepalive_requests 100000000; }}"
        return self._nginx("nginx", PROXY_CORES, forward, pool)

    def _nginx(self, name, cores, locations, upstream=""):
        folder, port = self.folder / f"{name}-{len(self.running)}", free_port()
        folder.mkdir()
        user = "user root;" if os.geteuid() == 0 else ""
        paths = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in
                         ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
        (folder / "nginx.conf").write_text(f"""
            {user} worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
            worker_rlimit_nofile 16384;
            events {{ worker_connections 8192; }}
            http {{
                access_log off; {paths}
                keepalive_timeout 600s; keepalive_requests 100000000;
                {upstream}
                server {{ listen 127.0.0.1:{port}; default_type text/plain; {locations} }}
            }}""")
        command = [program("nginx"), "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", f"{folder}/error.log"]
        return self._start(name, command, port, cores).wait_until_listening()

    def bare_proxy(self, upstream):
        """Pingora's proxy with nothing added."""
        port = free_port()
        command = [self.programs[1], f"127.0.0.1:{port}", upstream]
        # On SIGTERM, Pingora would wait minutes for open connections.
        return self._start("bare proxy", command, port, PROXY_CORES, stop=signal.SIGINT).wait_until_listening()

    def deskgate(self, upstream):
        """deskgate with the rules of the repository, but without its access log and without the limits on sockets per
        employee and on QR codes, polls and invalid tokens per address."""
        folder = self.folder / f"deskgate-{len(self.running)}"
        folder.mkdir()
        (folder / "rules").mkdir()
        for file in (REPOSITORY / "lua-free-rules").glob("*.toml"):
            # The benchmark opens all sockets as one employee and all sign-in pages from one address.
            rules = re.sub(r"(?m)^websocket = .*$", "", file.read_text())
            rules = re.sub(r'(path = "/api/auth/(?:qrcode|scan/status)"\nrate = )\[(?:.|\n)*?\](?=\n\n)', r"\1[]", rules)
            (folder / "rules" / file.name).write_text(rules)
        (folder / "deskgate.toml").write_text(f"""
            [server]
            listen = ["127.0.0.1:0"]
            admin_listen = "127.0.0.1:0"
            public_url = "http://127.0.0.1:0"
            development = true
            data_dir = "{folder}/data"
            [platform]
            kind = "simulated"
            [rules]
            dir = "{folder}/rules"
            [upstreams.helpdesk]
            addresses = ["{upstream}"]
            """)
        command = [self.programs[0], "serve", "--config", str(folder / "deskgate.toml")]
        for setting in ["server.threads=1", "log.level=error", "log.requests=refused", "limits.invalid_tokens=0"]:
            command += ["--set", setting]
        server = self._start("deskgate", command, 0, PROXY_CORES, stdout=subprocess.PIPE)
        line = server.process.stdout.readline().decode()
        found = re.match(r"ready listen=127\.0\.0\.1:(\d+) ", line)
        if not found:
            raise Fault(f"deskgate did not start: {line!r}")
        server.port = int(found.group(1))
        return server
