#!/usr/bin/env python3
"""Checks a running gateway against its OpenAPI document, with all checks of schemathesis.

    python openapi_conformance.py PROGRAM

Starts PROGRAM (`deskgate`) on free ports with a temporary directory. Exit code 1 if a response does not match
`/api/auth/openapi.json`. `schemathesis.toml` holds the settings, `openapi_hooks.py` the callers.
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

# Development settings. A step-up lasts for the whole run, and long polls are short.
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
enrol_within = "1h"
[ticket]
longest_wait = "1s"
[log]
level = "warn"
"""


def rates():
    """Rules without rates: thousands of requests come from one address, and 1429 would hide everything else."""
    document = json.loads((HERE.parent.parent / "src" / "api" / "openapi.json").read_text())
    return "".join(f'[[endpoint]]\npath = "{path}"\nrate = []\n' for path in document["paths"])


def call(base, method, path, token=None, body=None):
    """Sends a request and returns the envelope's data."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    content = json.dumps(body).encode() if body is not None else None
    request = urllib.request.Request(f"{base}{path}", content, headers, method=method)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)["data"]


def one_time_password(secret, steps=0):
    """The code of a device with this secret (RFC 6238), `steps` steps from now."""
    step = struct.pack(">Q", int(time.time()) // 30 + steps)
    digest = hmac.new(base64.b32decode(secret), step, hashlib.sha1).digest()
    offset = digest[-1] & 15
    number = struct.unpack(">I", digest[offset:offset + 4])[0] & 0x7FFFFFFF
    return f"{number % 1_000_000:06}"


def stepped_up_administrator(base):
    """Signs an administrator in and steps the session up with a new device."""
    token = call(base, "POST", "/api/dev/login", body={"employee_id": "m5001"})["token"]
    secret = call(base, "POST", "/api/auth/otp-setup", token)["secret"]
    call(base, "POST", "/api/auth/otp-bind", token, {"code": one_time_password(secret)})
    call(base, "POST", "/api/auth/otp-verify", token, {"code": one_time_password(secret, 1)})
    return token


def schemathesis(base, folder):
    """Runs schemathesis in this folder, where it writes its files, and returns its exit code."""
    settings = {
        "DESKGATE_BASE": base,
        "DESKGATE_ADMINISTRATOR": stepped_up_administrator(base),
        "SCHEMATHESIS_HOOKS": "openapi_hooks",
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
        rules = f'[rules]\ndir = "{folder / "rules"}"\n'
        (folder / "deskgate.toml").write_text(SETTINGS + rules)
        command = [sys.argv[1], "serve", "--config", folder / "deskgate.toml", "--set", f"server.data_dir={folder}/data"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as gateway:
            try:
                ready = next(line for line in gateway.stdout if line.startswith("ready "))
                addresses = dict(word.split("=", 1) for word in ready.split()[1:])
                failed = schemathesis(f"http://{addresses['listen']}", folder)
            finally:
                gateway.terminate()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
