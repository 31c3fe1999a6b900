"""Tests the instrument: what a reader (readers.c) must notice, told by a server that errs; and what
the floor is given to send.

    python3 -m unittest discover --start-directory bench
"""

import signal
import socket
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

from measure import process, push  # noqa: E402
from measure.bench import MeasurementError, compile_c  # noqa: E402
from measure.process import ALL_CORES  # noqa: E402

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def event(number: int) -> bytes:
    text = b"id: 5f3a09c1-%d\ndata: %s\n\n" % (number, push.message(number))
    return b"%x\r\n%s\r\n" % (len(text), text)


class ReadersTest(unittest.TestCase):
    def setUp(self) -> None:
        directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        process.OUT_DIR = directory
        self.program = compile_c("readers.c", directory / "readers")
        self.listener = self.enterContext(socket.create_server(("127.0.0.1", 0)))
        self.name, self.port = "test", self.listener.getsockname()[1]

    def open(self, head: bytes = HEAD) -> socket.socket:
        """One reader that has its head; the server's end of its connection."""
        def answer() -> None:
            self.stream, _ = self.listener.accept()
            self.assertTrue(self.stream.recv(4096).startswith(b"GET /a HTTP/1.1\r\n"))
            self.stream.sendall(head)

        server = threading.Thread(target=answer)
        server.start()
        bench = type("Bench", (), {"program": lambda name: self.program})
        try:
            self.readers = self.enterContext(push.Readers(bench, self, "/a", 1, cores=ALL_CORES))
        finally:
            server.join(10)
            self.enterContext(self.stream)
        self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.stream

    def test_a_stream_cut_at_every_byte_is_the_same_stream(self) -> None:
        stream = self.open()
        for byte in b"d\r\nretry: 2417\n\n\r\n" + event(1) + b":\n\n" + event(2) + event(3):
            stream.sendall(bytes([byte]))
            time.sleep(0.001)
        self.assertEqual(self.readers.await_message(3)["messages"], 3)

    def test_many_events_at_once(self) -> None:
        self.open().sendall(b"".join(map(event, range(1, 2001))))
        self.assertEqual(self.readers.await_message(2000)["messages"], 2000)

    def test_messages_that_are_not_the_next_one(self) -> None:
        for numbers in ((1, 4), (1, 1, 2), (1, 3, 2, 3)):
            self.open().sendall(b"".join(map(event, numbers)))
            with self.assertRaisesRegex(MeasurementError, "were not the next one"):
                self.readers.await_message(max(numbers))

    def test_the_end_behind_a_message(self) -> None:
        stream = self.open()
        self.readers.process.send_signal(signal.SIGSTOP)  # it finds both at once
        stream.sendall(event(1))
        stream.shutdown(socket.SHUT_WR)
        self.readers.process.send_signal(signal.SIGCONT)
        with self.assertRaisesRegex(MeasurementError, "a stream has ended"):
            self.readers.await_message(2)

    def test_another_answer_than_a_stream(self) -> None:
        with self.assertRaisesRegex(MeasurementError, "the server answered: HTTP/1.1 404"):
            self.open(b"HTTP/1.1 404 Not Found\r\n\r\n")

    def test_time_until_the_last(self) -> None:
        stream = self.open()
        late = event(1)
        time.sleep(0.2)
        stream.sendall(late)
        self.assertGreaterEqual(self.readers.await_message(1)["last_ms"], 200)

    def test_the_floor_is_given_one_whole_chunk(self) -> None:
        data = push.message(7)
        before = b"%x\r\nid: e-1\ndata: " % (len(data) + 16)
        sent = HEAD + b"d\r\nretry: 2417\n\n\r\n" + before + data + b"\n\n\r\n1\r\n"

        def answer() -> None:
            with self.listener.accept()[0] as stream:
                stream.recv(4096)
                stream.sendall(sent)

        threading.Thread(target=answer).start()
        captured = push.capture(self, "/a", data)
        self.assertEqual(captured, (HEAD, before, b"\n\n\r\n"))


if __name__ == "__main__":
    unittest.main()
