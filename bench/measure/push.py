"""What measurements of streams stand on: numbered messages, and the readers' process.

A message says its number and when it was published (`message`), so the readers (readers.c) can
check by themselves that each number comes exactly once and in order, and how long it took.
"""

import json
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import attacker
from .bench import LOAD_CORE, Bench, MeasurementError
from .process import Instrument, Server

MESSAGE_BYTES = 64
CAPTURE_BYTES_MAX = 64 * 1024
ANSWER_SECONDS_MAX = 30


def message(number: int, length: int = MESSAGE_BYTES) -> bytes:
    """Data of exactly `length` bytes; the time is CLOCK_MONOTONIC's, that of the readers too."""
    return f"n={number:010d} t={time.monotonic_ns():019d} ".ljust(length, ".").encode()


class Captured(NamedTuple):
    """The bytes one reader was sent: for the floor to send the same."""

    head: bytes
    before: bytes
    behind: bytes


def capture(server: Server, path: str, data: bytes, websocket: bool = False) -> Captured:
    """Reads a stream of `server` until `data` has come; a publish must have preceded."""
    received = b""
    end = data if websocket else b"\n\n"
    try:
        with socket.create_connection(("127.0.0.1", server.port), ANSWER_SECONDS_MAX) as stream:
            stream.sendall(attacker.websocket(path) if websocket else attacker.stream(path))
            while data not in received or end not in received[received.index(data):]:
                more = stream.recv(65536)
                if not more or len(received) > CAPTURE_BYTES_MAX:
                    raise MeasurementError(f"{server.name}: GET {path}: {received[:200]!r}")
                received += more
    except OSError as error:
        raise MeasurementError(f"{server.name}: GET {path}: {error}") from error
    head, blank_line, stream_bytes = received.partition(b"\r\n\r\n")
    before, _, after = stream_bytes.partition(data)
    if websocket:
        return Captured(head + blank_line, before, b"")
    before = before.rpartition(b"\n\n")[2]
    return Captured(head + blank_line, before, after.partition(b"\n\n")[0] + b"\n\n")


@dataclass(frozen=True)
class Report:
    """What the readers have counted since the mark; see readers.c."""

    figures: dict[str, Any]
    last_ns: dict[int, int]
    """Message number -> nanoseconds until the last reader had it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self.figures[name]
        except KeyError:
            raise AttributeError(name) from None

    def expect_each_once(self, server: str, published: int) -> None:
        """Every reader that is not meant to stall had every message once and in order.

        What mode=latest skipped counts as had; without that mode nothing is conflated.
        """
        wrong = {name: self.figures[name]
                 for name in ("ended", "gaps", "told", "silent", "repeated")
                 if self.figures[name]}
        expected = self.steady * published - self.conflated
        if wrong or self.messages != expected or self.current != self.steady:
            raise MeasurementError(
                f"{server}: {self.messages:,} of {expected:,} messages were delivered, "
                f"{self.current:,} of {self.steady:,} readers have the newest, {wrong}")


class Readers(Instrument):
    """The process of readers.c, on the core of the load unless told otherwise."""

    def __init__(self, bench: Bench, server: Server, paths: list[str], most: int,
                 *options: str, cores: str = str(LOAD_CORE)) -> None:
        command = [str(bench.program("readers")), "--port", str(server.port), "--most", str(most),
                   *options, *(word for path in paths for word in ("--path", path))]
        super().__init__(f"readers of {server.name}", command, cores)

    def order(self, order: str, answer: str) -> str:
        """Waits for the line that begins with `answer` and returns the rest of it."""
        line = super().order(order)
        if not line.startswith(answer):
            raise MeasurementError(f"{self.name}: {line.strip()}")
        return line[len(answer):].strip()

    def hold(self, count: int) -> None:
        self.order(f"hold {count}", "held")

    def mark(self) -> None:
        self.order("mark", "marked")

    def await_message(self, number: int, seconds: int = ANSWER_SECONDS_MAX) -> None:
        """Waits until all have it, or for so long; the report tells which."""
        self.order(f"await {number} {seconds}", "got")

    def stall(self) -> None:
        self.order("stall", "stalled")

    def resume(self, seconds: int) -> None:
        """Those that were stalled read again; waits until they have the newest, or so long."""
        self.order("resume", "resumed")
        self.order(f"catch-up {seconds}", "got")

    def report(self) -> Report:
        raw = json.loads("{" + self.order("report", "{"))
        return Report(raw, dict(raw.pop("last_ns")))


def pace(count: int, per_second: float, act: Callable[[int], None]) -> None:
    """Calls `act` with 0 to `count` - 1 at a steady rate; one that is late is not skipped."""
    start = time.monotonic()
    for turn in range(count):
        time.sleep(max(0.0, start + turn / per_second - time.monotonic()))
        act(turn)
