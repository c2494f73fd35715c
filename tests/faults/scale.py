#!/usr/bin/env python3
"""Measures a start and a key rotation with many sessions: a trial of run.py, and more figures by itself.

    scale.py BINARY [--sessions N] [--used N] [--data DIR] [--seconds S] [--no-wait]

Prints one line per figure. `--data` keeps the filled data directory for the next run. `--used` sends a request with the tokens
of so many sessions to an upstream, which fills the session cache; it needs the Python package `cryptography`. `--no-wait` uses them
while the gateway still compares the sessions with the directory.
"""

import argparse
import base64
import http.client
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import fill
import gateway
import upstream

FOLDER = pathlib.Path(__file__).parent

# What the trial holds a gateway to, in seconds and MiB.
READY, ROTATED, REMOVED, RESIDENT = 2, 1, 10, 400


async def many_sessions(options, folder):
    """Starts with many sessions, rotates the key and removes the old one. Sessions of its own must survive the start and
    the rotation, and end with the answer to the removal."""
    with gateway.Gateway(options.program, folder) as desk:
        ledger = gateway.Ledger(desk)
        for _ in range(20):
            await ledger.sign_in()
        desk.stop()
        command = [sys.executable, FOLDER / "fill.py", desk.data, "--sessions", str(options.sessions)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        desk.start()
        ready, old = desk.started_in, fill.newest_key(desk.data).stem
        lost = await ledger.lost()
        rotated = timed(desk, "key", "rotate", "--now")
        lost += await ledger.lost()
        resident = desk.memory_mib("VmHWM")
        removed = timed(desk, "key", "remove", old, "--yes")
        refused = sum([not await desk.is_live(token) for token in ledger.live])
        lost += len(ledger.live) - refused
    note = (f"{options.sessions} sessions: ready after {ready:.2f} s, key rotated in {rotated:.2f} s, removed in "
            f"{removed:.2f} s and {refused} of {len(ledger.live)} of its tokens refused, at most {resident:.0f} MiB resident")
    failed = lost > 0 or ready > READY or rotated > ROTATED or removed > REMOVED or resident > RESIDENT
    return {"tried": ledger.tried, "acknowledged": ledger.acknowledged, "lost": lost, "note": note, "failed": failed}


def timed(desk, *command):
    """Seconds that a command takes; infinite if it fails."""
    begun = time.monotonic()
    done = desk.command(*command).returncode == 0
    return time.monotonic() - begun if done else float("inf")


def until_idle(desk, limit):
    """Waits until the gateway has used next to no CPU for three seconds. Returns the seconds since the call and the
    largest share of one core within a second."""
    start, before, idle, share = time.monotonic(), desk.cpu_seconds(), 0, 0
    while idle < 3 and time.monotonic() - start < limit:
        time.sleep(1)
        now = desk.cpu_seconds()
        idle = idle + 1 if now - before < 0.03 else 0
        share, before = max(share, now - before), now
    return time.monotonic() - start - idle, share


def use(desk, numbers):
    """Sends a request with the token of each session. Returns the seconds that it took."""
    address = f"127.0.0.1:{desk.port}"
    tokens = list(tokens_of(desk.data, f"http://{address}", numbers))
    connection = http.client.HTTPConnection(address)
    start = time.monotonic()
    for token in tokens:
        connection.request("GET", "/api/desk/x", headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            sys.exit(f"{response.status}: {body}")
    return time.monotonic() - start


def encode(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def tokens_of(data, issuer, numbers):
    """The tokens of sessions that fill.py has made, signed with the newest key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    file = fill.newest_key(data)
    pkcs8 = base64.b64decode("".join(line for line in file.read_text().splitlines() if not line.startswith("-")))
    # PKCS#8 of the second version, which the package does not read: the seed follows the head of its octet string.
    seed = pkcs8.index(bytes.fromhex("04220420")) + 4
    key = Ed25519PrivateKey.from_private_bytes(pkcs8[seed : seed + 32])
    compact = {"separators": (",", ":")}
    header = encode(json.dumps({"typ": "at+jwt", "alg": "EdDSA", "kid": file.stem}, **compact).encode())
    now = int(time.time())
    for number in numbers:
        claims = {
            "iss": issuer, "aud": "deskgate", "sub": fill.employee_id(number), "jti": fill.session_id(number),
            "iat": now - 1, "nbf": now - 1, "exp": now + 3600, "corp_id": fill.CORP, "name": fill.name_of(number),
            "roles": ["user"], "current_role": "user", "login_source": "qrcode", "stage": "full",
        }
        signed = header + b"." + encode(json.dumps(claims, **compact).encode())
        yield (signed + b"." + encode(key.sign(signed))).decode()


def main():
    arguments = argparse.ArgumentParser(description="measures a start and a key rotation with many sessions")
    arguments.add_argument("binary")
    arguments.add_argument("--sessions", type=int, default=1_000_000)
    arguments.add_argument("--seconds", type=int, default=400, help="how long the start may keep the gateway busy")
    arguments.add_argument("--used", type=int, default=0, help="how many sessions are used")
    arguments.add_argument("--data", type=pathlib.Path)
    arguments.add_argument("--no-wait", action="store_true", help="use sessions before all of them were compared")
    options = arguments.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="deskgate-scale-"))
    data = options.data or folder / "data"
    is_new = not (data / "state.db").exists()
    desk = gateway.Gateway(options.binary, folder, upstream.start_in_thread(), data=data)
    if is_new:
        desk.stop()
        subprocess.run([sys.executable, FOLDER / "fill.py", data, "--sessions", str(options.sessions)], check=True)
        desk.start()
    try:
        print(f"ready after              {desk.started_in:7.2f} s", flush=True)
        first = use(desk, range(1000)) if options.used else 0
        print(f"1000 sessions' first use {first:7.2f} s, while the sessions are compared", flush=True)
        if not options.no_wait:
            seconds, share = until_idle(desk, options.seconds)
            print(f"idle after               {seconds:7.0f} s, {share * 100:.0f} % of a core at most")
        print(f"CPU                      {desk.cpu_seconds():7.1f} s")
        print(f"largest resident size    {desk.memory_mib('VmHWM'):7.0f} MiB, now {desk.memory_mib():.0f} MiB")
        if options.used:
            print(f"sessions used            {use(desk, range(options.used)):7.0f} s")
            print(f"resident size            {desk.memory_mib():7.0f} MiB, {options.used} sessions cached", flush=True)
        print(f"key rotate --now         {timed(desk, 'key', 'rotate', '--now'):7.2f} s")
        print(f"largest resident size    {desk.memory_mib('VmHWM'):7.0f} MiB")
        print(f"session list             {timed(desk, 'session', 'list', '--json'):7.2f} s", flush=True)
    finally:
        begun = time.monotonic()
        desk.stop()
        print(f"stopped after            {time.monotonic() - begun:7.2f} s")


if __name__ == "__main__":
    main()
