#!/usr/bin/env python3
"""Holds a running gateway against its own description, with schemathesis and all of its checks.

    python description.py PROGRAM

Starts PROGRAM (`deskgate`) on free ports with a folder of its own, and ends it. Exit code 1 if anything that comes
back is not what `/api/auth/openapi.json` says. `schemathesis.toml` has the settings, `description_hooks.py` who asks.
"""

import base64
import hashlib
import hmac
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent

# Open to the simulated platform as the demo is. A step-up lasts for the whole run, and a poll is held only shortly.
SETTINGS = """
[server]
listen = ["127.0.0.1:0"]
admin_listen = "127.0.0.1:0"
public_url = "http://127.0.0.1:0"
development = true
[clients]
h5 = "http://127.0.0.1:0/h5/"
itagent = "http://127.0.0.1:0/itagent/"
itadmin = "http://127.0.0.1:0/itadmin/"
[platform]
kind = "simulated"
simulated_listen = "127.0.0.1:0"
[bind]
proof = "none"
[otp]
valid_for = "1h"
[ticket]
longest_wait = "1s"
[log]
level = "warn"
"""


def rates():
    """Rules that lift the rates: thousands of requests come from one address, and 1429 would hide everything else."""
    described = json.loads((HERE.parent.parent / "src" / "api" / "openapi.json").read_text())
    return "".join(f'[[endpoint]]\npath = "{path}"\nrate = []\n' for path in described["paths"])


def call(base, method, path, token=None, body=None):
    """An answer's data."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    content = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{base}{path}", content, headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)["data"]


def one_time_password(secret):
    """What a device with this secret shows now (RFC 6238)."""
    step = struct.pack(">Q", int(time.time()) // 30)
    digest = hmac.new(base64.b32decode(secret), step, hashlib.sha1).digest()
    place = digest[-1] & 15
    number = struct.unpack(">I", digest[place:place + 4])[0] & 0x7FFFFFFF
    return f"{number % 1_000_000:06}"


def stepped_up_administrator(base):
    """A token that opens what administrators may do only with a fresh one-time password."""
    token = call(base, "POST", "/api/dev/login", body={"employee_id": "m5001"})["token"]
    secret = call(base, "POST", "/api/auth/otp-setup", token)["secret"]
    call(base, "POST", "/api/auth/otp-bind", token, {"code": one_time_password(secret)})
    return token


def schemathesis(base, folder):
    """Runs it, in a folder that takes what it leaves behind. Returns its exit code."""
    settings = {
        "DESKGATE_BASE": base,
        "DESKGATE_ADMINISTRATOR": stepped_up_administrator(base),
        "SCHEMATHESIS_HOOKS": "description_hooks",
        "PYTHONPATH": str(HERE),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    program = pathlib.Path(sys.executable).parent / "schemathesis"
    command = [program, "--config-file", HERE / "schemathesis.toml", "run", f"{base}/api/auth/openapi.json"]
    return subprocess.run(command, env={**os.environ, **settings}, cwd=folder, check=False).returncode


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "rules").mkdir()
        (folder / "rules" / "rates.toml").write_text(rates())
        places = f'[rules]\ndir = "{folder / "rules"}"\n'
        (folder / "deskgate.toml").write_text(SETTINGS + places)
        command = [sys.argv[1], "serve", "--config", folder / "deskgate.toml", "--set", f"server.data_dir={folder}/data"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as gateway:
            try:
                ready = next(line for line in gateway.stdout if line.startswith("ready "))
                places = dict(word.split("=", 1) for word in ready.split()[1:])
                failed = schemathesis(f"http://{places['listen']}", folder)
            finally:
                gateway.terminate()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
