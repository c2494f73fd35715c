#!/usr/bin/env python3
"""Runs the slow and third-party checks of `make test-extra`.

Installs the tools into a virtual environment in the target directory. WeCom client libraries call the simulated
platform of a `deskgate demo`, schemathesis checks a gateway against its OpenAPI document, grpcio calls a service through a
gateway, and a timing test compares sign-in times. Exit code 1 if a check fails.
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


def platform_clients(python, program):
    command = [program, "demo", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        try:
            ready = next(line for line in demo.stdout if line.startswith("ready "))
            addresses = dict(word.split("=", 1) for word in ready.split()[1:])
            platform = f"http://{addresses['platform']}"
            result = subprocess.run([python, HERE / "platform_clients.py", platform], check=False)
        finally:
            demo.terminate()
    return result.returncode


def openapi_conformance(python, program):
    return subprocess.run([python, HERE / "openapi_conformance.py", program], check=False).returncode


def grpc_calls(python, program):
    return subprocess.run([python, HERE / "grpc_calls.py", program], check=False).returncode


def timing(_, program):
    return subprocess.run([sys.executable, HERE / "timing.py", program], check=False).returncode


def documentation(python, _):
    """The console blocks of the docs that need PyJWT: tests/docs.rs skips them where it is missing."""
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    command = ["cargo", "test", "--locked", "--quiet", "--test", "docs", "console_blocks"]
    return subprocess.run(command, cwd=HERE.parent.parent, env={**os.environ, "PATH": path}, check=False).returncode


def main():
    python, program = environment(), TARGET / "debug" / "deskgate"
    checks = (platform_clients, openapi_conformance, grpc_calls, documentation, timing)
    failed = [check.__name__ for check in checks if check(python, program) != 0]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
