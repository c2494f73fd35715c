#!/usr/bin/env python3
"""What `make test-extra` runs: clients that others wrote, against the demo, and what takes its time to measure.

Installs them into a virtual environment beside what was built, starts `deskgate demo` on free ports, and ends it.
Exit code 1 if anything is not as it should be.
"""

import os
import pathlib
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target"))


def environment():
    folder = TARGET / "extra-venv"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*install, "-r", HERE / "requirements.txt"], check=True)
    return python


def main():
    python = environment()
    command = [TARGET / "debug" / "deskgate", "demo", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        try:
            ready = next(line for line in demo.stdout if line.startswith("ready "))
            places = dict(word.split("=", 1) for word in ready.split()[1:])
            platform = f"http://{places['platform']}"
            ran = subprocess.run([python, HERE / "platform_clients.py", platform], check=False)
        finally:
            demo.terminate()
    timed = subprocess.run([sys.executable, HERE / "timing.py", TARGET / "debug" / "deskgate"], check=False)
    sys.exit(ran.returncode or timed.returncode)


if __name__ == "__main__":
    main()
