"""Runs `follow.py` against the server: TEST_BINARY=/path/to/stentor python3 test_follow.py"""

import contextlib
import hashlib
import http.client
import http.server
import json
import os
import random
import re
import subprocess
import tempfile
import threading
import time
import unittest
from datetime import datetime, timedelta, timezone

import follow

BINARY = os.environ.get("TEST_BINARY")
KILLS = int(os.environ.get("TEST_KILLS", "10"))
TOPICS = [f"/n/{i}" for i in range(5)]


class Server:
    """The real server on ports that stay, with a store that survives it."""

    def __init__(self, folder, settings=""):
        self.folder, self.process = folder, None
        self.public, self.control = "127.0.0.1:0", "127.0.0.1:0"
        with open(f"{folder}/stentor.toml", "w", encoding="utf8") as file:
            file.write('[store]\npath = "data"\n[streams]\nretry = "50ms"\n'
                       f'[[topics]]\nmatch = "/n/*"\nhistory = 1000\n{settings}')
        self.start()

    def start(self):
        arguments = ["--config", "stentor.toml", "--workers", "1"]
        listeners = ["--listen", self.public, "--control", self.control]
        self.process = subprocess.Popen([BINARY, "serve", *arguments, *listeners], cwd=self.folder,
                                        stderr=subprocess.PIPE, text=True)
        log = ""
        for line in self.process.stderr:
            log += line
            if "ready: " in line:
                break
        else:
            raise AssertionError(log)
        threading.Thread(target=self.process.stderr.read, daemon=True).start()
        self.public = re.search(r"public listener at http://(\S+)", log)[1]
        self.control = re.search(r"control listener at (\S+)", log)[1]

    def end(self, kill):
        (self.process.kill if kill else self.process.terminate)()
        self.process.wait()

    def ask(self, method, topic, body=None):
        connection = http.client.HTTPConnection(self.control, timeout=5)
        with contextlib.closing(connection):
            connection.request(method, topic, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()


class Reader(threading.Thread):
    """A thread that keeps what a follower is told."""

    def __init__(self, follower):
        super().__init__(daemon=True)
        self.follower, self.items, self.ended = follower, [], None
        self.start()

    def run(self):
        try:
            for item in self.follower:
                self.items.append(item)
        except follow.Refused as problem:
            self.ended = problem

    def until(self, probe, seconds=30):
        end = time.monotonic() + seconds
        while not probe(self.items):
            assert time.monotonic() < end, (self.items[-5:], self.ended)
            time.sleep(0.01)


def publish(server, topic, number, ends):
    """Publishes it, however often that takes. It may have been stored without an answer."""
    body = str(number).encode()
    for _ in range(1000):
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, value = server.ask("GET", topic)
            if status == 200 and value == body:
                return
            if server.ask("PUT", topic, body)[0] in (200, 201):
                return
        ends.wait(0.02)
    raise AssertionError("never published")


@unittest.skipUnless(BINARY, "TEST_BINARY names no server")
class WithTheServer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def serve(self, settings=""):
        server = Server(self.folder, settings)
        self.addCleanup(lambda: server.end(kill=True))
        return server

    def outlive(self, is_acknowledged):
        """Ends the server again and again while messages are published; returns the gaps.

        A message that is read and not acknowledged when the server is killed may be gone. That is
        a gap, behind which the values come, and its publisher publishes it again.
        """
        server, ends, calm = self.serve(), threading.Event(), threading.Lock()
        counts = dict.fromkeys(TOPICS, 0)
        choose = random.Random(7)

        def publish_all():
            while not ends.is_set():
                topic = TOPICS[sum(counts.values()) % len(TOPICS)]
                with calm if is_acknowledged else contextlib.nullcontext():
                    publish(server, topic, counts[topic] + 1, ends)
                counts[topic] += 1

        reader = Reader(follow.Follower(f"http://{server.public}", ["/n/*"]))
        writer = threading.Thread(target=publish_all, daemon=True)
        writer.start()
        reader.until(lambda items: len(items) > 5)
        for life in range(KILLS):
            time.sleep(choose.uniform(0.05, 0.6))
            with calm if is_acknowledged else contextlib.nullcontext():
                server.end(kill=life % 4 != 3)
            server.start()
        ends.set()
        writer.join(30)
        newest = lambda items: {item["topic"]: item["data"] for item in items if "topic" in item}
        reader.until(lambda items: newest(items) == counts)
        time.sleep(0.2)
        gaps, lost, twice, last = [], 0, 0, {}
        for item in reader.items:
            if "gap" in item:
                gaps.append((item["gap"]["reason"], item["gap"]["resume"]))
                last = {}
                continue
            topic, number = item["topic"], item["data"]
            step = number - last.get(topic, number - 1)
            lost, twice = lost + (step > 1), twice + (step < 1)
            last[topic] = number
        total = sum(counts.values())
        print(f"{total} messages, {KILLS} ends: {lost} lost, {twice} twice, {len(gaps)} gaps")
        self.assertEqual((lost, twice), (0, 0))
        return gaps

    def test_kills_and_restarts_lose_nothing(self):
        self.assertEqual(self.outlive(is_acknowledged=True), [])

    def test_what_a_kill_takes_back_is_a_gap(self):
        gaps = self.outlive(is_acknowledged=False)
        self.assertLessEqual(set(gaps), {("rolled_back", "values")})

    def test_an_ended_token_is_replaced(self):
        end = (datetime.now(timezone.utc) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
        names = {"stentor_a": f'expires = "{end}"', "stentor_b": ""}
        tokens = "".join(
            f'[[token]]\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
            f'name = "{name}"\nread = "/p/*"\n{more}\n' for name, more in names.items())
        server = self.serve(f'[[topics]]\nmatch = "/p/*"\nread = "token"\n{tokens}')
        asked = iter([*names, None])
        url, token = f"http://{server.public}", lambda: next(asked)
        reader = Reader(follow.Follower(url, ["/p/a"], token=token))
        number, end_s = 0, time.monotonic() + 6
        while time.monotonic() < end_s:
            number += 1
            publish(server, "/p/a", number, threading.Event())
            time.sleep(0.05)
        reader.until(lambda items: items and items[-1]["data"] == number)
        first = reader.items[0]["data"]
        heard = [item["data"] for item in reader.items]
        self.assertEqual(heard, list(range(first, number + 1)))
        self.assertIsNone(next(asked), "it has asked for both")

    def test_a_request_that_is_refused_ends_it(self):
        server = self.serve()
        for topic, code in [("nope", "topic_invalid"), ("/a/*/*/*", "pattern_invalid")]:
            with self.assertRaises(follow.Refused) as caught:
                next(iter(follow.Follower(f"http://{server.public}", [topic])))
            self.assertEqual(caught.exception.args[0], code)

    def test_a_deletion_is_told(self):
        server = self.serve()
        reader = Reader(follow.Follower(f"http://{server.public}", ["/n/*"]))
        publish(server, "/n/a", 1, threading.Event())
        reader.until(lambda items: len(items) == 1)
        server.ask("DELETE", "/n/a")
        reader.until(lambda items: len(items) == 2)
        self.assertEqual(reader.items[1]["topic"], "/n/a")
        self.assertIs(reader.items[1]["deleted"], True)


MESSAGE = {"topic": "/a", "id": "5f3a09c1-1", "type": "text/plain", "data": "x"}
BYTES = {"topic": "/b", "id": "5f3a09c1-2", "type": "image/png", "data_base64": "/wA="}
LATER = {"topic": "/a", "id": "5f3a09c1-3", "type": "text/plain", "data": "y"}


def block(item):
    name = "" if "type" in item else "event: stentor\n"
    return f"{name}data: {json.dumps(item)}\n\n"


class Scripted(unittest.TestCase):
    """Each connection gets the next answer of a list, such as the server seldom sends."""

    def follow(self, *answers):
        asked, answers = [], iter(answers)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                asked.append(re.search("since=([^&]*)", self.path)[1])
                status, body = next(answers, (200, ""))
                self.send_response(status)
                kind = "text/event-stream" if status == 200 else "text/plain"
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(f"retry: 10\n{body}".encode())

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        follower = follow.Follower(f"http://127.0.0.1:{server.server_port}", ["/a", "/b"])
        follower.retry_s = 0.01
        return follower, iter(follower), asked

    def test_half_an_event_is_not_taken(self):
        half = block(LATER)[:-1]
        follower, items, asked = self.follow((200, block(MESSAGE) + half), (200, block(LATER)))
        self.assertEqual([next(items)["data"], next(items)["data"]], ["x", "y"])
        self.assertEqual(asked, ["", "5f3a09c1-1"])

    def test_gaps_go_by_resume(self):
        for resume, since in [("history", "5f3a09c1-1"), ("live", "5f3a09c1-1"), ("values", "")]:
            gap = {"gap": {"reason": "a_new_one", "resume": resume, "more": 1}}
            _, items, asked = self.follow((200, block(MESSAGE) + block(gap)), (200, block(LATER)))
            self.assertEqual([next(items), next(items)], [MESSAGE, gap])
            self.assertEqual(next(items), LATER)
            self.assertEqual(asked, ["", since])

    def test_notices_and_bytes(self):
        cursor, access = {"cursor": "5f3a09c1-9"}, {"access": {"denied": ["/b"], "partial": []}}
        text = block({"weather": {}}) + block(access) + ":\n" + block(BYTES) + block(cursor)
        _, items, asked = self.follow((200, text), (503, ""), (200, block(LATER)))
        self.assertEqual(next(items), access)
        self.assertEqual(next(items)["data"], b"\xff\0")
        self.assertEqual(next(items), LATER)
        self.assertEqual(asked, ["", "5f3a09c1-9", "5f3a09c1-9"])

    def test_the_end_needs_a_token(self):
        _, items, _ = self.follow((200, block({"end": {"reason": "a_new_one"}})))
        with self.assertRaises(follow.TokenEnded):
            next(items)


if __name__ == "__main__":
    unittest.main()
