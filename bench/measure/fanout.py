"""One message to many readers, against the floor's bare sends and nchan."""

import json
import statistics
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter

from . import table
from .bench import Bench
from .load import Series, Usage, alternate, foreign_share
from .process import Memory, Server
from .push import Readers, capture, message, pace
from .servers import NDJSON, QUIET_STREAMS_CONFIG, FloorPush, Nchan, Publisher, Stentor

READERS = 15_000
WARM_UP_READERS = 300
WARM_UP_MESSAGES = 2
PER_SECOND = 4
TOPIC = "/bench/fanout"

MANY_READERS = 2_000
QUOTES = 50
BATCHES_PER_SECOND = 10


@dataclass(frozen=True)
class Sample:
    """One round of one subject."""

    cpu_us: float
    """Processor time of the server process per delivered message, in microseconds."""

    last_ms: float
    """From publishing a message until the last reader had it; the median of the round."""

    foreign_share: float


@dataclass
class Subject:
    """A server with its readers; publishes for some seconds and says what that cost."""

    name: str
    server: Server
    readers: Readers
    publish_port: int
    publish_batch: Callable[[Publisher, list[bytes]], object]
    batch: int = 1
    """Messages with consecutive numbers that are published together."""

    batches_per_second: float = PER_SECOND
    next: int = 1

    def publish(self, publisher: Publisher) -> None:
        numbers = range(self.next, self.next + self.batch)
        self.publish_batch(publisher, [message(number) for number in numbers])
        self.next += self.batch

    def warm_up(self) -> None:
        with Publisher(self.publish_port) as publisher:
            for _ in range(WARM_UP_MESSAGES):
                self.publish(publisher)
        self.readers.await_message(self.next - 1)

    def load(self, seconds: int) -> Sample:
        """The first batch of each round is not counted: it fetches what the others displaced."""
        batches = max(1, round(seconds * self.batches_per_second))
        with Publisher(self.publish_port) as publisher:
            self.publish(publisher)
            self.readers.await_message(self.next - 1)
            self.readers.mark()
            before = Usage.now(self.server, self.readers)
            pace(batches, self.batches_per_second, lambda _: self.publish(publisher))
            self.readers.await_message(self.next - 1)
            after = Usage.now(self.server, self.readers)
        report = self.readers.report()
        report.expect_each_once(self.name, batches * self.batch)
        if self.batch == 1 and max(report.last_ns.values()) > 1e9 / self.batches_per_second:
            table.progress(f"warning: {self.name} had not finished with a message when the next "
                           "came, and may have sent two in one write")
        return Sample(
            cpu_us=(after.server - before.server) * 1e6 / report.messages,
            last_ms=statistics.median(report.last_ns.values()) / 1e6,
            foreign_share=foreign_share(before, after),
        )


def fanout(bench: Bench) -> list[table.Row]:
    """15,000 SSE readers of one topic, a message of 64 bytes four times a second."""
    return fan_out_to(bench, "SSE", 128, websocket=False)


def fanout_ws(bench: Bench) -> list[table.Row]:
    """The same with WebSocket."""
    return fan_out_to(bench, "WebSocket", 160, websocket=True)


def fan_out_to(bench: Bench, kind: str, bytes_max: int, websocket: bool) -> list[table.Row]:
    with ExitStack() as stack:
        stentor = stack.enter_context(Stentor(bench, config=QUIET_STREAMS_CONFIG))
        data = message(0)
        stentor.put(TOPIC, data)
        captured = capture(stentor, TOPIC, data, websocket)
        floor = stack.enter_context(FloorPush(bench, *captured))
        nchan = stack.enter_context(Nchan())
        subjects = []
        for server, port, path in (
            (stentor, stentor.control_port, TOPIC),
            (floor, floor.publish_port, "/"),
            (nchan, nchan.port, "/pub"),
        ):
            options = ["--ws"] if websocket else []
            readers = stack.enter_context(Readers(bench, server, [TOPIC], READERS, *options))
            subjects.append(Subject(server.name, server, readers, port, each_to(path)))
        before = {subject.name: memory_with(subject, WARM_UP_READERS) for subject in subjects}
        for subject in subjects:
            memory_with(subject, READERS)
        series = alternate(bench.options, subjects)
        more = READERS - WARM_UP_READERS
        grown = {subject.name: subject.server.memory().growth_each(before[subject.name], more)
                 for subject in subjects}
    what = f"{READERS:,} {kind} readers of one topic"
    return [memory_row(what, grown, bytes_max), *cost_rows(what, series)]


def memory_with(subject: Subject, readers: int) -> Memory:
    """Memory with that many readers, each of which has had messages."""
    subject.readers.hold(readers)
    subject.warm_up()
    return subject.server.memory()


def memory_row(what: str, grown: dict[str, Memory], bytes_max: int) -> table.Row:
    mine = grown["stentor"]
    others = ", ".join(f"{name} {grown[name].resident:,} B" for name in ("floor_push", "nchan"))
    return table.absolute_row(
        f"{what}: process memory each",
        f"{mine.resident} B (PSS {mine.proportional}, anonymous {mine.anonymous})",
        mine.resident, table.at_most(bytes_max, " B"), others)


def cost_rows(what: str, series: Series[Sample]) -> list[table.Row]:
    """The last row tells how much of nchan's time is left to win: the floor's own ratio to it."""
    cpu, last = f"{what}: CPU per delivery", f"{what}: until the last has it"
    return [
        series.row(cpu, "stentor", "floor_push", cpu_us, "{:.2f} us", table.at_most(1.10)),
        series.row(cpu, "stentor", "nchan", cpu_us, "{:.2f} us", table.at_most(0.65)),
        series.row(last, "stentor", "floor_push", last_ms, "{:.2f} ms", table.at_most(1.10)),
        series.row(f"{cpu} of the floor", "floor_push", "nchan", cpu_us, "{:.2f} us"),
    ]


def coalescing(bench: Bench) -> list[table.Row]:
    """50 quotes published together every 100 ms to 2,000 readers of all of them.

    The floor sends the same bytes with one send for each message and reader. It could not do so
    ten times a second, so it is published to as fast as it goes: its figure is CPU time too.
    """
    path = "/-/events?topic=/quotes/*"
    topics = [f"/quotes/q{n:02d}" for n in range(QUOTES)]
    with ExitStack() as stack:
        stentor = stack.enter_context(Stentor(bench, config=QUIET_STREAMS_CONFIG))
        data = message(0)
        stentor.put(topics[0], data)
        floor = stack.enter_context(FloorPush(bench, *capture(stentor, path, data)))
        subjects = [
            Subject("stentor", stentor,
                    stack.enter_context(Readers(bench, stentor, [path], MANY_READERS)),
                    stentor.control_port, all_to(topics), QUOTES, BATCHES_PER_SECOND),
            Subject("floor_push", floor,
                    stack.enter_context(Readers(bench, floor, ["/"], MANY_READERS)),
                    floor.publish_port, each_to("/"), QUOTES, batches_per_second=1),
        ]
        for subject in subjects:
            subject.readers.hold(MANY_READERS)
        series = alternate(bench.options, subjects)
    what = f"{QUOTES} quotes each 100 ms to {MANY_READERS:,} readers of all"
    return [
        table.ratio_row(
            f"{what}: CPU per delivery", f"{series.median('stentor', cpu_us):.3f} us",
            f"one send each {series.median('floor_push', cpu_us):.2f} us",
            series.ratio("stentor", "floor_push", cpu_us), table.at_most(0.25)),
        table.absolute_row(
            f"{what}: until the last has one", f"{series.median('stentor', last_ms):.1f} ms",
            series.median("stentor", last_ms), None),
    ]


def each_to(path: str) -> Callable[[Publisher, list[bytes]], object]:
    """Publishes each message by itself; nchan and the floor understand it too."""
    return lambda publisher, batch: [publisher.put(path, data) for data in batch]


def all_to(topics: list[str]) -> Callable[[Publisher, list[bytes]], object]:
    """Publishes one message for each topic, all in one request."""
    def publish(publisher: Publisher, batch: list[bytes]) -> None:
        lines = "".join(json.dumps({"topic": topic, "data": data.decode()}) + "\n"
                        for topic, data in zip(topics, batch, strict=True))
        publisher.publish("POST", "/-/publish", lines.encode(), NDJSON)

    return publish


cpu_us = attrgetter("cpu_us")
last_ms = attrgetter("last_ms")
