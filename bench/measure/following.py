"""What followers cost their leader, how far behind they are, and whether readers can go from one
server to another."""

import asyncio
import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

from . import table
from .bench import Bench
from .client import Client, events
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
STAY_SECONDS_MAX, SWITCHES_SECONDS_MAX = 0.02, 600
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
        table.note(f"{what}, without followers", f"{none:.2f} us"),
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
        is_over = threading.Event()

        def publish() -> None:
            with Client(leader.control_port) as client:
                for number in itertools.count(1):
                    client.put(WANDERED, b"%d" % number)
                    if is_over.wait(0.002):
                        return

        leader.put(WANDERED, b"0")
        publishing = threading.Thread(target=publish)
        publishing.start()
        try:
            heard, changes, wrong = asyncio.run(wander_all([leader.port, follower.port]))
        finally:
            is_over.set()
            publishing.join()
    if wrong:
        table.progress(f"switches: {wrong[0]}")
    what = f"{changes:,} changes of the server, {heard:,} messages: gaps, missing, twice"
    return [table.Row(what, str(len(wrong)), "", "", "0", not wrong and changes >= SWITCHES)]


async def wander_all(ports: list[int]) -> tuple[int, int, list[str]]:
    """What all readers heard, their changes of the server, and what was wrong."""
    async with asyncio.timeout(SWITCHES_SECONDS_MAX):
        found = await asyncio.gather(*(wander(ports, random.Random(seed))
                                       for seed in range(WANDERERS)))
    return (sum(heard for heard, _, _ in found), sum(changes for _, changes, _ in found),
            [wrong for _, _, wrong in found if wrong])


async def wander(ports: list[int], dice: random.Random) -> tuple[int, int, str]:
    """Reads a stream at one server for a moment, then at the next, and checks that the messages are
    numbered one by one. At each it stays until it was sent something."""
    last, number, heard = "", -1, 0
    for change in range(SWITCHES // WANDERERS):
        fields = {"Last-Event-ID": last} if last else {}
        until = time.monotonic() + dice.uniform(0, STAY_SECONDS_MAX)
        async for event in events(ports[change % len(ports)], WANDERED, fields):
            if "event" in event:
                return heard, change, f"{event} behind {last}"
            if "data" not in event:
                continue
            if last and int(event["data"]) != number + 1:
                return heard, change, f"{event} behind {last}"
            last, number, heard = event["id"], int(event["data"]), heard + 1
            if time.monotonic() >= until:
                break
        else:
            return heard, change, f"a stream ended behind {last}"
    return heard, SWITCHES // WANDERERS, ""


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
