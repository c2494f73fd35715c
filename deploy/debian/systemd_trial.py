"""Installs, runs, upgrades and removes the Debian package under a systemd of its own.

    systemd_trial.py --program FILE

Needs root and systemd. Boots this machine's systemd in namespaces of its own (processes, mounts, network) on a copy of the file system:
nothing of it is left behind, and this machine stays as it is. Requests go to the gateway all the time, each on a connection of its own.
Prints what it does, and ends with 1 if anything is not as it should be.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import trial
from trial import AUDIT, CONFIG, Fault, dpkg, must, owner_and_mode, run, wait_for

SYSTEMD = "/lib/systemd/systemd"
SERVICE = "deskgate.service"
URL = "https://desk.example.com:8443/version"
CURL = ["curl", "--silent", "--show-error", "--fail", "--max-time", "30", "--resolve", "desk.example.com:8443:127.0.0.1",
        "--cacert", "/etc/deskgate/tls.crt", URL]

# Nothing else is booted: no journal, and none of the targets that services usually wait for.
ALONE = "[Unit]\nDefaultDependencies=no\n"
UNITS = {
    "trial.target": f"{ALONE}AllowIsolate=yes\nRequires=trial.service\nAfter=trial.service\n",
    "trial.service": f"{ALONE}[Service]\nType=oneshot\nTimeoutStartSec=300\nStandardOutput=append:/mnt/output\nStandardError=append:/mnt/output\n",
    "deskgate.socket.d/trial.conf": ALONE,
    "deskgate.service.d/trial.conf": f"{ALONE}After=\nAfter=deskgate.socket\nWants=\n[Service]\nStandardError=append:/mnt/gateway.log\n",
}


class Load(threading.Thread):
    """Sends requests, one after the other."""

    def __init__(self):
        super().__init__(daemon=True)
        self.count, self.faults, self.longest, self.is_over = 0, [], 0.0, False
        self.start()

    def run(self):
        while not self.is_over:
            began = time.monotonic()
            done = subprocess.run(CURL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            self.longest = max(self.longest, time.monotonic() - began)
            self.count += 1
            if done.returncode:
                self.faults.append(done.stderr.strip())

    def stop(self):
        self.is_over = True
        self.join()
        text = f"{self.count} requests, {len(self.faults)} failed, the longest took {self.longest:.1f} s"
        must(self.count > 0 and not self.faults, f"{text} {self.faults[:3] or ''}".rstrip())


def shown(*properties):
    """Properties of the service."""
    command = ["systemctl", "show", SERVICE, *(f"--property={name}" for name in properties)]
    text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    values = dict(line.split("=", 1) for line in text.splitlines())
    return [values[name] for name in properties]


def main_process():
    return int(shown("MainPID")[0])


def steps(old, new):
    print("install")
    dpkg("--install", old)
    must(shown("ActiveState") == ["inactive"], "the example configuration does not start a gateway")

    print("configure, and start as the package says")
    trial.write_configuration(listen=None)
    run("systemctl", "enable", "--now", "deskgate.socket", SERVICE)
    must(shown("ActiveState", "SubState", "Type") == ["active", "running", "notify"], "the service runs and has reported that it is ready")
    print(f"    {json.dumps(json.loads(run(*CURL))['data'])}")
    status = pathlib.Path(f"/proc/{main_process()}/status").read_text()
    restricted = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    must((restricted["CapEff"], restricted["NoNewPrivs"], restricted["Seccomp"]) == ("0" * 16, "1", "2"), "it has no capability and a filter")
    must(owner_and_mode("/var/log/deskgate") == "deskgate:deskgate 700", "/var/log/deskgate belongs to deskgate alone")
    run("deskgate", "employee", "add", "e1", "--name", "Test", "--config", CONFIG)
    must("e1" in pathlib.Path(AUDIT).read_text(), "the audit log is a file")
    print(run("deskgate", "status", "--config", CONFIG))

    print("reload five times, and rotate the audit log")
    load, before = Load(), main_process()
    for _ in range(5):
        run("systemctl", "reload", SERVICE)
    run("logrotate", "--force", "/etc/logrotate.d/deskgate")
    wait_for(lambda: AUDIT in trial.opened_files(before), "logrotate makes the gateway open the new file")
    must(main_process() == before, "the process is the same")
    load.stop()

    print("upgrade")
    load = Load()
    dpkg("--install", new)
    must(main_process() not in (0, before), "the new version runs")
    must("Test" in run("deskgate", "employee", "list", "--config", CONFIG), "it has the employees of the old one")
    load.stop()

    print("refuse to upgrade a gateway to a configuration that the new version does not accept")
    before, text = main_process(), pathlib.Path(CONFIG).read_text()
    pathlib.Path(CONFIG).write_text(text + "\n[nonsense]\n")
    load = Load()
    must("was not restarted" in dpkg("--install", old), "the package says that it has not restarted the gateway")
    must(main_process() == before, "the running gateway goes on")
    load.stop()
    pathlib.Path(CONFIG).write_text(text)

    print("crash")
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: shown("ActiveState") == ["active"] and main_process() not in (0, before), "systemd starts it again")
    run(*CURL)

    print("stop, and start by a connection")
    run("systemctl", "stop", SERVICE)
    must(shown("ActiveState", "Result", "ExecMainStatus") == ["inactive", "success", "0"], "the gateway has ended with 0")
    run(*CURL)
    must(shown("ActiveState") == ["active"], "a connection has started it again")

    print("remove and purge")
    dpkg("--remove", "deskgate")
    must(shown("ActiveState") == ["inactive"] and pathlib.Path(CONFIG).exists(), "a removal stops the gateway and keeps the configuration")
    run(*CURL, expect=7)
    dpkg("--purge", "deskgate")
    must(not list(pathlib.Path("/etc/systemd/system").rglob("*.wants/deskgate*")), "no unit is left enabled")
    must(not pathlib.Path("/var/log/deskgate").exists() and not pathlib.Path("/var/lib/deskgate").exists(), "a purge removes the data")


def inside():
    """Runs the trial as a service of the systemd that was booted."""
    status = 1
    try:
        run("ip", "link", "set", "lo", "up")
        began = time.monotonic()
        steps(*sorted(pathlib.Path("/mnt").glob("deskgate_*.deb")))
        print(f"all as it should be, in {time.monotonic() - began:.0f} s", flush=True)
        status = 0
    except Fault as fault:
        log = pathlib.Path("/mnt/gateway.log")
        state = subprocess.run(["systemctl", "status", "--no-pager", SERVICE], stdout=subprocess.PIPE, text=True).stdout
        print(f"failed: {fault}\n{state}\n{log.read_text()[-1000:] if log.exists() else ''}", flush=True)
    finally:
        subprocess.run(["systemctl", "exit", str(status)])


BOOT = """
    set -e
    mount --make-rprivate /
    root=$1/root
    mount -t tmpfs trial "$1/changes"
    mkdir "$1/changes/upper" "$1/changes/work"
    mount -t overlay -o "lowerdir=/,upperdir=$1/changes/upper,workdir=$1/changes/work" overlay "$root"
    mount -t proc proc "$root/proc"
    for part in dev sys; do mount --rbind "/$part" "$root/$part"; done
    for part in run tmp; do mount -t tmpfs "$part" "$root/$part"; done
    mount --bind "$1/shared" "$root/mnt"
    mount --bind "$1/shared/console" "$root/dev/console"
    cp -r "$1/units/." "$root/etc/systemd/system/"
    # With which container images forbid packages to start services.
    rm -f "$root/usr/sbin/policy-rc.d"
    # Not chroot, in which no user namespace can be made, as the unit's PrivateUsers= does.
    cd "$root"
    mkdir -p tmp/old
    pivot_root . tmp/old
    exec env -i container=deskgate-trial PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        /lib/systemd/systemd --system --unit=trial.target --log-target=console </dev/null
"""


def boot(program):
    """Boots systemd, shows what the trial prints, and returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="deskgate-trial-") as folder:
        folder = pathlib.Path(folder)
        for name in ("changes", "root", "shared", "units"):
            (folder / name).mkdir()
        shared = folder / "shared"
        for release in ("0.0.1-1", "0.0.2-1"):
            trial.build.build(program, release, shared, "none")
        for name in ("output", "console"):
            (shared / name).touch()
        command = f"{sys.executable} -B {pathlib.Path(__file__).resolve()} --program {program} --inside"
        for name, text in UNITS.items():
            unit = folder / "units" / name
            unit.parent.mkdir(exist_ok=True)
            unit.write_text(text + (f"ExecStart={command}\n" if name == "trial.service" else ""))
        namespaces = ["--mount", "--pid", "--fork", "--uts", "--ipc", "--net", "--cgroup", "--kill-child"]
        console = (shared / "console").open("w")
        booted = subprocess.Popen(["unshare", *namespaces, "sh", "-c", BOOT, "sh", str(folder)], stdout=console, stderr=console)
        with (shared / "output").open() as output:
            while True:
                has_ended = booted.poll() is not None
                sys.stdout.write(output.read())
                sys.stdout.flush()
                if has_ended:
                    break
                time.sleep(0.2)
        if booted.returncode:
            print((shared / "console").read_text()[-4000:])
        return booted.returncode


def main():
    parser = argparse.ArgumentParser(description="Tries the Debian package under a systemd of its own.")
    parser.add_argument("--program", type=pathlib.Path, required=True, help="a deskgate, built without the feature `demo`")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        return inside()
    if os.geteuid() != 0 or not pathlib.Path(SYSTEMD).exists():
        sys.exit("this needs root and systemd")
    sys.exit(boot(args.program.resolve()))


if __name__ == "__main__":
    main()
