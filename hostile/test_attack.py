"""Tests the instruments of attacks: what bystanders notice, how attackers keep to their rate, and
how it is judged.

    python3 -m unittest discover --start-directory hostile
"""

import dataclasses
import json
import multiprocessing
import socket
import sys
import threading
import unittest
import zlib
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent.parent / "bench"))

import attack  # noqa: E402
import attacker  # noqa: E402
import attacks  # noqa: E402
import bystanders  # noqa: E402

def phase(**p99: float) -> attack.Phase:
    kinds = ("get", "delivery", "control", "newcomer")
    figures = {kind: {"p50_ms": 0.1, "p99_ms": p99.get(kind, 1.0), "unanswered": 0}
               for kind in kinds}
    return attack.Phase({**figures, "cut": 0})


class BystandersTest(unittest.TestCase):
    """What is made of the reports of `stentor bench`."""

    LATENCY = {"p50_us": 100, "p99_us": 2_000}

    def gets(self, good: int, errors: int = 0) -> int:
        report = {"requests": {"latency": self.LATENCY, "statuses": [[200, good], [503, 5]]},
                  "errors": [{"kind": "timeout", "count": errors}] * bool(errors)}
        return bystanders.of_gets(report, due=100)["unanswered"]

    def test_requests_without_an_answer_count(self) -> None:
        self.assertEqual([self.gets(100), self.gets(98), self.gets(97)], [0, 0, 3])
        self.assertEqual(self.gets(99, errors=1), 1)

    def test_deliveries_that_are_missing_count(self) -> None:
        def missing(delivered: int, complete: int) -> int:
            return bystanders.of_deliveries({"delivery": {
                "latency": self.LATENCY, "expected": 2_000, "delivered": delivered,
                "readers_complete": complete}})["unanswered"]

        self.assertEqual(missing(2_000, bystanders.COUNT), 0)
        self.assertEqual(missing(1_990, bystanders.COUNT - 2), 10)
        self.assertEqual(missing(2_000, bystanders.COUNT - 1), 1)

    def test_the_slowest_of_several_counts(self) -> None:
        kinds = [{"p50_ms": 1, "p99_ms": 9, "unanswered": 2},
                 {"p50_ms": 2, "p99_ms": 3, "unanswered": 1}]
        self.assertEqual(bystanders.worst(kinds), {"p50_ms": 2, "p99_ms": 9, "unanswered": 3})


class JudgementTest(unittest.TestCase):
    def missed(self, kind: type[attacks.Attack] = attacks.Inflate, **changes: object) -> set[str]:
        outcome = attack.Outcome(
            attack="test", quiet=phase(), during=phase(), memory_empty_mib=2, memory_before_mib=10,
            memory_peak_mib=20, memory_after_mib=10, messages_kept=10_000, server_cpu_quiet=0.1,
            tcp_memory_mib=1)
        outcome = dataclasses.replace(outcome, **changes)
        verdicts = attack.judge(outcome, kind(), tcp_bound_mib=500)
        return {what for what, reached in verdicts.items() if not reached}

    def test_each_bound(self) -> None:
        self.assertEqual(self.missed(), set())
        self.assertEqual(self.missed(during=phase(get=4.9, delivery=4.9, control=9.9)), set())
        self.assertEqual(self.missed(during=phase(get=5.1)), {"gets"})
        self.assertEqual(self.missed(during=phase(delivery=5.1)), {"deliveries"})
        self.assertEqual(self.missed(during=phase(control=10.1)), {"control"})
        self.assertEqual(self.missed(memory_peak_mib=75), {"memory"})
        self.assertEqual(self.missed(memory_after_mib=75), {"memory-back"})
        self.assertEqual(self.missed(files=(3, 1)), {"files"})

    def test_the_quietest_counts(self) -> None:
        phases = [phase(get=3, delivery=3), phase(get=1, delivery=4), phase(get=300)]
        self.assertEqual(attack.quietest(phases), phases[1])

    def test_twice_the_quiet_is_allowed(self) -> None:
        quiet = phase(get=4, delivery=4)
        self.assertEqual(self.missed(quiet=quiet, during=phase(get=7.9, delivery=7.9)), set())
        self.assertEqual(self.missed(quiet=quiet, during=phase(get=8.1)), {"gets"})

    def test_what_was_not_answered(self) -> None:
        for kind, bound in (("get", "gets"), ("delivery", "deliveries"), ("control", "control")):
            during = phase()
            during.figures[kind]["unanswered"] = 1
            self.assertEqual(self.missed(during=during), {bound})
        during = phase()
        during.figures["newcomer"]["unanswered"] = 1
        self.assertEqual(self.missed(during=during), set())
        self.assertEqual(self.missed(attacks.Names, during=during), {"newcomers"})

    def test_what_some_attacks_are_judged_by(self) -> None:
        self.assertEqual(self.missed(attacks.Pins, memory_peak_mib=137), set())
        self.assertEqual(self.missed(attacks.Pins, memory_peak_mib=139), {"memory"})
        self.assertEqual(self.missed(attacks.DeflateKept, memory_peak_mib=40), set())
        self.assertEqual(self.missed(attacks.DeflateKept, memory_peak_mib=42), {"kept"})
        self.assertEqual(self.missed(attacks.Unread, tcp_memory_mib=501), {"tcp-memory"})
        self.assertEqual(self.missed(attacks.BacklogFull, probes=(3, 1)), {"probe"})


class AttackerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.listener = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        self.tally = multiprocessing.Array("q", attacker.TALLIES, lock=False)

    def attacker(self, seconds: float, rate: int = 100_000) -> attacker.Attacker:
        port = self.listener.getsockname()[1]
        subject = attacker.Attacker(port, seconds, self.tally, rate)
        self.addCleanup(lambda: [subject.drop(c) for c in list(subject.connections.values())])
        return subject

    def test_it_keeps_to_its_rate(self) -> None:
        subject = self.attacker(1)
        connection = subject.open(b"")
        while not subject.over:
            subject.send(connection, bytes(5_000))
        self.assertLessEqual(self.tally[attacker.SENT], 110_000)
        self.assertGreater(self.tally[attacker.SENT], 50_000)

    def test_it_replaces_connections_that_are_cut(self) -> None:
        def cut_some() -> None:
            for _ in range(3):
                self.listener.accept()[0].close()

        thread = threading.Thread(target=cut_some)
        thread.start()
        self.attacker(0.5).hold(2, lambda number: b"hello %d" % number)
        thread.join()
        self.assertEqual(self.tally[attacker.CUT], 3)
        self.assertEqual(self.tally[attacker.OPEN], 2)
        self.assertEqual(self.tally[attacker.OPENED], 5)

    def test_each_address_is_on_this_host(self) -> None:
        addresses = {attacker.address(number) for number in range(attacker.ADDRESSES)}
        self.assertEqual(len(addresses), attacker.ADDRESSES)
        self.assertEqual({text.rsplit(".", 2)[0] for text in addresses}, {"127.1"})

    def test_frames(self) -> None:
        for length, head in ((5, b"\x81\x85"), (200, b"\x81\xfe\x00\xc8"),
                             (70_000, b"\x81\xff" + (70_000).to_bytes(8, "big"))):
            self.assertEqual(attacker.frame(bytes(length)), head + bytes(4 + length))
        framed = attacker.deflated_frame(b"hello " * 10)
        self.assertEqual(framed[0], 0xc1)
        unpacked = zlib.decompressobj(-15).decompress(framed[6:] + b"\x00\x00\xff\xff")
        self.assertEqual(unpacked, b"hello " * 10)


class AttacksTest(unittest.TestCase):
    def test_each_has_a_name_and_says_what_it_exploits(self) -> None:
        self.assertIn("pipelined-long-poll", attacks.ATTACKS)
        for name, kind in attacks.ATTACKS.items():
            self.assertEqual(kind.name(), name)
            self.assertTrue(kind.summary().endswith("."), name)

    def test_commands_fit_what_a_server_takes(self) -> None:
        names = attacks.Subscriptions.NAMES
        self.assertLessEqual(max(map(len, names)), 512)
        self.assertLess(len(json.dumps(names[:125])), 64 * 1024)


if __name__ == "__main__":
    unittest.main()
