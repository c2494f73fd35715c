"""Installs, starts, upgrades, removes and purges the Debian package in a copy of this machine's file system.

    trial.py --program FILE

Needs root. The copy is an overlay in a mount namespace of its own: nothing of it is left behind, and this machine stays as it is. No
systemd runs in there, so the gateway is started with the command line of its unit, as the unit's user. Prints what it does, and ends
with 1 if anything is not as it should be.
"""

import argparse
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import build  # noqa: E402

CONFIG = "/etc/deskgate/deskgate.toml"
DATA = "/var/lib/deskgate"
AUDIT = "/var/log/deskgate/audit.log"
INSIDE = "DESKGATE_TRIAL_INSIDE"


class Fault(Exception):
    """Something is not as it should be."""


def run(*command, expect=0, **options):
    """Runs a command, prints it and returns what it printed."""
    print(f"  $ {shlex.join(map(str, command))}", flush=True)
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != expect:
        raise Fault(f"exit code {done.returncode} instead of {expect}:\n{done.stdout}")
    return done.stdout


def must(condition, what):
    if not condition:
        raise Fault(f"not true: {what}")
    print(f"    {what}")


def wait_for(condition, what):
    end = time.monotonic() + 10
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    must(condition(), what)


def opened_files(process):
    """The files that a process has open. A renamed file has its new name here."""
    return [os.readlink(link) for link in pathlib.Path(f"/proc/{process}/fd").iterdir() if link.is_symlink()]


def owner_and_mode(path):
    return run("stat", "--format=%U:%G %a", path).strip()


def dpkg(*arguments):
    return run("dpkg", *arguments, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def write_configuration(listen="127.0.0.1:0"):
    """Turns the example into a configuration for this machine: secret, certificate, and these addresses unless it keeps its own."""
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout", "/etc/deskgate/tls.key", "-out", "/etc/deskgate/tls.crt"]
    run("openssl", "req", "-x509", "-days", "30", "-subj", "/CN=desk.example.com", "-addext", "subjectAltName=DNS:desk.example.com", *key)
    pathlib.Path("/etc/deskgate/wecom.secret").write_text("not a secret\n")
    run("chown", "root:deskgate", "/etc/deskgate/tls.key", "/etc/deskgate/wecom.secret")
    run("chmod", "0640", "/etc/deskgate/tls.key", "/etc/deskgate/wecom.secret")
    config = pathlib.Path(CONFIG)
    text = config.read_text()
    if listen:
        text = text.replace('"0.0.0.0:8443"', f'"{listen}"').replace("[server]", f'[server]\nadmin_listen = "{listen}"')
    config.write_text(text + f'\n[audit]\noutput = "file"\nfile = "{AUDIT}"\nrotate_bytes = 0\n')


class Gateway:
    """The gateway, started with the command line of the unit as the unit's user."""

    def __init__(self):
        unit = pathlib.Path("/lib/systemd/system/deskgate.service").read_text()
        setting = dict(re.findall(r"^(ExecStart|ExecStartPre|User)=(.*)$", unit, re.MULTILINE))
        user = ["runuser", "-u", setting["User"], "--"]
        run(*user, *shlex.split(setting["ExecStartPre"]))
        command = [*user, *shlex.split(setting["ExecStart"])]
        print(f"  $ {shlex.join(command)} &", flush=True)
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("ready "):
            self.log.seek(0)
            raise Fault(f"the gateway does not start: {self.log.read()}")
        words = dict(word.split("=", 1) for word in line.split()[1:])
        self.address, self.id = words["listen"], int(words["pid"])

    def version(self):
        """The answer of /version over TLS."""
        port = self.address.rsplit(":", 1)[1]
        resolve = ["--resolve", f"desk.example.com:{port}:127.0.0.1", "--cacert", "/etc/deskgate/tls.crt"]
        return json.loads(run("curl", "--silent", "--show-error", *resolve, f"https://desk.example.com:{port}/version"))

    def stop(self):
        os.kill(self.id, signal.SIGTERM)
        must(self.process.wait(timeout=60) == 0, "the gateway ends with 0 on SIGTERM")


def trial(old, new, symbols):
    print("install")
    text = dpkg("--install", old)
    must("installed and not started" in text and "must edit first" in text, "the example configuration does not start a gateway")
    must(owner_and_mode(DATA) == "deskgate:deskgate 700", f"{DATA} belongs to deskgate alone")
    must(owner_and_mode("/etc/deskgate") == "root:deskgate 750", "/etc/deskgate can be read by deskgate only")
    must(not list(pathlib.Path("/etc/systemd/system").glob("*.wants/deskgate*")), "the service is not enabled")
    for page in ("deskgate", "deskgate-serve", "deskgate.toml"):
        must(len(run("man", "--pager=cat", page, env={**os.environ, "MANWIDTH": "80"})) > 500, f"man {page}")
    check = ["runuser", "-u", "deskgate", "--", "deskgate", "check", "--config", CONFIG]
    run(*check, expect=1)

    print("configure and start")
    write_configuration()
    must("ok: " in run(*check), "the configuration passes the check")
    gateway = Gateway()
    print(f"    {json.dumps(gateway.version())}")
    run("runuser", "-u", "deskgate", "--", "deskgate", "employee", "add", "e1", "--name", "Test", "--config", CONFIG)
    files = run("find", DATA, "!", "-user", "deskgate", "-o", "-perm", "/077", "!", "-type", "l").strip()
    must(not files, "everything in the data directory belongs to deskgate and is closed to others")

    print("rotate the audit log")
    records = pathlib.Path(AUDIT).read_text()
    must("e1" in records and owner_and_mode(AUDIT) == "deskgate:deskgate 600", "the audit log is a file that deskgate alone can read")
    run("logrotate", "--force", "/etc/logrotate.d/deskgate")
    must(pathlib.Path(f"{AUDIT}.1").read_text() == records, "logrotate has renamed it")
    os.kill(gateway.id, signal.SIGHUP)
    wait_for(lambda: str(pathlib.Path(AUDIT)) in opened_files(gateway.id), "the gateway opens the new one after SIGHUP")
    run("runuser", "-u", "deskgate", "--", "deskgate", "employee", "disable", "e1", "--config", CONFIG)
    must("e1" in pathlib.Path(AUDIT).read_text() and pathlib.Path(f"{AUDIT}.1").read_text() == records, "records go to the new one")

    print("upgrade")
    text = dpkg("--install", new)
    must("not started" not in text, "an upgrade does not talk about the configuration")
    must("Test" in run("deskgate", "employee", "list", "--config", CONFIG), "the running gateway goes on")
    must("127.0.0.1:0" in pathlib.Path(CONFIG).read_text(), "the changed configuration is kept")
    gateway.stop()
    gateway = Gateway()
    must("Test" in run("deskgate", "employee", "list", "--config", CONFIG), "the new version has the employees of the old one")
    gateway.stop()

    print("symbols")
    dpkg("--install", symbols)
    identity = build.symbols.build_id("/usr/bin/deskgate")
    debug = f"/usr/lib/debug/.build-id/{identity[:2]}/{identity[2:]}.debug"
    listed = subprocess.run(["nm", "--demangle", debug], stdout=subprocess.PIPE, text=True, check=True).stdout
    address = re.search(r"^([0-9a-f]+) t deskgate::cli::run$", listed, re.MULTILINE).group(1)
    if pathlib.Path("/usr/bin/gdb").exists():
        found = run("gdb", "--batch", "-ex", f"info line *0x{address}", "/usr/bin/deskgate")
        must("src/cli.rs" in found, "a debugger finds them")
    else:
        print("    gdb is not installed: not tried")

    print("install on a machine that is configured already")
    dpkg("--remove", "deskgate-dbgsym", "deskgate")
    must(pathlib.Path(CONFIG).exists() and pathlib.Path(DATA, "directory.db").exists(), "a removal keeps configuration and data")
    must(not pathlib.Path("/usr/bin/deskgate").exists(), "a removal removes the program")
    dpkg("--install", new)
    gateway = Gateway()
    gateway.stop()

    print("purge")
    configured = pathlib.Path(CONFIG).read_text()
    dpkg("--purge", "deskgate")
    must(not pathlib.Path(DATA).exists() and not pathlib.Path("/var/log/deskgate").exists(), "a purge removes the data")
    must(not pathlib.Path(CONFIG).exists(), "a purge removes the configuration")
    must(sorted(os.listdir("/etc/deskgate")) == ["tls.crt", "tls.key", "wecom.secret"], "a purge leaves the files of the operator")
    must(not list(pathlib.Path("/etc/systemd/system").rglob("deskgate*")), "no unit is left enabled")

    print("install with a configuration that passes the check")
    pathlib.Path(CONFIG).write_text(configured)
    text = run("dpkg", "--force-confold", "--install", new, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    must("not started" not in text, "nothing needs to be edited")
    must(list(pathlib.Path("/etc/systemd/system").glob("*.wants/deskgate.service")), "the service is enabled")
    dpkg("--purge", "deskgate")
    must(not list(pathlib.Path("/etc/systemd/system").rglob("deskgate*")), "no unit is left enabled")


def inside(program, folder):
    """Runs the trial, as root of the copy."""
    folder = pathlib.Path(folder)
    old, _ = build.build(program, "0.0.1-1", folder, "none")
    new, symbols = build.build(program, "0.0.2-1", folder, "none")
    started = time.monotonic()
    trial(old, new, symbols)
    print(f"all as it should be, in {time.monotonic() - started:.0f} s")


def main():
    parser = argparse.ArgumentParser(description="Tries the Debian package in a copy of this machine's file system.")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="a deskgate, built without the feature `demo`")
    args = parser.parse_args()
    if os.environ.get(INSIDE):
        try:
            return inside(args.program.resolve(), os.environ[INSIDE])
        except Fault as fault:
            sys.exit(f"failed: {fault}")
    if os.geteuid() != 0:
        sys.exit("root is needed to mount a copy of the file system")
    with tempfile.TemporaryDirectory(prefix="deskgate-trial-") as folder:
        # A file system in memory holds what changes; the namespace takes both along when it ends.
        script = """
            set -e
            mount -t tmpfs trial "$1"
            mkdir "$1/upper" "$1/work" "$1/root" "$1/packages"
            mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
            for part in proc dev sys; do mount --rbind "/$part" "$1/root/$part"; done
            mount -t tmpfs run "$1/root/run"
            mount --bind "$1/packages" "$1/root/mnt"
            root=$1; shift
            exec env DESKGATE_TRIAL_INSIDE=/mnt chroot "$root/root" "$@"
        """
        command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--program", str(args.program.resolve())]
        sys.exit(subprocess.run(["unshare", "--mount", "sh", "-c", script, "sh", folder, *command]).returncode)


if __name__ == "__main__":
    main()
