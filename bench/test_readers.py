"""Tests the instrument: what the readers (readers.c) must notice, told by a server that errs.

    python3 -m unittest discover --start-directory bench
"""

import signal
import socket
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

from measure import process, push  # noqa: E402
from measure.bench import MeasurementError, compile_c  # noqa: E402

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
HEAD_WS = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
GAP = b'event: gap\ndata: {"reason":"history","since":"5f3a09c1-7"}\n\n'
GAP_WS = b'{"gap":{"reason":"history"}}'
ERRORS = ("silent", "repeated", "told", "conflated", "gaps", "ended")


def event(number: int) -> bytes:
    return b"id: 5f3a09c1-%d\ndata: %s\n\n" % (number, push.message(number))


def envelope(number: int) -> bytes:
    return (b'id: 5f3a09c1-1\ndata: {"topic":"/quotes/n","id":"5f3a09c1-1","type":"text/plain",'
            b'"data":"%s"}\n\n' % push.message(number))


def frame(payload: bytes, opcode: int = 1) -> bytes:
    size = bytes([len(payload)]) if len(payload) < 126 else b"\x7e%c%c" % divmod(len(payload), 256)
    return bytes([0x80 | opcode]) + size + payload


class ReadersTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = self.enterContext(tempfile.TemporaryDirectory())
        process.OUT_DIR = Path(directory)
        self.program = compile_c("readers.c", Path(directory) / "readers")
        self.name = "test"
        self.listener = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        self.listener.settimeout(10)
        self.port = self.listener.getsockname()[1]

    def open(self, *options: str, path: str = "/a", head: bytes = HEAD) -> socket.socket:
        """One reader that has its head; the server's end of its connection."""
        program, cores = self.program, process.all_cores()
        bench = type("Bench", (), {"program": lambda name: program})
        self.readers = self.enterContext(
            push.Readers(bench, self, [path], 1, *options, cores=cores))
        print("hold 1", file=self.readers.process.stdin, flush=True)
        stream, _ = self.listener.accept()
        self.enterContext(stream)
        request = stream.recv(4096)
        self.assertTrue(request.startswith(f"GET {path} HTTP/1.1\r\n".encode()), request)
        stream.sendall(head)
        self.assertEqual(self.readers.process.stdout.readline(), "held 1\n")
        self.readers.mark()
        return stream

    def found(self, last: int, seconds: int = 2) -> dict[str, int]:
        self.readers.await_message(last, seconds)
        time.sleep(0.05)
        self.report = self.readers.report()
        return {name: self.report.figures[name] for name in ERRORS if self.report.figures[name]}

    def test_a_stream_cut_at_every_byte_is_the_same_stream(self) -> None:
        stream = self.open()
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        events = event(1) + b":\n\n" + envelope(2) + b"\r\n7f\r\n" + event(3)
        for byte in b"retry: 2417\n\n" + events:
            stream.sendall(bytes([byte]))
            time.sleep(0.001)
        self.assertEqual(self.found(3), {})
        self.report.expect_each_once("test", 3)
        self.assertEqual(self.report.other, 2)

    def test_many_events_at_once(self) -> None:
        stream = self.open()
        stream.sendall(b"".join(map(event, range(1, 2001))))
        self.assertEqual(self.found(2000), {})
        self.report.expect_each_once("test", 2000)

    def test_a_loss_without_a_word(self) -> None:
        self.open().sendall(event(1) + event(4))
        self.assertEqual(self.found(4), {"silent": 2})
        self.assertRaises(MeasurementError, self.report.expect_each_once, "test", 4)

    def test_a_loss_that_was_told(self) -> None:
        self.open().sendall(event(1) + GAP + event(4) + event(6))
        self.assertEqual(self.found(6), {"gaps": 1, "told": 2, "silent": 1})

    def test_the_first_message_missing(self) -> None:
        self.open().sendall(event(2))
        self.assertEqual(self.found(2), {})
        self.assertRaises(MeasurementError, self.report.expect_each_once, "test", 2)

    def test_conflation_is_allowed_where_it_was_asked_for(self) -> None:
        self.open(path="/a?mode=latest").sendall(event(1) + event(9))
        self.assertEqual(self.found(9), {"conflated": 7})
        self.report.expect_each_once("test", 9)

    def test_repetition_and_disorder(self) -> None:
        self.open().sendall(event(1) + event(1) + event(3) + event(2))
        self.assertEqual(self.found(3), {"repeated": 2, "silent": 1})

    def test_the_end(self) -> None:
        stream = self.open()
        stream.shutdown(socket.SHUT_WR)
        self.assertEqual(self.found(1, 1), {"ended": 1})

    def test_the_end_behind_a_message(self) -> None:
        stream = self.open()
        self.readers.process.send_signal(signal.SIGSTOP)  # it finds both at once
        stream.sendall(event(1))
        stream.shutdown(socket.SHUT_WR)
        self.readers.process.send_signal(signal.SIGCONT)
        self.assertEqual(self.found(1), {"ended": 1})
        self.assertEqual(self.report.messages, 1)

    def test_another_answer_than_a_stream(self) -> None:
        with self.assertRaises(AssertionError):
            self.open(head=b"HTTP/1.1 404 Not Found\r\n\r\n")
        self.readers.process.wait(10)
        self.assertIn("the server answered: HTTP/1.1 404", self.readers.log.read_text())

    def test_latency_and_time_until_the_last(self) -> None:
        stream = self.open()
        late = event(1)
        time.sleep(0.2)
        stream.sendall(late)
        self.found(1)
        self.assertGreaterEqual(self.report.last_ns[1], 200e6)
        self.assertAlmostEqual(self.report.p99_ns / self.report.last_ns[1], 1, delta=0.05)

    def test_websocket_frames(self) -> None:
        stream = self.open("--ws", head=HEAD_WS)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        frames = (frame(push.message(1)) + frame(b"are you there", 9)
                  + frame(push.message(2, 1000), 2) + frame(GAP_WS) + frame(push.message(5)))
        for byte in frames:
            stream.sendall(bytes([byte]))
            time.sleep(0.001)
        self.assertEqual(self.found(5), {"gaps": 1, "told": 2})
        self.assertEqual(stream.recv(100), b"\x8a\x8d\0\0\0\0are you there")

    def test_a_stalled_reader_reads_no_more_until_it_resumes(self) -> None:
        stream = self.open("--stall", "100")
        self.readers.stall()
        stream.sendall(event(1))
        time.sleep(0.1)
        stream.sendall(event(2) + GAP + event(5))
        time.sleep(0.1)
        report = self.readers.report()
        self.assertEqual((report.newest, report.stalled_messages, report.messages), (1, 1, 0))
        self.readers.mark()
        self.readers.resume(1)
        time.sleep(0.1)
        report = self.readers.report()
        self.assertEqual((report.newest, report.told, report.silent), (5, 2, 0))
        self.assertEqual(report.stalled_all,
                         {"readers": 1, "behind": 0, "ended": 0, "messages_max": 2})


if __name__ == "__main__":
    unittest.main()
