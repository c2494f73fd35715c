#!/usr/bin/env python3
"""Fault injections on the release binary: `make faults`.

Makes the disk full, slow or broken, kills the process, moves its clock and takes its descriptors and memory away, and
compares what was acknowledged with what is left. Prints a table; exit code 1 if something acknowledged was lost, the
gateway did not recover or a target was missed.

    run.py [--program FILE] [--only NAME …] [--kills 20] [--sessions 200000] [--overload 30] [--soak SECONDS]
"""

import argparse
import asyncio
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import clock
import disconnects
import disk
import limits
import overload
import scale
import soak
from gateway import HERE, REPOSITORY, Fault

TRIALS = {
    "full disk": disk.full_disk,
    "write error": disk.write_error,
    "sync error": disk.sync_error,
    "slow sync": disk.slow_sync,
    "deleted data": disk.deleted_data,
    "kill": disk.kill,
    "clock back": clock.step_back,
    "clock forward": clock.step_forward,
    "suspended": clock.suspend,
    "descriptors": limits.descriptors,
    "memory": limits.memory,
    "disconnects": disconnects.every_phase,
    "overload": overload.ten_times,
    "many sessions": scale.many_sessions,
    "soak": soak.mixed_load,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", help="the binary to test; built in release mode if omitted")
    parser.add_argument("--only", nargs="*", choices=TRIALS, help="only these trials")
    parser.add_argument("--kills", type=int, default=20, help="SIGKILLs during writes")
    parser.add_argument("--sessions", type=int, default=200_000, help="sessions of the trial with many")
    parser.add_argument("--overload", type=int, default=30, help="seconds of ten times the load")
    parser.add_argument("--soak", type=int, default=0, help="seconds of mixed load; 0 leaves the soak out")
    options = parser.parse_args()
    if os.geteuid() == 0 and "DESKGATE_FAULTS_NAMESPACE" not in os.environ:
        # File systems that a trial mounts are visible to no other process and end with this one.
        os.environ["DESKGATE_FAULTS_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable, *sys.argv])
    options.program = str(pathlib.Path(options.program or build()).resolve())
    names = options.only or [name for name in TRIALS if name != "soak" or options.soak]
    rows = [trial(name, options) for name in names]
    print_table(rows)
    return any(row["failed"] for row in rows)


def build():
    subprocess.run(["cargo", "build", "--release", "--locked"], cwd=REPOSITORY, check=True)
    target = os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")
    return pathlib.Path(target) / "release" / "deskgate"


def trial(name, options):
    print(f"{name} …", file=sys.stderr, flush=True)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deskgate-faults-") as folder:
        try:
            row = asyncio.run(TRIALS[name](options, pathlib.Path(folder)))
        except Fault as fault:
            row = {"tried": 0, "acknowledged": 0, "lost": 0, "note": f"not done: {fault}", "failed": True}
    return {"name": name, "seconds": time.monotonic() - begun, "failed": row["lost"] > 0, **row}


def print_table(rows):
    print("| fault | tried | acknowledged | lost | seconds | what was seen |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        mark = "**failed**: " if row["failed"] else ""
        print(f"| {row['name']} | {row['tried']} | {row['acknowledged']} | {row['lost']} | {row['seconds']:.1f} "
              f"| {mark}{row['note']} |")


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(HERE))
    sys.exit(main())
