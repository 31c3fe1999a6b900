"""Tests the instruments of attacks: what bystanders must notice, how attackers keep to their rate,
and how it is judged.

    python3 -m unittest discover --start-directory hostile
"""

import dataclasses
import json
import multiprocessing
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import zlib
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.append(str(Path(__file__).resolve().parent.parent / "bench"))

import attack  # noqa: E402
import attacker  # noqa: E402
import attacks  # noqa: E402
from measure.bench import compile_c  # noqa: E402

TOPIC, VALUE = "/a/topic", "/a/value"


class Server:
    """Answers as Stentor does what bystanders ask, but for what it is told not to."""

    def __init__(self) -> None:
        self.faults: set[str] = set()
        self.news = threading.Condition()
        self.number, self.message = 0, b"nothing yet"
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    while self.answer_one():
                        pass
                except (OSError, ValueError):
                    pass

            def answer_one(self) -> bool:
                line = self.rfile.readline().decode().split()
                fields = {}
                while (field := self.rfile.readline().decode().strip()):
                    name, _, value = field.partition(": ")
                    fields[name] = value
                if not line:
                    return False
                body = self.rfile.read(int(fields.get("Content-Length", 0)))
                outer.answer(self, line[0], line[1], fields, body)
                return True

        self.servers = [socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
                        for _ in range(2)]
        for server in self.servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        self.faults.add("cut")
        for server in self.servers:
            server.shutdown()
            server.server_close()

    @property
    def ports(self) -> list[str]:
        return [str(server.server_address[1]) for server in self.servers]

    def answer(self, handler: socketserver.StreamRequestHandler, method: str, path: str,
               fields: dict[str, str], body: bytes) -> None:
        out = handler.wfile
        if method == "PUT":
            with self.news:
                self.number, self.message = self.number + 1, body
                self.news.notify_all()
            if "control" not in self.faults:
                out.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        elif "Prefer" in fields:
            tag = int(fields.get("If-None-Match", "0").strip('"'))
            number, message = self.wait(tag)
            out.write(b'HTTP/1.1 200 OK\r\nETag: "%d"\r\nContent-Length: %d\r\n\r\n%s'
                      % (number, len(message), message))
        elif "Accept" in fields or "Upgrade" in fields:
            self.stream(out, "Upgrade" in fields)
        elif path != VALUE or "get" not in self.faults:
            status = b"503 No" if "refuse" in self.faults else b"200 OK"
            out.write(b"HTTP/1.1 %s\r\nContent-Length: 2\r\n\r\nhi" % status)

    def wait(self, number: int) -> tuple[int, bytes]:
        with self.news:
            while self.number <= number:
                self.news.wait()
            return self.number, self.message

    def stream(self, out: object, is_websocket: bool) -> None:
        out.write(b"HTTP/1.1 101 Yes\r\n\r\n" if is_websocket else b"HTTP/1.1 200 OK\r\n\r\n")
        number = 0
        while True:
            number, message = self.wait(number)
            if "cut" in self.faults:
                raise OSError("cut")
            if "delivery" not in self.faults:
                frame = bytes([0x81, len(message)]) + message
                out.write(frame if is_websocket else b"id: 1\ndata: %s\n\n" % message)


class BystandersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        directory = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.program = compile_c(str(attack.HERE / "bystanders.c"), directory / "bystanders")

    def setUp(self) -> None:
        self.server = Server()
        self.addCleanup(self.server.stop)
        self.process = subprocess.Popen(
            [self.program, *self.server.ports, "2", "100", "10", VALUE, TOPIC],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(self.stop)
        self.report(2)

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait(5)
        self.process.stdout.close()

    def report(self, seconds: float) -> attack.Phase:
        time.sleep(seconds)
        print("report", file=self.process.stdin, flush=True)
        return attack.Phase(json.loads(self.process.stdout.readline()))

    def test_all_is_well(self) -> None:
        phase = self.report(1)
        for what in ("get", "sse", "websocket", "long_poll", "delivery", "control", "newcomer"):
            self.assertGreater(phase.figures[what]["count"], 3, what)
            self.assertEqual(phase.unanswered(what), 0, what)
        self.assertEqual(phase.figures["delivery"]["count"],
                         sum(phase.figures[kind]["count"]
                             for kind in ("sse", "websocket", "long_poll")))
        self.assertEqual(phase.figures["cut"], 0)

    def test_gets_without_an_answer_count_with_their_age(self) -> None:
        self.server.faults.add("get")
        phase = self.report(3)
        self.assertGreater(phase.unanswered("get"), 100)
        self.assertGreater(phase.p99("get"), 1_000)
        self.assertEqual(phase.unanswered("delivery"), 0)

    def test_messages_that_never_come_are_missed(self) -> None:
        self.server.faults.add("delivery")
        phase = self.report(3)
        self.assertGreater(phase.unanswered("sse"), 20)
        self.assertGreater(phase.unanswered("websocket"), 20)
        self.assertEqual(phase.unanswered("long_poll"), 0)
        self.assertGreater(phase.p99("delivery"), 1_000)

    def test_readers_that_are_cut_come_back(self) -> None:
        self.server.faults.add("cut")
        phase = self.report(1)
        self.assertGreater(phase.figures["cut"], 3)
        self.server.faults.clear()
        self.report(1)
        phase = self.report(1)
        self.assertEqual(phase.figures["cut"], 0)
        self.assertEqual(phase.unanswered("delivery"), 0)

    def test_a_refusal_is_no_answer(self) -> None:
        self.server.faults.add("refuse")
        phase = self.report(1)
        self.assertGreater(phase.unanswered("get"), 50)
        self.assertGreater(phase.unanswered("newcomer"), 1)
        self.assertEqual(phase.figures["last_error"], "HTTP/1.1 503 No")

    def test_control_without_an_answer(self) -> None:
        self.server.faults.add("control")
        phase = self.report(3)
        self.assertGreater(phase.unanswered("control"), 10)
        self.assertGreater(phase.p99("control"), 1_000)


def phase(**p99: float) -> attack.Phase:
    kinds = ("get", "delivery", "control", "newcomer", "lateness")
    figures = {kind: {"count": 100, "p50_ms": 0.1, "p99_ms": p99.get(kind, 1.0), "unanswered": 0,
                      "wrong": 0} for kind in kinds}
    return attack.Phase({**figures, "cut": 0, "last_error": ""})


class JudgementTest(unittest.TestCase):
    def missed(self, kind: type[attacks.Attack] = attacks.Inflate, **changes: object) -> set[str]:
        outcome = attack.Outcome(
            attack="test", quiet=phase(), during=phase(), after=phase(), seconds=30,
            sent_per_second=1e6, opened=1,
            connections=1, cut=0, memory_empty_mib=2, memory_before_mib=10, memory_peak_mib=20,
            memory_after_mib=10, settled_seconds=2, messages_kept=10_000,
            server_cpu_quiet=0.1, server_cpu=0.5, tcp_memory_mib=1, files_asked=3, files_failed=0,
            probes_asked=3, probes_failed=0, foreign_share=0)
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
        self.assertEqual(self.missed(files_failed=1), {"files"})

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
        during.figures["newcomer"]["wrong"] = 1
        self.assertEqual(self.missed(during=during), set())
        self.assertEqual(self.missed(attacks.Names, during=during), {"newcomers"})

    def test_what_some_attacks_are_judged_by(self) -> None:
        self.assertEqual(self.missed(attacks.Pins, memory_peak_mib=137), set())
        self.assertEqual(self.missed(attacks.Pins, memory_peak_mib=139), {"memory"})
        self.assertEqual(self.missed(attacks.DeflateKept, memory_peak_mib=40), set())
        self.assertEqual(self.missed(attacks.DeflateKept, memory_peak_mib=42), {"kept"})
        self.assertEqual(self.missed(attacks.Unread, tcp_memory_mib=501), {"tcp-memory"})
        self.assertEqual(self.missed(attacks.BacklogFull, probes_failed=1), {"probe"})


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
