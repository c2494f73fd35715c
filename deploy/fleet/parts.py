"""The parts of a fleet on one machine: Redis Cluster, PostgreSQL, gateways and a balancer, each a process of its own on a free
port, with its files in one folder. Nothing that runs already is touched."""

import os
import pathlib
import pwd
import random
import re
import secrets
import shutil
import signal
import socket
import subprocess
import time
import urllib.request

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent

# Where Debian keeps the programs of PostgreSQL.
POSTGRES_FOLDERS = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


class PartFault(Exception):
    """A part that could not be started."""

    @classmethod
    def of(cls, name, log):
        """Names the log, and has its end."""
        end = "".join(f"\n  {line}" for line in log.read_text(errors="replace").splitlines()[-5:])
        return cls(f"{name} did not start, see {log}{end}")


# Where the parts listen. Linux takes the ports of outgoing connections from 32,768 up, so that no connection can get the port of a part
# before it is started, or while it is killed. A Redis server listens for the others of its cluster 10,000 above its own port.
PORTS, BUS = range(10_000, 22_768), 10_000

# Bound sockets by port. They are closed when the process that uses the port is started; until then no other process can take it.
HELD = {}


def free_ports(count):
    """Free ports, whose ports of the cluster bus are free as well. They are held until their process is started."""
    ports = []
    while len(ports) < count:
        port = random.choice(PORTS)
        own, bus = socket.socket(), socket.socket()
        try:
            own.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + BUS))
        except OSError:
            own.close()
            bus.close()
            continue
        HELD[port] = own, bus
        ports.append(port)
    return ports


def write_private(file, text):
    file.touch(mode=0o600)
    file.write_text(text)


class Process:
    """A child process with its output in a file. Its `ports` are no longer held once it is started."""

    def __init__(self, name, command, folder, as_user=None, environment=None, ports=()):
        self.name, self.command, self.folder, self.as_user = name, [str(word) for word in command], folder, as_user
        self.environment = {**os.environ, **(environment or {})}
        self.process, self.ports = None, ports

    def start(self, ready=None, seconds=20):
        """Starts the process; with `ready`, waits for a line that matches and returns the match."""
        for port in self.ports:
            for held in HELD.pop(port, ()):
                held.close()
        log = open(self.log, "ab")
        output = subprocess.PIPE if ready else log
        user = {"user": self.as_user, "group": self.as_user and pwd.getpwnam(self.as_user).pw_gid} if self.as_user else {}
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=output, stderr=log, cwd=self.folder,
                                        env=self.environment, start_new_session=True, **user)
        log.close()
        if not ready:
            return None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            line = self.process.stdout.readline().decode()
            if not line:
                break
            found = re.search(ready, line)
            if found:
                return found
        self.kill()
        raise PartFault.of(self.name, self.log)

    @property
    def log(self):
        return self.folder / f"{self.name}.log"

    @property
    def pid(self):
        return self.process.pid

    def is_running(self):
        return self.process is not None and self.process.poll() is None

    def send(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.is_running():
            self.send(signal.SIGKILL)
        if self.process:
            self.process.wait()

    def stop(self, seconds=15):
        if self.is_running():
            self.send(signal.SIGTERM)
            try:
                self.process.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                self.kill()


def wait_for_port(port, process, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not process.is_running():
            break
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise PartFault.of(process.name, process.log)


class RedisCluster:
    """Three primaries with one replica each."""

    def __init__(self, folder, persistence=True):
        self.folder, self.ports, self.servers = folder, free_ports(6), []
        for port in self.ports:
            home = folder / f"redis-{port}"
            home.mkdir()
            command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", home, "--cluster-enabled", "yes",
                       "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0",
                       "--appendonly", "yes" if persistence else "no", "--save", "", "--maxmemory-policy", "noeviction"]
            self.servers.append(Process(f"redis-{port}", command, folder, ports=[port]))

    def start(self):
        for server, port in zip(self.servers, self.ports):
            server.start()
            wait_for_port(port, server)
        addresses = [f"127.0.0.1:{port}" for port in self.ports]
        subprocess.run(["redis-cli", "--cluster", "create", *addresses, "--cluster-replicas", "1", "--cluster-yes"],
                       check=True, capture_output=True)
        end = time.monotonic() + 30
        while not self.is_complete():
            if time.monotonic() > end:
                raise PartFault("the Redis cluster did not form")
            time.sleep(0.1)

    def is_complete(self):
        """Whether all servers agree about the slots, and every primary has its replica."""
        return (all("cluster_state:ok" in self.cli(port, "cluster", "info") for port in self.ports)
                and all("state=online" in self.cli(port, "info", "replication") for _, port in self.primaries()))

    def cli(self, port, *words):
        return subprocess.run(["redis-cli", "-p", str(port), *words], capture_output=True, text=True).stdout

    def primaries(self):
        """The servers that are primaries now."""
        found = []
        for server, port in zip(self.servers, self.ports):
            if server.is_running() and self.cli(port, "role").startswith("master"):
                found.append((server, port))
        return found

    @property
    def url(self):
        return "redis+cluster://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def stop(self):
        for server in self.servers:
            server.kill()


class Postgres:
    """A PostgreSQL server with one database."""

    def __init__(self, folder):
        if not POSTGRES_FOLDERS:
            raise PartFault("PostgreSQL is not installed")
        programs = POSTGRES_FOLDERS[0]
        self.folder, self.data, (self.port,) = folder, folder / "postgres", free_ports(1)
        self.data.mkdir(mode=0o700)
        # It refuses to run as root.
        self.user = None
        if os.geteuid() == 0:
            known = [entry.pw_name for entry in pwd.getpwall()]
            self.user = "postgres" if "postgres" in known else "nobody"
            shutil.chown(self.data, self.user)
            folder.chmod(0o755)
        self.password = secrets.token_urlsafe(12)
        word = folder / "postgres.password"
        write_private(word, self.password)
        if self.user:
            shutil.chown(word, self.user)
        subprocess.run([programs / "initdb", "-D", self.data, "-U", "deskgate", "--pwfile", word, "-A", "scram-sha-256",
                        "--no-locale", "-E", "UTF8"], check=True, capture_output=True, cwd=folder, user=self.user)
        command = [programs / "postgres", "-D", self.data, "-p", self.port, "-c", "listen_addresses=127.0.0.1",
                   "-c", f"unix_socket_directories={self.data}"]
        self.server = Process("postgres", command, folder, as_user=self.user, ports=[self.port])
        self.programs = programs

    def start(self):
        self.server.start()
        end = time.monotonic() + 30
        environment = {**os.environ, "PGPASSWORD": self.password}
        create = [self.programs / "createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "deskgate", "deskgate"]
        while subprocess.run(create, env=environment, capture_output=True).returncode:
            if time.monotonic() > end or not self.server.is_running():
                raise PartFault.of("PostgreSQL", self.server.log)
            time.sleep(0.1)

    @property
    def url(self):
        return f"postgres://deskgate:{self.password}@127.0.0.1:{self.port}/deskgate"

    def stop(self):
        if self.server.is_running():
            self.server.send(signal.SIGINT)
            self.server.process.wait()


class Gateways:
    """Gateways with one configuration, each with its own addresses and folder."""

    def __init__(self, program, folder, count, public_port, store, directory, settings=()):
        self.program, self.folder, self.public_port = program, folder, public_port
        self.ports, self.admin_ports = free_ports(count), free_ports(count)
        self.store, self.directory, self.settings = store, directory, list(settings)
        self.services = Process("services", [program, "demo-services", "--public-url", self.public_url], folder)
        self.gateways = []

    @property
    def public_url(self):
        return f"http://127.0.0.1:{self.public_port}"

    @property
    def config(self):
        return self.folder / "deskgate.toml"

    def start(self):
        found = self.services.start(r"platform=(\S+) helpdesk=(\S+)")
        self.platform, self.helpdesk = found.group(1), found.group(2)
        secret = self.folder / "secret"
        write_private(secret, secrets.token_urlsafe(48))
        write_private(self.config, f"""[server]
public_url = "{self.public_url}"
development = true
client_address = "rightmost"
secret_file = "{secret}"
data_dir = "{self.folder}/command"

[platform]
kind = "wecom"
corp_id = "wwdemo"
agent_id = "1000002"
secret = "simulated-secret-of-the-help-desk"
authorize_url = "http://{self.platform}/connect/oauth2/authorize"
api_url = "http://{self.platform}/"

[clients]
h5 = "{self.public_url}/h5/"
itagent = "{self.public_url}/itagent/"
itadmin = "{self.public_url}/itadmin/"

[store]
url = "{self.store}"
confirm = "replica"

[rates]
outage = "refuse"

[directory]
url = "{self.directory}"

[rules]
dir = "{REPOSITORY}/lua-free-rules"

[upstreams.helpdesk]
addresses = ["{self.helpdesk}"]
path_case = "sensitive"
""")
        for number in range(len(self.ports)):
            self.gateways.append(self.gateway(number))
            self.gateways[number].start(r"ready ")

    def gateway(self, number):
        command = [self.program, "serve", "--config", self.config,
                   "--set", f'server.listen=["127.0.0.1:{self.ports[number]}"]',
                   "--set", f"server.admin_listen=127.0.0.1:{self.admin_ports[number]}",
                   "--set", f"server.data_dir={self.folder}/gateway-{number + 1}"]
        for setting in self.settings:
            command += ["--set", setting]
        return Process(f"gateway-{number + 1}", command, self.folder, ports=[self.ports[number], self.admin_ports[number]])

    def restart(self, number):
        self.gateways[number].kill()
        self.gateways[number] = self.gateway(number)
        self.gateways[number].start(r"ready ")

    def counts(self, number, name, label):
        """A metric of one gateway, by the value of a label."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_ports[number]}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            if labels := re.match(rf'deskgate_{name}{{.*\b{label}="([^"]*)"', line):
                found[labels.group(1)] = found.get(labels.group(1), 0) + float(line.rpartition(" ")[2])
        return found

    def stop(self):
        for gateway in self.gateways:
            gateway.stop()
        self.services.stop()


class Balancer:
    """nginx in front of the gateways."""

    def __init__(self, folder, port, gateways):
        self.port, home = port, folder / "nginx"
        home.mkdir()
        servers = "\n".join(f"        server 127.0.0.1:{gateway} max_fails=1 fail_timeout=2s;" for gateway in gateways)
        (home / "nginx.conf").write_text(f"""
daemon off;
worker_processes 1;
pid {home}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    upstream gateways {{
{servers}
        keepalive 32;
    }}
    map $http_upgrade $connection_header {{ default upgrade; "" ""; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://gateways;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_header;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_read_timeout 1h;
            proxy_buffering off;
        }}
    }}
}}
""")
        nginx = shutil.which("nginx") or "/usr/sbin/nginx"
        self.process = Process("nginx", [nginx, "-p", home, "-c", home / "nginx.conf", "-e", "stderr"], folder, ports=[port])

    def start(self):
        self.process.start()
        wait_for_port(self.port, self.process)

    def stop(self):
        self.process.stop()
