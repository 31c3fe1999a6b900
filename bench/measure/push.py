"""Numbered messages, what one reader is sent of a stream, and the readers of readers.c.

`stentor bench push` is the instrument of all streams. readers.c shares no line with it and with
the server: it checks one figure of it (`bench/run generator`), and reads where messages are
published in batches, which `stentor bench` does not (`bench/run coalescing`).
"""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from . import client
from .bench import Bench, MeasurementError
from .compare import Contestant
from .process import Instrument, Server
from .servers import QUIET_STREAMS_CONFIG, FloorPush, Nchan, Stentor

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


def capture(server: Server, path: str, data: bytes, is_websocket: bool = False) -> Captured:
    """Reads a stream of `server` until `data` has come; a publish must have preceded. An event is
    a chunk of its own, whose size and end go with it."""
    end = b"" if is_websocket else b"\n\n\r\n"
    received = b""
    try:
        with socket.create_connection(("127.0.0.1", server.port), ANSWER_SECONDS_MAX) as stream:
            stream.sendall((client.websocket if is_websocket else client.stream)(path))
            while data not in received or end not in received[received.index(data):]:
                more = stream.recv(65536)
                if not more or len(received) > CAPTURE_BYTES_MAX:
                    raise MeasurementError(f"{server.name}: GET {path}: {received[:200]!r}")
                received += more
    except OSError as error:
        raise MeasurementError(f"{server.name}: GET {path}: {error}") from error
    head, blank_line, sent = received.partition(b"\r\n\r\n")
    before, _, behind = sent.partition(data)
    if is_websocket:
        return Captured(head + blank_line, before, b"")
    return Captured(head + blank_line, before.rpartition(end)[2], behind.partition(end)[0] + end)


@contextmanager
def streaming_servers(bench: Bench, topic: str,
                      is_websocket: bool = False) -> Iterator[list[Contestant]]:
    """Stentor, nchan and the floor, with where messages for their readers are published."""
    with ExitStack() as stack:
        stentor = stack.enter_context(Stentor(bench, config=QUIET_STREAMS_CONFIG))
        data = message(0)
        stentor.put(topic, data)
        captured = capture(stentor, topic, data, is_websocket)
        floor = stack.enter_context(FloorPush(bench, *captured))
        nchan = stack.enter_context(Nchan())
        yield [
            Contestant(name, server, topic, f"http://127.0.0.1:{port}{path}")
            for name, server, port, path in (
                ("stentor", stentor, stentor.control_port, topic),
                ("nchan", nchan, nchan.port, "/pub"),
                ("floor", floor, floor.publish_port, "/"))]


class Readers(Instrument):
    """The process of readers.c: so many streams of one path."""

    def __init__(self, bench: Bench, server: Server, path: str, count: int, **more: str) -> None:
        super().__init__(f"readers of {server.name}",
                         [bench.program("readers"), server.port, path, count], **more)
        self.count = count
        try:
            self.await_message(-1)
        except BaseException:
            self.stop()
            raise

    def await_message(self, number: int) -> dict[str, float]:
        """Waits until all have it. Returns what came since the last call: `messages`, and the mean
        of the times until the last reader had each of them."""
        report = json.loads(self.order(f"await {number}"))
        if report["wrong"]:
            raise MeasurementError(f"{self.name}: {report['wrong']:,} of {report['messages']:,} "
                                   "messages were not the next one")
        return report


def pace(count: int, per_second: float, act: Callable[[int], None]) -> None:
    """Calls `act` with 0 to `count` - 1 at a steady rate; one that is late is not skipped."""
    start = time.monotonic()
    for turn in range(count):
        time.sleep(max(0.0, start + turn / per_second - time.monotonic()))
        act(turn)
