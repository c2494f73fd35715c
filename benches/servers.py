"""Server processes of the benchmark: start, resource usage and stop."""

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

# The measured proxy has its own core; client and upstream share the others.
CORES = sorted(os.sched_getaffinity(0))
PROXY_CORES = set(CORES[:1])
LOAD_CORES = set(CORES[1:] or CORES)


class Fault(Exception):
    """A condition that makes the measurement impossible or meaningless."""


def target_folder():
    metadata = ["cargo", "metadata", "--locked", "--no-deps", "--format-version", "1"]
    output = subprocess.run(metadata, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True)
    return pathlib.Path(json.loads(output.stdout)["target_directory"])


def find_program(name):
    """The path of an installed program, or None."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


def program(name):
    found = find_program(name)
    if found is None:
        raise Fault(f"{name} is not installed")
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A running server process and its children. `log` gets what it writes, and `ready` is what it writes when it has started,
    if it listens before."""

    def __init__(self, name, command, port, log, cores=PROXY_CORES, tls_port=None, stop=signal.SIGTERM, ready=""):
        self.name, self.port, self.tls_port, self.stop_signal, self.log, self.ready = name, port, tls_port, stop, log, ready
        with open(log, "ab") as output:
            # A new session, so that Ctrl-C reaches only the benchmark, which then stops its servers.
            self.process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, cores),
            )

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def url(self, tls=False):
        return f"https://127.0.0.1:{self.tls_port}" if tls else f"http://{self.address}"

    def wait_until_listening(self, seconds=60):
        deadline = time.monotonic() + seconds
        for port in filter(None, [self.port, self.tls_port]):
            while not self._is_listening(port):
                if time.monotonic() > deadline:
                    raise Fault(f"{self.name} does not listen: {self.last_words()}")
                time.sleep(0.02)
        return self

    def _is_listening(self, port):
        if self.process.poll() is not None:
            raise Fault(f"{self.name} ended with {self.process.returncode}: {self.last_words()}")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return False
        return self.ready in self.log.read_text(errors="replace")

    def last_words(self):
        return self.log.read_text(errors="replace")[-1000:].strip()

    def _pids(self):
        own, pids = self.process.pid, [self.process.pid]
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    # The fields after the name, which may contain spaces: state, parent, …
                    if (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(own):
                        pids.append(int(entry.name))
                except OSError:
                    pass  # the process has exited
        return pids

    def cpu_seconds(self):
        """User and system CPU time of all threads and children so far."""
        # The clock that clock_getcpuclockid(3) gives: in nanoseconds, while /proc has hundredths of a second.
        return sum(time.clock_gettime((~pid << 3) | 2) for pid in self._pids())

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


class Servers:
    """Started servers; stops all of them on exit."""

    def __init__(self):
        self.running = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in reversed(self.running):
            server.stop()

    def add(self, server):
        self.running.append(server)
        return server.wait_until_listening()
