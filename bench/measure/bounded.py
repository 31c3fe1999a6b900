"""Memory and refused publishes with mixes of readers, when values fill their limit."""

import random
import socket
import threading
import time
from contextlib import ExitStack

from . import client, table
from .bench import Bench, MeasurementError
from .client import Client, get, stream, websocket
from .servers import Stentor

MIB = 1 << 20
LIMITS_MIB = 8, 77, 512
VALUE_BYTES = 20_000
READERS_MAX = 4 * MIB
FILL = 0.9
PUBLISHES_MIN = 2_000
PAUSE_SECONDS = 0.001
"""Between two publishes: readers that keep up are those for whom forms are rendered."""
RATIO_MAX = 1.15
CODINGS = "identity", "gzip", "br", "zstd"
SETTLE_SECONDS = 2
DRAIN_SECONDS = 30


def bounded(bench: Bench) -> list[table.Row]:
    """Memory with readers of every kind against the limits' sum, and publishes refused."""
    rows = []
    for limit in LIMITS_MIB:
        for mix in MIXES:
            rows += measured(bench, limit, mix)
    return rows


def measured(bench: Bench, limit: int, mix: str) -> list[table.Row]:
    config = (f"[limits]\nstored_bytes_max = '{limit} MiB'\nreaders_bytes_max = '4 MiB'\n"
              f"[[topics]]\nmatch = '/**'\nhistory = 1\n")
    topics = [f"/t/{n}" for n in range(int(limit * MIB * FILL / (VALUE_BYTES + 400)))]
    text = escaped if "escaped" in mix else plain
    with Stentor(bench, config=config, cores="0,1") as stentor:
        before = stentor.memory().anonymous
        with Client(stentor.control_port) as publisher:
            for n, topic in enumerate(topics):
                publisher.put(topic, text(n))
        with ExitStack() as stack:
            for reader in MIXES[mix](stentor, topics):
                stack.enter_context(reader)
            publisher = stack.enter_context(Client(stentor.control_port))
            refused, publishes = 0, max(PUBLISHES_MIN, len(topics))
            for n in range(publishes):
                time.sleep(PAUSE_SECONDS)
                try:
                    publisher.put(topics[n % len(topics)], text(n))
                except MeasurementError:
                    refused += 1
            time.sleep(SETTLE_SECONDS)
            grown = stentor.memory().anonymous - before
            stored = client.status(stentor.control_port)["stored"]
    # Versions before 0.1.0 had no limit of what is rendered.
    limits = stored["max"] + stored.get("forms_max", 0) + READERS_MAX
    what = f"stored_bytes_max {limit} MiB, {mix}"
    against = f"{limits / MIB:,.1f} MiB of limits"
    history = stored["evicted_total"]
    return [
        table.ratio_row(f"{what}: memory", f"{grown / MIB:,.1f} MiB", against, grown / limits,
                        table.at_most(RATIO_MAX)),
        table.absolute_row(f"{what}: refused publishes and evicted messages",
                           f"{refused} of {publishes:,}, {history}", refused + history,
                           table.at_most(0)),
    ]


def plain(n: int) -> bytes:
    chance = random.Random(n)
    line = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz ", k=1_000))
    return (f"{n} " + line * (VALUE_BYTES // 1_000)).encode()[:VALUE_BYTES]


def escaped(n: int) -> bytes:
    """JSON takes two bytes for each."""
    return (f"{n} " + "\"\\\n\t" * VALUE_BYTES).encode()[:VALUE_BYTES]


class Reading:
    """Connections that a thread reads until the end."""

    def __init__(self, stentor: Stentor, requests: list[bytes], again: bool = False,
                 is_slow: bool = False) -> None:
        self.requests, self.again, self.is_slow = requests, again, is_slow
        self.ended = threading.Event()
        self.socket = socket.socket()
        if is_slow:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        self.socket.connect(("127.0.0.1", stentor.port))
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self) -> "Reading":
        self.thread.start()
        return self

    def run(self) -> None:
        try:
            while True:
                for request in self.requests:
                    self.socket.sendall(request)
                if not self.again:
                    break
                self.socket.recv(1 << 16)
            while self.socket.recv(512 if self.is_slow else 1 << 16):
                if self.ended.wait(0.2 if self.is_slow else 0):
                    break
        except OSError:
            pass

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(DRAIN_SECONDS)
        self.socket.close()


def streams(stentor: Stentor, _: list[str]) -> list[Reading]:
    """An event stream, and a WebSocket with and without compression, of all topics."""
    target = "/-/events?topic=/t/*"
    return [Reading(stentor, [request]) for request in (
        stream(target), websocket(target), websocket(target, deflate=True))]


def topic_by_topic(stentor: Stentor, topics: list[str]) -> list[Reading]:
    """An event stream and a WebSocket of each of 400 topics, beside those of all."""
    chosen = topics[:400]
    each = [[stream(topic)] for topic in chosen] + [[websocket(topic)] for topic in chosen]
    return streams(stentor, topics) + [Reading(stentor, requests) for requests in each]


def getters(stentor: Stentor, topics: list[str]) -> list[Reading]:
    """GETs of all values in each content coding, asked for until they are compressed."""
    for _ in range(3):
        with Client(stentor.port) as connection:
            for topic in topics:
                for coding in CODINGS:
                    connection.read(topic, **{"Accept-Encoding": coding})
        time.sleep(SETTLE_SECONDS)
    return []


def slow(stentor: Stentor, topics: list[str]) -> list[Reading]:
    """200 readers of all topics and 200 that pipeline GETs, all of which read 2.5 KB/s."""
    target = "/-/events?topic=/t/*"
    gets = [get(topic) for topic in topics[:64]]
    return [Reading(stentor, requests, is_slow=True)
            for requests in [[stream(target)]] * 200 + [gets] * 200]


def everything(stentor: Stentor, topics: list[str]) -> list[Reading]:
    getters(stentor, topics)
    return topic_by_topic(stentor, topics) + slow(stentor, topics)


MIXES = {
    "streams": streams,
    "streams, escaped": streams,
    "streams of each topic, escaped": topic_by_topic,
    "GETs in each coding": getters,
    "slow readers": slow,
    "all of these": everything,
}
