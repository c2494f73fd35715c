#!/usr/bin/env python3
"""Runs the checks of `make deploy-check`: what is under deploy/ against the schemas and programs of others.

Installs the tools into the target directory: Helm as a library and the schemas of Kubernetes from PyPI, the types of Grafana and the
schemas of the Prometheus operator from npm. Exit code 1 if a check fails.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import venv

HERE = pathlib.Path(__file__).resolve().parent
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", HERE.parent.parent / "target")) / "deployment"


def python():
    program = TARGET / "venv" / "bin" / "python"
    if not program.exists():
        venv.create(TARGET / "venv", with_pip=True)
    # helm-sdkpy asks for Python 3.12 and works with the 3.11 of Debian 12.
    install = [program, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--ignore-requires-python"]
    subprocess.run([*install, "-r", HERE / "requirements.txt"], check=True)
    return program


def node():
    folder = TARGET / "node"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "operator_schemas.mjs"):
        shutil.copy(HERE / name, folder / name)
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=folder, check=True)
    return folder


def main():
    program, folder = python(), node()
    rendered = TARGET / "operator.json"
    checks = {
        "manifests and chart": [program, HERE / "kubernetes.py", rendered],
        "resources of the Prometheus operator": ["node", folder / "operator_schemas.mjs", rendered],
        "dashboard": [sys.executable, HERE / "dashboard_types.py", folder],
    }
    failed = [name for name, command in checks.items() if subprocess.run(command, check=False).returncode != 0]
    print("failed: " + ", ".join(failed) if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
