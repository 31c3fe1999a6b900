"""What followers cost their leader, how far behind they are, and whether readers can go from one
server to another."""

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

from . import table
from .bench import Bench
from .client import Client, stream
from .compare import Contestant, compare
from .publish import (
    MESSAGE_BYTES,
    TOPICS,
    message,
    send_lines,
    topic,
)
from .servers import Stentor, ready

RATE, AT_ONCE = 100_000, 200
SECONDS = 5
FEEDS = 4
TOPICS_MANY = 1_000_000
SWITCHES, WANDERERS, WANDERED = 10_000, 25, "/wandered"
STAY_SECONDS_MAX = 0.02
# Histories that reach back as far as a reader that changes servers may have been away.
CONFIG = "[[topics]]\nmatch = '/bench/**'\nhistory = 1\n[[topics]]\nmatch = '/**'\nhistory = 5000\n"


def following(bench: Bench) -> list[table.Row]:
    """What followers cost their leader, how far behind they are, changes of the server."""
    return table.each(table.named(cost, lag, switches, start), bench)


def leader_on(bench: Bench, cores: str) -> Stentor:
    return Stentor(bench, config=CONFIG, cores=cores)


def follower_of(bench: Bench, leader: Stentor) -> AbstractContextManager[Stentor]:
    """A server that has all that the leader has."""
    config = f"[follow]\nleader = 'http://127.0.0.1:{leader.control_port}'\n"
    return ready(Stentor(bench, config=config, cores="0,1", name="follower"))


def publish_steadily(leader: Stentor, seconds: float) -> int:
    """So many messages a second on one connection, a few every two milliseconds. Returns how many
    there were."""
    batches = ["".join(json.dumps({"topic": topic(n), "data": message(n)}) + "\n"
                       for n in range(begin, begin + AT_ONCE)).encode()
               for begin in range(0, TOPICS, AT_ONCE)]

    def at_its_time() -> Iterator[bytes]:
        begun = time.monotonic()
        for number in range(int(seconds * RATE / AT_ONCE)):
            time.sleep(max(0.0, begun + number * AT_ONCE / RATE - time.monotonic()))
            yield batches[number % len(batches)]

    return send_lines(leader, AT_ONCE, at_its_time()) * AT_ONCE


def cost(bench: Bench) -> list[table.Row]:
    """Of feeds that are read and thrown away, so that the leader's time is what is compared."""
    none = cpu_of_publishing(bench, 0)
    feeds = (cpu_of_publishing(bench, FEEDS) - none) / FEEDS
    what = f"leader at {RATE:,} messages/s: CPU per message"
    return [
        table.absolute_row(f"{what}, without followers", f"{none:.2f} us", none, None),
        table.absolute_row(f"{what} and follower", f"{feeds:.2f} us", feeds,
                           table.at_most(2, " us")),
    ]


def cpu_of_publishing(bench: Bench, feeds: int) -> float:
    """Microseconds of the leader's time for a message, with so many feeds on it."""
    with leader_on(bench, "0") as leader, ExitStack() as stack:
        publish_steadily(leader, 1)
        for _ in range(feeds):
            throw_away(stack, leader)
        time.sleep(0.2)
        before = leader.cpu_seconds()
        messages = publish_steadily(leader, SECONDS)
        return (leader.cpu_seconds() - before) / messages * 1e6


def throw_away(stack: ExitStack, leader: Stentor) -> None:
    """Reads a feed on a thread, until the stack is left."""
    address = ("127.0.0.1", leader.control_port)
    connection = stack.enter_context(socket.create_connection(address, 30))
    connection.sendall(b"GET /-/feed HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    def read() -> None:
        buffer = bytearray(1 << 20)
        while connection.recv_into(buffer):
            pass

    thread = threading.Thread(target=read)
    thread.start()
    stack.callback(thread.join)
    stack.callback(connection.shutdown, socket.SHUT_RDWR)


def lag(bench: Bench) -> list[table.Row]:
    """How long a message takes to a reader at the follower, and to one at the leader, while others
    are published."""
    with leader_on(bench, "0,1") as leader, follower_of(bench, leader) as follower:
        found = {}
        for name, server in (("leader", leader), ("follower", follower)):
            publishing = threading.Thread(target=publish_steadily, args=(leader, SECONDS + 2))
            publishing.start()
            found[name] = delivery_p99_ms(bench, leader, server)
            publishing.join()
    what = f"delivery at a follower beside {RATE:,} messages/s, p99"
    ours = found["follower"]
    return [table.absolute_row(what, f"{ours:.2f} ms", ours, table.at_most(5, " ms"),
                               f"at its leader {found['leader']:.2f} ms")]


def delivery_p99_ms(bench: Bench, leader: Stentor, server: Stentor) -> float:
    reader = Contestant(server.name, server, "/seen",
                        f"http://127.0.0.1:{leader.control_port}/seen")
    found = compare(bench, "push", [reader], "--publish-method", "PUT", "--connections", 10,
                    "--as", "sse", "--rate", 100, "--messages", 100 * SECONDS)
    return found.median(server.name, lambda report: report["delivery"]["latency"]["p99_us"]) / 1e3


def switches(bench: Bench) -> list[table.Row]:
    """Readers that go to and fro between both with the id of the last message they had."""
    with leader_on(bench, "0,1") as leader, follower_of(bench, leader) as follower:
        wanderers = [Wanderer([leader.port, follower.port], n) for n in range(WANDERERS)]
        with Client(leader.control_port) as publisher:
            publisher.put(WANDERED, b"0")
            for wanderer in wanderers:
                wanderer.thread.start()
            number = 0
            while any(wanderer.thread.is_alive() for wanderer in wanderers):
                number += 1
                publisher.put(WANDERED, b"%d" % number)
                time.sleep(0.002)
    wrong = [wanderer.wrong for wanderer in wanderers if wanderer.wrong]
    heard = sum(wanderer.heard for wanderer in wanderers)
    changes = sum(wanderer.changes for wanderer in wanderers)
    if wrong:
        table.progress(f"switches: {wrong[0]}")
    what = f"{changes:,} changes of the server, {heard:,} messages: gaps, missing, twice"
    is_good = not wrong and changes >= SWITCHES
    return [table.Row(what, str(len(wrong)), "", "", "0", is_good)]


class Wanderer:
    """Reads a stream at one server for a moment, then at the next, and checks that the messages are
    numbered one by one."""

    def __init__(self, ports: list[int], seed: int) -> None:
        self.ports, self.random = ports, random.Random(seed)
        self.heard, self.changes, self.wrong = 0, 0, ""
        self.last: tuple[bytes, int] | None = None
        self.thread = threading.Thread(target=self.wander, daemon=True)

    def wander(self) -> None:
        try:
            while self.changes < SWITCHES // WANDERERS and not self.wrong:
                self.read_at(self.ports[self.changes % len(self.ports)])
                self.changes += 1
        except OSError as error:
            self.wrong = f"a stream failed: {error}"

    def read_at(self, port: int) -> None:
        cursor = [f"Last-Event-ID: {self.last[0].decode()}"] if self.last else []
        until = time.monotonic() + self.random.uniform(0, STAY_SECONDS_MAX)
        with socket.create_connection(("127.0.0.1", port), 30) as connection:
            connection.sendall(stream(WANDERED, *cursor))
            events = connection.makefile("rb")
            if not events.readline().startswith(b"HTTP/1.1 200"):
                self.wrong = f"no stream behind {self.last}"
                return
            identity = b""
            # It stays until it was sent something, so that each server is read at.
            seen = self.heard
            while self.heard == seen or time.monotonic() < until:
                field, _, value = events.readline().strip().partition(b": ")
                if field == b"event":
                    self.wrong = f"{value!r} behind {self.last} at port {port}"
                    return
                if field == b"id":
                    identity = value
                if field == b"data":
                    self.hear(identity, int(value))

    def hear(self, identity: bytes, number: int) -> None:
        if self.last and number != self.last[1] + 1:
            self.wrong = f"{number} behind {self.last}"
        self.last = identity, number
        self.heard += 1


def topics_many() -> Iterator[tuple[str, str]]:
    """A message for each of many topics."""
    return ((f"/bench/topics/{n:07d}", "x" * MESSAGE_BYTES) for n in range(TOPICS_MANY))


def start(bench: Bench) -> list[table.Row]:
    """A follower of a leader with many topics, and what it holds when it is there."""
    with leader_on(bench, "0,1") as leader:
        leader.put_many(topics_many())
        begun = time.monotonic()
        with follower_of(bench, leader) as follower:
            seconds = time.monotonic() - begun
            ours, theirs = follower.memory().resident, leader.memory().resident
    return [
        table.absolute_row(f"start of a follower with {TOPICS_MANY:,} topics", f"{seconds:.1f} s",
                           seconds, table.at_most(6, " s")),
        table.ratio_row("its memory then", f"{ours / 1e6:.0f} MB",
                        f"its leader {theirs / 1e6:.0f} MB", ours / theirs, None),
    ]
