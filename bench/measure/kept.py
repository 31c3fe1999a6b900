"""What a kept message costs in memory, once it was compressed or decompressed."""

import gzip
import random
import socket
import time
from contextlib import AbstractContextManager

from . import table
from .bench import Bench, MeasurementError
from .client import Client, websocket
from .servers import Stentor

MESSAGES = 10_000
MESSAGE_BYTES = 1_024
WARM_UP_MESSAGES = 100
KEPT_BYTES_MAX = 4_096
TEXT_DEFLATED, PING = 0xc1, 0x89
READ_SECONDS_MAX = 60
SETTLE_SECONDS = 0.5


def kept(bench: Bench) -> list[table.Row]:
    """Memory per message of 10,000, each the only one of its topic.

    Whatever is large and short-lived beside them may leave the allocator with holes, of which a
    single message shows nothing: hence so many, one after the other.
    """
    values = [value(n) for n in range(MESSAGES)]
    with Stentor(bench) as stentor, Reader(stentor) as reader:
        grown = growth(stentor, values, {}, reader)
    rows = [row("read by a deflating WebSocket", grown)]
    with Stentor(bench) as stentor:
        grown = growth(stentor, [gzip.compress(value) for value in values],
                       {"Content-Encoding": "gzip"})
    return [*rows, row("published with gzip", grown)]


def row(what: str, grown: int) -> table.Row:
    each = grown / MESSAGES
    return table.absolute_row(f"{MESSAGES:,} kept messages of 1 KB, {what}: process memory each",
                              f"{each:,.0f} B", each, table.at_most(KEPT_BYTES_MAX, " B"))


def value(n: int) -> bytes:
    """Text that shrinks to less than a half, another for each `n`."""
    chance = random.Random(n)
    text = ""
    while len(text) < MESSAGE_BYTES:
        text += f'{{"symbol":"S{chance.randrange(1_000)}","bid":{chance.randrange(10_000)}}},'
    return text[:MESSAGE_BYTES].encode()


class Reader(AbstractContextManager["Reader"]):
    """One WebSocket that reads all topics and takes deflated messages."""

    def __init__(self, stentor: Stentor) -> None:
        self.socket = socket.create_connection(("127.0.0.1", stentor.port), READ_SECONDS_MAX)
        self.socket.sendall(websocket("/-/events?topic=/**", deflate=True))
        self.file = self.socket.makefile("rb")
        head = b"".join(iter(self.file.readline, b"\r\n"))
        if b"permessage-deflate" not in head:
            raise MeasurementError(f"the WebSocket does not deflate: {head!r}")
        self.frame()  # The cursor to begin with.

    def read(self) -> None:
        """Reads a message, which must be deflated."""
        while (first_byte := self.frame()) == PING:
            pass
        if first_byte != TEXT_DEFLATED:
            raise MeasurementError(f"a frame that begins with {first_byte:#x}")

    def frame(self) -> int:
        """Reads a frame, and returns its first byte."""
        first_byte, short = self.file.read(2)
        self.file.read(int.from_bytes(self.file.read(2)) if short == 126 else short)
        return first_byte

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def growth(stentor: Stentor, values: list[bytes], fields: dict[str, str],
           reader: Reader | None = None) -> int:
    """How much anonymous memory the values take, published one by one, and read if by anybody."""
    put(stentor, "/warm", values[:WARM_UP_MESSAGES], fields, reader)
    time.sleep(SETTLE_SECONDS)
    before = stentor.memory().anonymous
    put(stentor, "/kept", values, fields, reader)
    time.sleep(SETTLE_SECONDS)
    return stentor.memory().anonymous - before


def put(stentor: Stentor, prefix: str, values: list[bytes], fields: dict[str, str],
        reader: Reader | None) -> None:
    with Client(stentor.control_port) as publisher:
        for n, body in enumerate(values):
            if (status := publisher.put(f"{prefix}/{n}", body, **fields)) != 201:
                raise MeasurementError(f"PUT {prefix}/{n}: {status}")
            if reader:
                reader.read()
