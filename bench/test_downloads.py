"""Tests the instruments of downloads: what they must notice, told by a server that errs.

    python3 -m unittest discover --start-directory bench
"""

import json
import random
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

from measure import downloads, table  # noqa: E402
from measure.bench import MeasurementError, compile_c  # noqa: E402

CONTENT = random.Random(20240602).randbytes(300_000)


def answer(status: str = "200 OK", length: int = len(CONTENT)) -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n".encode()


class DownloadsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        directory = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.program = compile_c("downloads.c", directory / "downloads")

    def serve(self, *pieces: bytes, ends: bool = False) -> None:
        """A server that answers every request with these pieces, then ends if it is to."""

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                while self.request.recv(4096):
                    for piece in pieces:
                        self.request.sendall(piece)
                        time.sleep(0.01)
                    if ends:
                        return

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        server.handle_error = lambda *_: None
        self.enterContext(server)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.shutdown)
        self.name, self.port = "test", server.server_address[1]

    def download(self) -> subprocess.CompletedProcess[str]:
        command = [self.program, str(self.port), "/a", str(len(CONTENT)), "3", "1"]
        return subprocess.run(command, capture_output=True, text=True)

    def expect_failure(self, reason: str) -> None:
        done = self.download()
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn(reason, done.stderr)

    def test_whole_files_are_counted(self) -> None:
        self.serve(answer() + CONTENT)
        found = json.loads(self.download().stdout)
        self.assertGreater(found["files"], 3)
        self.assertEqual(found["bytes"], found["files"] * len(CONTENT))
        self.assertGreaterEqual(found["ns"], 1e9)

    def test_a_head_in_pieces(self) -> None:
        self.serve(answer()[:20], answer()[20:-1], answer()[-1:], CONTENT[:1], CONTENT[1:])
        found = json.loads(self.download().stdout)
        self.assertEqual(found["bytes"], found["files"] * len(CONTENT))

    def test_an_end_too_early(self) -> None:
        self.serve(answer() + CONTENT[:-7], ends=True)
        self.expect_failure("an end with 7 bytes of the file to come")

    def test_more_than_was_announced(self) -> None:
        self.serve(answer() + CONTENT + b"x")
        self.expect_failure("not the file: xHTTP/1.1")

    def test_another_length(self) -> None:
        self.serve(answer(length=len(CONTENT) - 1) + CONTENT)
        self.expect_failure("not the file: HTTP/1.1 200 OK")

    def test_another_status(self) -> None:
        self.serve(answer("503 Service Unavailable"))
        self.expect_failure("not the file: HTTP/1.1 503")

    def stall(self) -> None:
        with downloads.stalled(self, "/a", CONTENT, 3) as downloaders:
            self.assertLess(max(one.offset for one in downloaders), downloads.READ_ON_BYTES)
            downloads.read_on(downloaders)
        self.assertGreater(min(one.offset for one in downloaders), downloads.READ_ON_BYTES)

    def test_slow_downloaders_read_on(self) -> None:
        self.serve(answer() + CONTENT)
        self.stall()

    def test_slow_downloaders_notice_the_end(self) -> None:
        self.serve(answer() + CONTENT[:100_000], ends=True)
        with self.assertRaisesRegex(MeasurementError, "the end after 100,000 bytes"):
            self.stall()

    def test_slow_downloaders_notice_a_wrong_byte(self) -> None:
        wrong = bytes([CONTENT[100_000] ^ 1])
        self.serve(answer() + CONTENT[:100_000] + wrong + CONTENT[100_001:])
        with self.assertRaisesRegex(MeasurementError, "wrong bytes between"):
            self.stall()


class TableTest(unittest.TestCase):
    def test_one_of_two_targets_is_enough(self) -> None:
        def row(nginx: float, floor: float) -> table.Row:
            return table.either_row("what", [("nginx", nginx, table.at_least(1.6)),
                                             ("floor", floor, table.at_most(1.1))])

        self.assertEqual((row(1.7, 1.2).stentor, row(1.7, 1.2).missed), ("reached: nginx", False))
        self.assertEqual((row(1.5, 1.1).stentor, row(1.5, 1.1).missed), ("reached: floor", False))
        self.assertEqual((row(1.5, 1.2).stentor, row(1.5, 1.2).missed), ("reached: none", True))
        self.assertEqual(row(1.6, 1.1).stentor, "reached: nginx and floor")


if __name__ == "__main__":
    unittest.main()
