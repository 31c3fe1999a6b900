"""One message to many readers, against the floor's bare sends and nchan."""

import json
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter

from . import table
from .bench import Bench, MeasurementError
from .client import NDJSON, Client
from .compare import CPU_EACH, LAST, PROCESS_EACH, push
from .load import Load, Usage, alternate, cpu_us, foreign_share
from .process import Server
from .push import MESSAGE_BYTES, Readers, capture, message, pace, streaming_servers
from .servers import QUIET_STREAMS_CONFIG, FloorPush, Stentor

READERS = 15_000
PER_SECOND = 4
TOPIC = "/bench/fanout"

MANY_READERS = 2_000
QUOTES = 50
BATCHES_PER_SECOND = 10


def stream_load(bench: Bench, role: str, readers: int = READERS) -> Load:
    """A message of 64 bytes for all readers of one topic, four times a second."""
    kind = {"sse": "SSE", "ws": "WebSocket"}[role]
    with streaming_servers(bench, TOPIC, is_websocket=role == "ws") as servers:
        found = push(bench, servers, role, MESSAGE_BYTES, PER_SECOND, readers)
    return Load(f"{readers:,} {kind} readers of one topic", found, (PROCESS_EACH, CPU_EACH, LAST))


def fanout(bench: Bench) -> list[table.Row]:
    """15,000 SSE readers of one topic, a message of 64 bytes four times a second."""
    return rows(stream_load(bench, "sse"), 128)


def fanout_ws(bench: Bench) -> list[table.Row]:
    """The same with WebSocket."""
    return rows(stream_load(bench, "ws"), 160)


def rows(load: Load, bytes_max: int) -> list[table.Row]:
    """The last row tells how much of nchan's time is left to win: the floor's own ratio to it."""
    return [
        load.against_all(PROCESS_EACH, table.at_most(bytes_max, " B")),
        load.row(CPU_EACH, "floor", table.at_most(1.10)),
        load.row(CPU_EACH, "nchan", table.at_most(0.65)),
        load.row(LAST, "floor", table.at_most(1.10)),
        load.row(CPU_EACH, "nchan", name="floor"),
    ]


@dataclass(frozen=True)
class Delivered:
    """One round of one server: its processor time per delivery, and the mean time from publishing
    a message until the last reader had it."""

    cpu_us: float
    last_ms: float
    foreign_share: float


@dataclass
class Batches:
    """A server with the readers of readers.c; publishes for some seconds and says what that
    cost."""

    name: str
    server: Server
    readers: Readers
    publish_port: int
    topics: tuple[str, ...]
    """Each batch has a message for each topic, all in one request. With one topic, each message has
    a request of its own."""

    batch: int = 1
    batches_per_second: float = PER_SECOND
    next: int = 1

    def publish(self, publisher: Client) -> None:
        batch = [message(number) for number in range(self.next, self.next + self.batch)]
        self.next += self.batch
        if len(self.topics) == 1:
            for data in batch:
                publisher.put(self.topics[0], data)
            return
        lines = "".join(json.dumps({"topic": topic, "data": data.decode()}) + "\n"
                        for topic, data in zip(self.topics, batch, strict=True))
        publisher.succeed("POST", "/-/publish", lines.encode(), **NDJSON)

    def load(self, seconds: int) -> Delivered:
        """The first batch of each round is not counted: it fetches what the others displaced."""
        batches = max(1, round(seconds * self.batches_per_second))
        with Client(self.publish_port) as publisher:
            self.publish(publisher)
            self.readers.await_message(self.next - 1)
            before = Usage.now(self.server, self.readers)
            pace(batches, self.batches_per_second, lambda _: self.publish(publisher))
            report = self.readers.await_message(self.next - 1)
            after = Usage.now(self.server, self.readers)
        expected = batches * self.batch * self.readers.count
        if report["messages"] != expected:
            raise MeasurementError(f"{self.name}: {report['messages']:,} of {expected:,} messages "
                                   "were delivered")
        cpu_us = (after.server - before.server) * 1e6 / report["messages"]
        return Delivered(cpu_us, report["last_ms"], foreign_share(before, after))


def coalescing(bench: Bench) -> list[table.Row]:
    """50 quotes published together every 100 ms to 2,000 readers of all of them.

    The floor sends the same bytes with one send for each message and reader. It could not do so
    ten times a second, so it is published to as fast as it goes: its figure is CPU time too.
    """
    path = "/-/events?topic=/quotes/*"
    topics = tuple(f"/quotes/q{n:02d}" for n in range(QUOTES))
    with ExitStack() as stack:
        stentor = stack.enter_context(Stentor(bench, config=QUIET_STREAMS_CONFIG))
        data = message(0)
        stentor.put(topics[0], data)
        floor = stack.enter_context(FloorPush(bench, *capture(stentor, path, data)))
        series = alternate(bench.options, [
            Batches("stentor", stentor,
                    stack.enter_context(Readers(bench, stentor, path, MANY_READERS)),
                    stentor.control_port, topics, QUOTES, BATCHES_PER_SECOND),
            Batches("floor", floor,
                    stack.enter_context(Readers(bench, floor, "/", MANY_READERS)),
                    floor.publish_port, ("/",), QUOTES, batches_per_second=1),
        ])
    what = f"{QUOTES} quotes each 100 ms to {MANY_READERS:,} readers of all"
    return [
        series.row(f"{what}: CPU per delivery", "stentor", "floor", cpu_us, "{:.3f} us",
                   table.at_most(0.25), "one send each"),
        table.note(f"{what}: until the last has a message",
                   f"{series.median('stentor', attrgetter('last_ms')):.1f} ms"),
    ]
