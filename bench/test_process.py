"""Tests what all measurements stand on: a process that is waited for, and the HTTP client.

    python3 -m unittest discover --start-directory bench
"""

import contextlib
import http.server
import io
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

sys.dont_write_bytecode = True

from measure import client, driver  # noqa: E402
from measure.bench import MeasurementError  # noqa: E402
from measure.process import Process  # noqa: E402

# Says what it is given when it is to be upgraded.
SERVER = """trap 'echo "$1"' USR2; echo ready: 1 worker; while true; do sleep 0.02; done"""


class ProcessTest(unittest.TestCase):
    def server(self, says: str) -> Process:
        directory = Path(self.enterContext(tempfile.TemporaryDirectory()))
        server = Process("server", ["sh", "-c", SERVER, "sh", says], log=directory / "log")
        server.start()
        self.enterContext(server)
        server.wait_for("ready: ")
        self.addCleanup(Process.last_words_of_all)
        return server

    def test_a_refused_upgrade_names_the_servers_reason(self) -> None:
        server = self.server("ERROR not upgraded, this process goes on: another form")
        with self.assertRaisesRegex(MeasurementError, "goes on: another form"):
            server.upgrade()

    def test_an_upgrade_that_does_not_finish_is_not_waited_for(self) -> None:
        server, begun = self.server("upgrading: and that is all"), time.monotonic()
        with self.assertRaisesRegex(MeasurementError, "within 0.3 s;.*\n.*worker\n.*that is"):
            server.upgrade(0.3)
        self.assertLess(time.monotonic() - begun, 3)

    def test_an_error_shows_the_end_of_each_log(self) -> None:
        self.server("")

        def fail() -> int:
            raise MeasurementError("it failed")

        with contextlib.redirect_stderr(io.StringIO()) as shown:
            self.assertEqual(driver.guard("bench/test", fail), 1)
        self.assertEqual(shown.getvalue(), "bench/test: it failed\n-- the log of server ends:\n"
                                           "ready: 1 worker\n")

    def test_a_process_that_has_ended_is_not_waited_for(self) -> None:
        server, begun = self.server(""), time.monotonic()
        server.process.kill()
        with self.assertRaisesRegex(MeasurementError, "its last lines are:\nready: 1 worker"):
            server.wait_for("taken over", seconds=30)
        self.assertLess(time.monotonic() - begun, 10)

    def test_an_upgrade_follows_the_next_process(self) -> None:
        other = self.server("")
        server = self.server(f"taken over: the server stood still for 457 us\n"
                             f"process {other.pid} has taken over, and this one waits")
        self.assertEqual(server.upgrade(), 457)
        self.assertEqual(server.pid, other.pid)
        server.pid = server.process.pid


class ClientTest(unittest.TestCase):
    def setUp(self) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_error(400, "no such parameter")

            def log_message(self, *_: object) -> None:
                pass

        server = self.enterContext(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        self.addCleanup(server.shutdown)
        self.port = server.server_address[1]

    def test_an_answer_that_is_no_success_is_an_error(self) -> None:
        with client.Client(self.port) as connection:
            for read in (lambda: connection.read("/"), lambda: client.status(self.port),
                         lambda: client.raw(self.port, client.get("/"))):
                with self.assertRaisesRegex(MeasurementError, "400"):
                    read()

    def test_the_caller_may_ask_for_the_status(self) -> None:
        self.assertEqual(client.ask(self.port, "GET", "/")[0], 400)


if __name__ == "__main__":
    unittest.main()
