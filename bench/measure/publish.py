"""Publishing in bulk: NDJSON streamed on one connection to the control listener."""

import json
import re
import statistics
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from . import table
from .bench import Bench, MeasurementError
from .client import NDJSON, Client
from .servers import Stentor, expect_body

TOPICS = 1_000
MESSAGE_BYTES = 100
STREAM_SECONDS = 4
WARM_UP_SECONDS = 1


@dataclass(frozen=True)
class Published:
    """One stream: what the server took, and in what time."""

    messages: int
    wall_seconds: float
    cpu_seconds: float


def publish(bench: Bench) -> list[table.Row]:
    """Messages per second, by the wall clock and by the server's processor time.

    The server with all its threads is held on one core, so the wall figure is what one core takes.
    """
    with Stentor(bench) as stentor:
        stream(stentor, WARM_UP_SECONDS)
        runs = [stream(stentor, STREAM_SECONDS) for _ in range(min(3, bench.options.rounds))]
        last = TOPICS - 1
        expect_body(stentor, topic(last), message(last).encode())
    wall = statistics.median(run.messages / run.wall_seconds for run in runs)
    cpu = statistics.median(run.messages / run.cpu_seconds for run in runs)
    what = f"publishing {MESSAGE_BYTES}-byte messages to {TOPICS:,} topics"
    target = table.at_least(100_000, "/s")
    return [
        table.absolute_row(f"{what}: per second on one core", f"{wall:,.0f}/s", wall, target),
        table.note(f"{what}: per second of server CPU", f"{cpu:,.0f}/s"),
    ]


def stream(stentor: Stentor, seconds: float) -> Published:
    """Sends the same batch of lines, one message per topic, as chunks until time is up."""
    lines = "".join(
        json.dumps({"topic": topic(n), "data": message(n)}, separators=(",", ":")) + "\n"
        for n in range(TOPICS)
    ).encode()
    cpu, start = stentor.cpu_seconds(), time.monotonic()

    def until_time_is_up() -> Iterator[bytes]:
        while time.monotonic() - start < seconds:
            yield lines

    batches = send_lines(stentor, TOPICS, until_time_is_up())
    wall, cpu = time.monotonic() - start, stentor.cpu_seconds() - cpu
    return Published(batches * TOPICS, wall, cpu)


def send_lines(stentor: Stentor, each: int, batches: Iterable[bytes]) -> int:
    """Streams batches of so many lines on one connection; returns how many batches there were."""
    count = 0

    def counted() -> Iterator[bytes]:
        nonlocal count
        for lines in batches:
            yield lines
            count += 1

    with Client(stentor.control_port) as client:
        _, answer = client.succeed("POST", "/-/publish", counted(), **NDJSON)
    if count * each not in [int(figure) for figure in re.findall(rb"\d+", answer)]:
        raise MeasurementError(f"POST /-/publish of {count * each} messages answered {answer!r}")
    return count


def topic(n: int) -> str:
    return f"/bench/{n:04d}"


def message(n: int) -> str:
    return f"message {n:04d} ".ljust(MESSAGE_BYTES, ".")
