#!/usr/bin/env python3
"""`make bench`: compares deskgate with nginx, nginx with Lua, HAProxy, Envoy and bare Pingora.

The figure is the CPU time of the proxy's processes per completed request, because throughput and latency are unstable on
shared machines. All contestants of a workload take turns within one run, because conditions differ between runs; shown are
medians of the rounds and of the ratios within each round. A contestant that is not installed, or that cannot do a workload,
is left out. Prints tables; writes bench.json and bench.svg into cargo's target folder.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True

import chart
import contestants
import envoy
import growth
import memory
import report
import summary
import workloads
from place import Place, build_bare_proxy, build_deskgate
from progress import Progress
from quiet import Host
from rounds import number_of_turns
from servers import CORES, LOAD_CORES, REPOSITORY, Fault, find_program, target_folder

OTHERS = {
    "sockets": memory.measure_sockets, "echo": memory.measure_echo, "idle": memory.measure_idle,
    "sessions": growth.measure_sessions, "rules": growth.measure_rules, "signin": memory.measure_signin,
}
# Of a result that is published.
FEWEST_ROUNDS = 9
DESKGATE_ONLY = ("sessions", "rules", "signin")
WORKLOADS = [*(workload.key for workload in workloads.REQUESTS), *OTHERS]


@dataclasses.dataclass
class Run:
    """What the workloads need to know."""

    place: Place
    contestants: list
    rounds: int
    seconds: int
    largest: int
    progress: Progress
    host: Host = dataclasses.field(default_factory=Host)

    def sizes(self, numbers):
        return [number for number in numbers if number <= self.largest]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join([*WORKLOADS, *(contestant.key for contestant in contestants.CONTESTANTS)])
    parser.add_argument("--only", action="append", default=[], metavar="NAME[,NAME…]",
                        help=f"only these workloads, only these contestants: {names}")
    parser.add_argument("--rounds", type=int, default=FEWEST_ROUNDS, help=f"rounds per workload (default: {FEWEST_ROUNDS})")
    parser.add_argument("--seconds", type=int, default=1, help="seconds per turn (default: 1)")
    parser.add_argument("--largest", type=int, default=1_000_000, help="most sessions, and most rules (default: 1,000,000)")
    parser.add_argument("--program", help="a deskgate that was built already, else it is built as `make release` does")
    parser.add_argument("--bare-proxy", help="a bare_proxy that was built already")
    parser.add_argument("--earlier", help="an earlier deskgate to compare Pingora's lane with")
    parser.add_argument("--threads", type=int, default=1,
                        help="deskgate's worker threads (default: 1, as all contestants have)")
    parser.add_argument("--docs", action="store_true", help="write the results into docs/benchmarks.md")
    parser.add_argument("--results", type=pathlib.Path, metavar="FILE", help="measure nothing, show a bench.json")
    options = parser.parse_args()
    if options.docs and not options.results and options.rounds < FEWEST_ROUNDS:
        parser.error(f"--docs takes at least {FEWEST_ROUNDS} rounds")
    for name in ("program", "bare_proxy", "earlier"):
        if getattr(options, name):
            setattr(options, name, os.path.abspath(getattr(options, name)))
    options.only = [name for names in options.only for name in names.split(",") if name]
    unknown = set(options.only) - set(WORKLOADS) - {contestant.key for contestant in contestants.CONTESTANTS}
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {names}")
    return options


def selected(options):
    """The workloads and contestants that `--only` leaves."""
    wanted_workloads = [name for name in WORKLOADS if name in options.only] or WORKLOADS
    named = [contestant for contestant in contestants.CONTESTANTS if contestant.key in options.only]
    return wanted_workloads, named or list(contestants.CONTESTANTS)


def available(named, place, notes):
    """The contestants that can take part; why others cannot is added to the notes."""
    reasons = {}
    if contestants.lua_module() is None:
        reasons |= {key: "nginx's Lua module is not installed" for key in ("lua", "lua-hs256")}
    if find_program("haproxy") is None:
        reasons["haproxy"] = "HAProxy is not installed"
    if place.earlier is None:
        reasons["deskgate-earlier"] = None
    if any(contestant.key == "envoy" for contestant in named):
        place.envoy, reason = envoy.find(target_folder())
        if place.envoy is None:
            reasons["envoy"] = reason
    for contestant in named:
        if reasons.get(contestant.key):
            notes.append(f"Without {contestant.title}: {reasons[contestant.key]}.")
    return [contestant for contestant in named if contestant.key not in reasons]


def possible(wanted, notes):
    """The workloads that this machine can do."""
    left_out = {}
    if find_program("h2load") is None:
        left_out["http2"] = "h2load is not installed"
    if contestants.lua_module() is None:
        left_out |= {one.key: "nginx's Lua module is not installed" for one in workloads.REQUESTS if workloads.needs_lua(one)}
    notes += [f"Without the workload {key}: {reason}." for key, reason in left_out.items() if key in wanted]
    return [key for key in wanted if key not in left_out]


def without_deskgate(wanted):
    """The workloads that are not about deskgate alone."""
    return [key for key in wanted if key not in DESKGATE_ONLY]


def turns(wanted, taking_part, rounds, largest):
    """How many turns the workloads have, for the progress bar."""
    keys = [contestant.key for contestant in taking_part]
    total = sum(number_of_turns([key for key in keys if key in one.contestants], rounds, one.often)
                for one in workloads.REQUESTS if one.key in wanted)
    in_all = [key for key in keys if key in workloads.ALL]
    total += sum(min(rounds, memory.MEMORY_ROUNDS) * len(in_all) for key in ("sockets", "idle") if key in wanted)
    total += number_of_turns(in_all, rounds, memory.ECHO_OFTEN) if "echo" in wanted else 0
    for key, all_sizes in (("sessions", growth.SESSIONS), ("rules", growth.RULES)):
        sizes = [size for size in all_sizes if size <= largest]
        total += number_of_turns(sizes, rounds, growth.often_of(sizes)) if key in wanted else 0
    return total + ("signin" in wanted)


def measure(options, wanted, named, notes):
    """Runs the workloads. Returns their results and the contestants that took part."""
    program, bare_proxy = options.program or build_deskgate(), options.bare_proxy
    if bare_proxy is None and any(contestant.key == "bare" for contestant in named):
        bare_proxy = build_bare_proxy()
    os.sched_setaffinity(0, LOAD_CORES)
    with tempfile.TemporaryDirectory(prefix="deskgate-bench-") as name:
        place = Place(pathlib.Path(name), program, bare_proxy, earlier=options.earlier, threads=options.threads).prepare()
        taking_part, wanted = available(named, place, notes), possible(wanted, notes)
        if not any(contestant.is_deskgate for contestant in taking_part):
            wanted = without_deskgate(wanted)
        progress = Progress(turns(wanted, taking_part, options.rounds, options.largest))
        run = Run(place, taking_part, options.rounds, options.seconds, options.largest, progress)
        requests = [workload for workload in workloads.REQUESTS if workload.key in wanted]
        results = workloads.measure_requests(run, requests) if requests else []
        results += [measure_other(run) for key, measure_other in OTHERS.items() if key in wanted]
        progress.end()
        notes += run.host.notes()
        return [result for result in results if result["rows"]], taking_part, versions(program, place)


def first_number(command):
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    found = re.search(r"\d+\.\d+(\.\d+)?", output)
    return found.group() if found else "?"


def versions(program, place):
    found = {"deskgate": first_number([program, "--version"]), "nginx": first_number([find_program("nginx"), "-v"])}
    if find_program("haproxy"):
        found["HAProxy"] = first_number([find_program("haproxy"), "-v"])
    if place.envoy:
        found["Envoy"] = first_number([place.envoy, "--version"]) if find_program("envoy") else envoy.VERSION
    return found


def machine(load):
    cpu = [line.partition(":")[2].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
           if line.startswith("model name")]
    return {"cpu": cpu[0] if cpu else platform.processor(), "cores": len(CORES), "kernel": platform.release(), "load_before": load}


def allow_files():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def results_of(options):
    """Measures everything that was chosen."""
    started, load, notes = time.monotonic(), os.getloadavg()[0], []
    wanted, named = selected(options)
    measured, taking_part, used = measure(options, wanted, named, notes)
    targets = [verdict for target in workloads.TARGETS if (verdict := summary.verdict(target, measured))]
    tokens = {contestant.key: {"title": contestant.title, "tokens": contestant.tokens} for contestant in taking_part}
    return {
        "date": datetime.date.today().isoformat(), "seconds": round(time.monotonic() - started), "machine": machine(load),
        "versions": used, "options": {"rounds": options.rounds, "seconds": options.seconds}, "contestants": tokens,
        "notes": notes, "targets": targets, "workloads": measured,
    }


def main():
    options = arguments()
    if options.results:
        results = json.loads(options.results.read_text())
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        allow_files()
        results = results_of(options)
    print(report.text(results))
    if not options.results:
        out = target_folder()
        out.mkdir(parents=True, exist_ok=True)
        (out / "bench.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
        (out / "bench.svg").write_text(chart.draw(report.compared(results)))
        print(f"{results['seconds']} s on {len(CORES)} cores, load average {results['machine']['load_before']:.1f} at the start (the"
              f" lower, the more accurate); all figures are in {out}/bench.json, the chart in bench.svg")
    if options.docs:
        report.write_docs(results, REPOSITORY / "docs")


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"bench: {fault}")
    except KeyboardInterrupt:
        sys.exit(130)
