"""Tests of the benchmark that take no measurement: arithmetic, tables, chart, and whether the programs accept their
configurations. `tests/docs.rs` runs them; DESKGATE names the program."""

import contextlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.dom.minidom
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))

import chart
import compare
import contestants
import envoy
import growth
import progress
import quiet
import report
import rounds
import summary
import tokens
import traffic
import workloads
from place import Place
from servers import REPOSITORY, Fault, find_program

NGINX = [10.0, 20.0, 40.0]
DESKGATE = [9.0, 30.0, 36.0]
H2LOAD = """Application protocol: h2

finished in 1.01s, 25068.00 req/s, 28.12MB/s
requests: 25068 total, 25132 started, 25068 done, {good} succeeded, {bad} failed, 0 errored, 0 timeout
status codes: {good} 2xx, 0 3xx, {bad} 4xx, 0 5xx
"""


def results():
    titles = {"nginx": "nginx <plain>", "deskgate": "deskgate"}
    values = {"nginx": NGINX, "deskgate": DESKGATE}
    one = summary.workload_of("one", "One token", "CPU µs per request", "nginx", titles, values)
    once = summary.workload_of("signin", "Sign-in", "", None, {"code": "a QR code"}, {"code": [5.0]}, "measured once.")
    return {
        "date": "2026-01-01", "seconds": 1, "machine": {"cpu": "a processor", "cores": 2, "kernel": "6", "load_before": 0.1},
        "versions": {"nginx": "1.2.3"}, "options": {"rounds": 3, "seconds": 1}, "notes": ["Without HAProxy: it is not installed."],
        "contestants": {"nginx": {}, "deskgate": {}}, "targets": verdicts([one]), "workloads": [one, once],
    }


def verdicts(measured):
    return [found for target in workloads.TARGETS if (found := summary.verdict(target, measured))]


class Summary(unittest.TestCase):
    def test_ratios_are_taken_within_rounds(self):
        row = results()["workloads"][0]["rows"][1]
        # The ratio of the medians would be 1.5.
        self.assertEqual((row["median"], row["times"], row["least"], row["most"]), (30.0, 0.9, 9.0, 36.0))
        self.assertEqual(row["times_quartiles"], (0.9, 1.2))

    def test_a_target_is_met_up_to_its_limit(self):
        for deskgate, met in [([10.0, 20.0], True), ([10.04, 20.08], True), ([10.1, 20.2], False), ([9.0, 18.0], True)]:
            rows = {"nginx": [10.0, 20.0], "deskgate": deskgate}
            measured = summary.workload_of("one", "", "", "nginx", {key: key for key in rows}, rows)
            found = summary.verdict(workloads.Target("one", "deskgate", "nginx", 1.0, "× nginx", ""), [measured])
            self.assertEqual(found["met"], met, deskgate)

    def test_a_target_without_its_measurement_has_no_verdict(self):
        found = verdicts(results()["workloads"])
        self.assertEqual([(one["text"], one["met"]) for one in found], [("one token", True)])

    def test_targets_and_workloads_name_what_exists(self):
        known = {contestant.key for contestant in contestants.CONTESTANTS}
        for workload in workloads.REQUESTS:
            self.assertLessEqual({*workload.contestants, workload.base}, known, workload.key)
        sizes = {str(size) for size in growth.SESSIONS + growth.RULES}
        for target in workloads.TARGETS:
            self.assertIn(target.workload, compare.WORKLOADS)
            self.assertLessEqual({target.row, target.over} - {None}, known | sizes, target.text)

    def test_every_contestant_begins_a_round_in_turn(self):
        self.assertEqual([rounds.in_turn([1, 2, 3], number) for number in range(3)], [[1, 2, 3], [2, 3, 1], [3, 1, 2]])

    def test_turns_that_are_taken_often_count_once_in_a_round(self):
        two = rounds.Rounds(["a", "b", "c"], 2, ("a", "c"))
        # The third turn of `a` in each round is the slowest of all.
        taken, numbers = [], {"a": [9, 1, 2, 99, 3, 4, 99], "b": [9, 5, 6], "c": [9, 7, 8, 9, 7, 8, 9]}
        for key in two.turns():
            two.add(key, numbers[key].pop(0))
            taken.append(key)
        self.assertEqual("".join(taken), "abc" + "bca" + "ca" * 2 + "cab" + "ac" * 2)
        self.assertEqual(two.values, {"a": [2, 4], "b": [5, 6], "c": [8, 8]})
        self.assertEqual(rounds.number_of_turns(two.keys, 2, two.often), len(taken))

    def test_a_turn_that_the_host_disturbs_is_repeated(self):
        cores = len(quiet.CORES)
        # Processor time that was stolen and seconds that have passed, before and after each try.
        for patience, stolen, clock, tries, repeated, disturbed in [
            (9, [0, 0.05 * cores], [0, 1], 1, 0, 0),
            (9, [0, 0.06 * cores, cores, cores], [0, 1, 1, 2], 2, 1, 0),
            (0.5, [0, cores, cores, 2 * cores], [0, 1, 1, 2], 2, 1, 1),
        ]:
            host = quiet.Host(patience)
            with mock.patch.object(quiet, "stolen_seconds", side_effect=stolen), \
                    mock.patch.object(quiet.time, "monotonic", side_effect=clock):
                self.assertEqual(len(list(host.tries())), tries, stolen)
            self.assertEqual((host.repeated, host.disturbed, len(host.notes())), (repeated, disturbed, repeated + disturbed))
        self.assertGreaterEqual(quiet.stolen_seconds(), 0)

    def test_the_last_try_of_a_turn_counts(self):
        run = mock.Mock(**{"host.tries.return_value": [None, None]})
        server = mock.Mock(**{"cpu_seconds.side_effect": [0.0, 1.0, 1.0, 3.0]})
        counts = [{"requests": 0, "refused": 0, "failed": 0}, {"requests": 4, "refused": 0, "failed": 0}]
        with mock.patch.object(traffic, "generate", side_effect=counts):
            self.assertEqual(workloads.turn(run, server, workloads.REQUESTS[0], None), 5e5)

    def test_an_unexpected_response_ends_the_run(self):
        counts = {"requests": 5, "refused": 0, "failed": 0}
        workloads.check("", counts, is_bad=False)
        workloads.check("", {**counts, "refused": 5}, is_bad=True)
        for counted, is_bad in [(counts, True), ({**counts, "refused": 1}, False), ({**counts, "failed": 1}, False),
                                ({**counts, "requests": 0}, False)]:
            self.assertRaises(Fault, workloads.check, "", counted, is_bad)


class Output(unittest.TestCase):
    def test_the_chart_is_xml_with_a_bar_for_each_row(self):
        image = xml.dom.minidom.parseString(chart.draw(report.compared(results())))
        bars = [bar.getAttribute("class") for bar in image.getElementsByTagName("rect")]
        self.assertEqual(bars, ["page", "other", "ours"])

    def test_the_section_replaces_what_is_between_the_marks(self):
        page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
        changed = report.with_section(page, report.section(results()))
        self.assertTrue(changed.startswith(f"before\n{report.BEGIN}\nMeasured on 2026-01-01"))
        self.assertTrue(changed.endswith(f"{report.END}\nafter\n"))
        self.assertNotIn("old", changed)
        self.assertIn("| one token | 0.90 (0.90–1.20) | ≤ 1 × nginx | met |", changed)
        self.assertRaises(ValueError, report.with_section, "no marks", "")

    def test_the_page_has_the_marks(self):
        page = (REPOSITORY / "docs/benchmarks.md").read_text()
        self.assertIn("new", report.with_section(page, "new"))

    def test_the_tables_say_what_was_missed(self):
        found = results()
        found["targets"][0]["met"] = False
        self.assertIn("MISSED", report.text(found))
        self.assertIn("Without HAProxy", report.text(found))

    def test_the_progress_bar(self):
        self.assertEqual(progress.bar(1, 4, 60), f"[{'#' * 6}{'-' * 18}]  25%  3:00 left")
        self.assertEqual(progress.bar(0, 4, 0).strip(), f"[{'-' * 24}]   0%")


class Options(unittest.TestCase):
    def parse(self, *words):
        with mock.patch.object(sys, "argv", ["compare.py", *words]), contextlib.redirect_stderr(io.StringIO()):
            return compare.arguments()

    def test_only_chooses_workloads_and_contestants(self):
        everything = (compare.WORKLOADS, len(contestants.CONTESTANTS))
        for words, expected in [((), everything), (("--only", "one,deskgate"), (["one"], 1)), (("--only", "nginx"), (compare.WORKLOADS, 1))]:
            chosen, named = compare.selected(self.parse(*words))
            self.assertEqual((chosen, len(named)), expected, words)
        self.assertRaises(SystemExit, self.parse, "--only", "apache")

    def test_published_figures_have_nine_rounds(self):
        self.assertEqual(self.parse("--docs").rounds, 9)
        self.assertRaises(SystemExit, self.parse, "--docs", "--rounds", "8")


class Tokens(unittest.TestCase):
    def test_signatures_have_a_fixed_size(self):
        der = bytes([0x30, 0x26, 2, 33, 0, *[0xff] * 32, 2, 1, 7])
        self.assertEqual(tokens.fixed_size(der), bytes([0xff] * 32 + [0] * 31 + [7]))

    def test_a_bad_signature_is_bad_in_its_first_half_only(self):
        signer = tokens.SharedSecret(b"secret")
        (good,) = tokens.tokens(signer, "key", [3], 10)
        bad = traffic.with_bad_signature(good)
        self.assertNotEqual(bad, good)
        self.assertEqual((len(bad), bad[:-43], bad[-20:]), (len(good), good[:-43], good[-20:]))

    def test_tokens_are_sent_in_batches(self):
        self.assertEqual(list(traffic.batches(iter("abcde"), 2)), [["a", "b"], ["c", "d"], ["e"]])

    def test_counts_of_h2load(self):
        for good, bad in [(25068, 0), (0, 25068)]:
            counted = traffic.counts_of_h2load(H2LOAD.format(good=good, bad=bad))
            self.assertEqual(counted, {"requests": 25068, "refused": bad, "failed": 0, "seconds": 1.01})
        self.assertRaises(Fault, traffic.counts_of_h2load, "h2load: command line error")


@unittest.skipUnless(find_program("openssl"), "openssl is not installed")
class Configurations(unittest.TestCase):
    """Each program checks the configuration that the benchmark would start it with."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.place = Place(pathlib.Path(folder.name), os.environ.get("DESKGATE"), "bare_proxy", "envoy")
        self.place.make_certificate()
        command = ["openssl", "pkey", "-in", self.place.certificate_key, "-pubout", "-out", self.place.public_key]
        subprocess.run(command, check=True)
        self.place.shared_secret.write_text("secret")
        self.place.data = {algorithm: pathlib.Path(folder.name) / algorithm for algorithm in ("ES256", "EdDSA")}
        for data in self.place.data.values():
            data.mkdir()

    def command_of(self, start):
        with mock.patch.object(contestants, "Server") as server:
            start(self.place, "127.0.0.1:9")
        return [str(word) for word in server.call_args.args[1]]

    def accepts(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)

    @unittest.skipUnless(find_program("nginx"), "nginx is not installed")
    def test_nginx(self):
        self.accepts([*self.command_of(contestants.start_nginx), "-t"])
        self.accepts([*self.command_of(lambda place, _: contestants.upstream_server(place)), "-t"])

    @unittest.skipUnless(find_program("nginx") and contestants.lua_module(), "nginx's Lua module is not installed")
    def test_nginx_with_lua(self):
        for algorithm in ("ES256", "HS256"):
            self.accepts([*self.command_of(lambda place, upstream: contestants.start_lua(place, upstream, algorithm)), "-t"])

    @unittest.skipUnless(find_program("haproxy"), "HAProxy is not installed")
    def test_haproxy(self):
        program, _, *rest = self.command_of(contestants.start_haproxy)
        self.accepts([program, "-c", *rest])

    def test_envoy_names_what_it_needs(self):
        config = envoy.configuration("127.0.0.1:9", 1, 2, self.place.certificate, "key", "jwks", tokens.ISSUER)
        plain, tls = config["static_resources"]["listeners"]
        self.assertEqual([one["address"]["socket_address"]["port_value"] for one in (plain, tls)], [1, 2])
        self.assertEqual([one["name"] for one in envoy.filters("jwks", tokens.ISSUER)], ["token", "role", "router"])

    @unittest.skipUnless(os.environ.get("DESKGATE"), "DESKGATE names no program")
    def test_deskgate(self):
        many_rules = {"rules": growth.rules_text(100), "only_these": True}
        for settings in ({}, {"settings": ["server.fast_lane=false"]}, {"algorithm": "EdDSA"}, many_rules):
            program, _, *rest = self.command_of(lambda place, upstream: contestants.start_deskgate(place, upstream, **settings))
            self.accepts([program, "check", *rest])


if __name__ == "__main__":
    unittest.main()
