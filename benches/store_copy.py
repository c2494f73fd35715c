"""Copies an embedded store with many sessions to a Redis Cluster and PostgreSQL, and starts a gateway there.

    store_copy.py [--program FILE] [--sessions 1000000] [--employees 200000]

Prints how long the copy takes, the bytes of a session in Redis, and how a gateway starts on it. Takes minutes, and about
4 GB of memory for a million sessions: each is on a primary and on its replica.
"""

import argparse
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "deploy/fleet"))

from parts import Postgres, Process, RedisCluster, write_private  # noqa: E402

CONFIG = """[server]
listen = ["127.0.0.1:0"]
admin_listen = "127.0.0.1:0"
public_url = "http://127.0.0.1:0"
development = true
data_dir = "{data}"
{secret}
[platform]
kind = "simulated"
simulated_listen = "127.0.0.1:0"
[clients]
h5 = "http://127.0.0.1:0/h5/"
itagent = "http://127.0.0.1:0/itagent/"
itadmin = "http://127.0.0.1:0/itadmin/"
[rules]
dir = "{repository}/lua-free-rules"
[upstreams.helpdesk]
addresses = ["127.0.0.1:1"]
{backends}
"""


def start(program, config, folder, name):
    """Starts a gateway; returns it and the seconds until it is ready."""
    gateway, began = Process(name, [program, "serve", "--config", config], folder), time.monotonic()
    gateway.start(r"ready ", seconds=120)
    return gateway, time.monotonic() - began


def used_bytes(redis):
    return sum(int(re.search(r"used_memory:(\d+)", redis.cli(port, "info", "memory")).group(1))
               for _, port in redis.primaries())


def resident_mib(process, field):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", status).group(1)) / 1024


def measure(options, folder):
    write_private(folder / "secret", secrets.token_urlsafe(48))
    one, fleet = folder / "one.toml", folder / "fleet.toml"
    write_private(one, CONFIG.format(data=folder / "one", secret="", repository=REPOSITORY, backends=""))
    gateway, _ = start(options.program, one, folder, "embedded")
    gateway.stop()
    subprocess.run([sys.executable, REPOSITORY / "tests/faults/fill.py", folder / "one", "--sessions", str(options.sessions),
                    "--employees", str(options.employees)], check=True)
    redis, postgres = RedisCluster(folder, persistence=False), Postgres(folder)
    try:
        redis.start()
        postgres.start()
        backends = f'[store]\nurl = "{redis.url}"\n[directory]\nurl = "{postgres.url}"'
        write_private(fleet, CONFIG.format(data=folder / "fleet", secret=f'secret_file = "{folder}/secret"',
                                           repository=REPOSITORY, backends=backends))
        before, began = used_bytes(redis), time.monotonic()
        subprocess.run([options.program, "store", "copy", "--from", one, "--to", fleet], check=True)
        took = time.monotonic() - began
        print(f"copied in {took:.0f} s, {options.sessions / took:.0f} sessions a second")
        print(f"{(used_bytes(redis) - before) / options.sessions:.0f} bytes a session in Redis")
        gateway, ready = start(options.program, fleet, folder, "gateway")
        time.sleep(5)
        print(f"a gateway ready after {ready:.2f} s, {resident_mib(gateway, 'VmRSS'):.0f} MiB resident, "
              f"at most {resident_mib(gateway, 'VmHWM'):.0f} MiB", flush=True)
        gateway.stop()
    finally:
        postgres.stop()
        redis.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(REPOSITORY / "target/release/deskgate"))
    parser.add_argument("--sessions", type=int, default=1_000_000)
    parser.add_argument("--employees", type=int, default=200_000)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="deskgate-copy-") as folder:
        measure(options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
