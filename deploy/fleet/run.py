"""Starts a fleet for a person to try: Redis Cluster, PostgreSQL, three gateways and a balancer, on one machine.

    run.py [--program FILE] [--gateways 3] [--drill]

Prints what to open and what to kill, and removes everything when it is stopped with Ctrl-C. With --drill it puts load on the
fleet, kills and pauses parts of it, checks that nothing was lost and nobody admitted, and ends by itself.
"""

import argparse
import pathlib
import shutil
import signal
import sys
import tempfile

import drill
from parts import Balancer, Gateways, PartFault, Postgres, RedisCluster, REPOSITORY, free_ports


class Fleet:
    """All parts, started in order and stopped in reverse."""

    def __init__(self, program, gateways=3, settings=(), report=lambda _: None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="deskgate-fleet-"))
        self.program, self.count, self.settings = pathlib.Path(program).resolve(), gateways, settings
        self.report, self.started = report, []

    def __enter__(self):
        try:
            (port,) = free_ports(1)
            self.redis = self.part("Redis Cluster: three primaries, three replicas", RedisCluster(self.folder))
            self.postgres = self.part("PostgreSQL", Postgres(self.folder))
            self.gateways = self.part(f"{self.count} gateways", Gateways(
                self.program, self.folder, self.count, port, self.redis.url, self.postgres.url, self.settings))
            self.balancer = self.part("nginx as the balancer", Balancer(self.folder, port, self.gateways.ports))
        except BaseException:
            self.__exit__(keep_files=True)
            raise
        return self

    def part(self, name, part):
        self.report(f"starting {name} ...")
        self.started.append(part)
        part.start()
        return part

    def __exit__(self, *_, keep_files=False):
        for part in reversed(self.started):
            part.stop()
        if not keep_files:
            shutil.rmtree(self.folder, ignore_errors=True)


def print_welcome(fleet):
    gateways, url = fleet.gateways, fleet.gateways.public_url
    print(f"""
The fleet is running. Press Ctrl-C to stop it and remove its data.

  Open     {url}/api/auth/signin?client=h5       (through the balancer)

  Curl     TOKEN=$(curl -s {url}/api/dev/login -H 'Content-Type: application/json' \\
             -d '{{"employee_id":"a2001"}}' | python3 -c 'import json,sys; print(json.load(sys.stdin)["data"]["token"])')
           curl -s {url}/api/auth/me -H "Authorization: Bearer $TOKEN"

  Operate  {fleet.program} fleet --config {gateways.config}

  Kill     a gateway, a Redis primary, and see that nobody notices:""")
    for number, gateway in enumerate(gateways.gateways):
        print(f"             kill -9 {gateway.pid:<8} gateway {number + 1}: http://127.0.0.1:{gateways.ports[number]}, "
              f"metrics http://127.0.0.1:{gateways.admin_ports[number]}/metrics")
    for server, port in fleet.redis.primaries():
        print(f"             kill -9 {server.pid:<8} Redis primary on port {port}; kill -STOP and -CONT pause it")
    print(f"             kill -9 {fleet.postgres.server.pid:<8} PostgreSQL on port {fleet.postgres.port}")
    print(f"\n  Logs     {fleet.folder}/*.log\n", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(REPOSITORY / "target/debug/deskgate"))
    parser.add_argument("--gateways", type=int, default=3)
    parser.add_argument("--drill", action="store_true", help="kill and pause parts under load, check the answers, and end")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with Fleet(options.program, options.gateways, report=lambda line: print(line, flush=True)) as fleet:
            print_welcome(fleet)
            if options.drill:
                faults = drill.run(fleet, lambda line: print(line, flush=True))
                print("\n".join(faults) or "nothing was lost and nobody was admitted")
                return 1 if faults else 0
            while True:
                signal.pause()
    except KeyboardInterrupt:
        return 0
    except PartFault as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
