#!/usr/bin/env python3
"""Checks that the response time of POST /api/agents/login does not reveal agents (attack 96 of docs/threats.md).

Starts a gateway on free ports with its own accounts and no rates, tries each kind of account 400 times in random order
and compares the medians, which may differ by 5 %. Exit code 1 otherwise. Needs an idle machine; a table that fails is
measured a second time. With `agents.conceal = false` an agent without a password gets another code (1012), so the time of
that kind is not compared.

    timing.py target/debug/deskgate
"""

import base64
import contextlib
import hmac
import http.client
import json
import pathlib
import random
import secrets
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import time

TRIES = 400
TRIES_PER_ACCOUNT = 4  # the fifth wrong password locks an account
TOLERANCE = 0.05
CORP = "wwdemo"

CONFIG = """
[server]
listen = ["127.0.0.1:0"]
admin_listen = "127.0.0.1:0"
development = true
data_dir = "{folder}/data"
[platform]
kind = "simulated"
simulated_listen = "127.0.0.1:0"
[upstreams.helpdesk]
addresses = ["127.0.0.1:9"]
[rules]
dir = "{folder}/rules"
[agents]
conceal = {conceal}
"""

# No rates: they would refuse most of the tries.
RULES = "".join(f'[[endpoint]]\npath = "{path}"\nrate = []\n' for path in (
    "/api/agents/login", "/api/dev/login", "/api/auth/otp-setup", "/api/auth/otp-bind"))


class Gateway:
    """A running gateway process."""

    def __init__(self, program, folder):
        command = [program, "serve", "--config", folder / "deskgate.toml"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        ready = next(line for line in self.process.stdout if line.startswith("ready "))
        self.address = dict(word.split("=", 1) for word in ready.split()[1:])["listen"]
        self.connection = http.client.HTTPConnection(self.address)
        self.connection.connect()

    def post(self, path, body, token=None):
        """Returns the code and the data of the response and the elapsed seconds."""
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        body = json.dumps(body)
        start = time.perf_counter()
        self.connection.request("POST", path, body, headers)
        response = self.connection.getresponse()
        text = response.read()
        took = time.perf_counter() - start
        envelope = json.loads(text)
        return envelope["code"], envelope["data"], took

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextlib.contextmanager
def gateway(program, folder):
    running = Gateway(program, folder)
    try:
        yield running
    finally:
        running.stop()


def new_names(count):
    """Random names of equal length, so that only their accounts differ."""
    return [f"t{secrets.token_hex(4)}" for _ in range(count)]


def make_accounts(folder, agents, passwordless, employees, disabled):
    """Inserts accounts into the directory of a stopped gateway. Their hashes are random bytes, which match no password
    and take the same time to check."""
    def random_hash():
        salt, output = (base64.b64encode(secrets.token_bytes(size)).decode().rstrip("=") for size in (16, 32))
        return f"$argon2id$v=19$m=19456,t=2,p=1${salt}${output}"

    with contextlib.closing(sqlite3.connect(folder / "data" / "directory.db")) as database, database:
        for name in [*agents, *passwordless, *employees, *disabled]:
            database.execute(
                "INSERT INTO employees (corp_id, employee_id, name, department, avatar, disabled, created_at)"
                " VALUES (?, ?, ?, '', '', ?, 0)", (CORP, name, name, int(name in disabled)))
        for name in [*agents, *passwordless, *disabled]:
            password = None if name in passwordless else random_hash()
            database.execute(
                "INSERT INTO agents (corp_id, employee_id, role, password_hash) VALUES (?, ?, 'agent', ?)",
                (CORP, name, password))


def bind_device(desk, name):
    """Signs an agent in through `/api/dev/login` and binds a device."""
    _, data, _ = desk.post("/api/dev/login", {"employee_id": name})
    token = data["token"]
    _, data, _ = desk.post("/api/auth/otp-setup", {}, token)
    key, step = base64.b32decode(data["secret"]), int(time.time()) // 30
    tag = hmac.digest(key, struct.pack(">q", step), "sha1")
    offset = tag[-1] & 15
    code = (struct.unpack(">I", tag[offset:offset + 4])[0] & 0x7FFFFFFF) % 1_000_000
    result, _, _ = desk.post("/api/auth/otp-bind", {"code": f"{code:06}"}, token)
    assert result == 0, result


def measure(desk, kinds, expected, more):
    """The median of each kind in milliseconds. Each round tries every kind once, in random order."""
    times = {kind: [] for kind in kinds}
    for number in range(TRIES):
        for kind in random.sample(list(kinds), len(kinds)):
            names = kinds[kind]
            body = {"employee_id": names[number % len(names)], "password": "not the password", **more}
            code, _, took = desk.post("/api/agents/login", body)
            assert code == expected, f"{kind}: {code}"
            times[kind].append(took * 1000)
    return {kind: statistics.median(samples) for kind, samples in times.items()}


def within_tolerance(title, medians):
    """Prints the table and returns whether all medians are within the tolerance of the first."""
    first = next(iter(medians.values()))
    print(f"\n{title}, {TRIES} tries each")
    for kind, median in medians.items():
        print(f"  {kind:38} {median:8.3f} ms {100 * (median / first - 1):+7.2f} %")
    return all(abs(median / first - 1) <= TOLERANCE for median in medians.values())


PASSWORDLESS = "agent without a password"


def table(program, title, more, with_devices, conceal):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "rules").mkdir()
        (folder / "rules" / "rates.toml").write_text(RULES)
        (folder / "deskgate.toml").write_text(CONFIG.format(folder=folder, conceal=str(conceal).lower()))
        kinds = {kind: new_names(TRIES // TRIES_PER_ACCOUNT) for kind in (
            "agent, wrong password", "unknown name", "employee, not an agent", PASSWORDLESS,
            "disabled agent")}
        agents, _, employees, passwordless, disabled = kinds.values()
        with gateway(program, folder):
            pass  # creates the directory
        make_accounts(folder, agents, passwordless, employees, disabled)
        with gateway(program, folder) as desk:
            for name in [*agents, *passwordless] if with_devices else []:
                bind_device(desk, name)
            if not conceal:
                body = {"employee_id": kinds.pop(PASSWORDLESS)[0], "password": "not the password", **more}
                code, _, _ = desk.post("/api/agents/login", body)
                assert code == 1012, code
            return within_tolerance(title, measure(desk, kinds, 1011, more))


def locked_table(program):
    """Locked agents and locked unknown names take the same time."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "rules").mkdir()
        (folder / "rules" / "rates.toml").write_text(RULES)
        (folder / "deskgate.toml").write_text(CONFIG.format(folder=folder, conceal="true"))
        kinds = {"locked agent": new_names(1), "unknown name, locked": new_names(1)}
        with gateway(program, folder):
            pass
        make_accounts(folder, kinds["locked agent"], [], [], [])
        with gateway(program, folder) as desk:
            for [name] in kinds.values():
                for _ in range(5):
                    desk.post("/api/agents/login", {"employee_id": name, "password": "not the password"})
            return within_tolerance("locked", measure(desk, kinds, 1429, {}))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    program = sys.argv[1]
    tables = [
        lambda: table(program, "password", {}, with_devices=False, conceal=True),
        lambda: table(program, "password and code", {"otp": "000000"}, with_devices=True, conceal=True),
        lambda: table(program, "password, agents.conceal = false", {}, with_devices=False, conceal=False),
        lambda: locked_table(program),
    ]
    failed = [number for number, run in enumerate(tables) if not run() and not run()]
    print("\nno measurable difference" if not failed else f"\n{len(failed)} of {len(tables)} tables reveal agents")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
