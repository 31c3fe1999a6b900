"""A file of 100 MB: what it costs to send, and what those who do not read it cost."""

import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import site, table
from .bench import Bench, MeasurementError
from .client import be_far, get
from .load import Sample, Subject, alternate, interrupts_are_apart, per_second
from .process import TIED, Memory, Server
from .servers import PATIENT_CONFIG, NginxFiles, Stentor, expect_body

DOWNLOADERS = 8

SLOW_DOWNLOADERS = 10_000
WARM_UP_DOWNLOADERS = 300
SPARE_FILES = 100
SETTLE_SECONDS = 0.5

# Slow downloaders are such that the kernel holds little for each: about 100 KB of the file. Over
# loopback a segment has 64 KB and a send buffer room for 2 MB of them, and 10,000 of those are more
# than it allows TCP. It also makes the buffer larger for an address to which it once had to
# reorder, so they come from one that nobody else uses.
ADDRESS = "127.2.0.1"
FIRST_BYTES = 1_000
READ_BYTES = 64 * 1024

# More than the sockets hold, so that not all of it was sent before.
READ_ON_BYTES = 150_000
READ_ON_AT_ONCE = 100


@dataclass(frozen=True)
class Downloads(Subject):
    """The downloaders of a server's file. In place of requests it counts GB (10^9 bytes)."""

    program: Path = Path("downloads")
    file_bytes: int = 0

    def command(self, seconds: int) -> list[object]:
        return [*TIED, self.program, self.server.port, self.path, self.file_bytes,
                self.connections, seconds]

    def read_report(self, report: str) -> tuple[float, float]:
        found = self.read_json(report)
        if found["bytes"] != found["files"] * self.file_bytes or found["files"] < self.connections:
            raise MeasurementError(f"{self.name}: not whole files: {found}")
        return found["bytes"] / 1e9, found["bytes"] / found["ns"]


def large(bench: Bench) -> list[table.Row]:
    """Server CPU per GB sent to 8 downloaders, against nginx."""
    path = site.large()
    content = site.content(path)
    with Stentor(bench, config="", root=site.ROOT) as stentor, NginxFiles(site.ROOT) as nginx:
        for server in (stentor, nginx):
            expect_body(server, path, content)
        series = alternate(bench.options, [
            Downloads(server.name, server, path, DOWNLOADERS, program=bench.program("downloads"),
                      file_bytes=len(content))
            for server in (stentor, nginx)
        ])
    return [
        series.row(f"file of 100 MB, {DOWNLOADERS} downloaders: {label}", "stentor", "nginx",
                   figure, text, target)
        for label, figure, text, target in (
            ("CPU per GB", cpu_ms, "{:.0f} ms", table.at_most(1.05)),
            ("with soft interrupts", core_ms, "{:.0f} ms", None),
            ("as seen by them", per_second, "{:.2f} GB/s", None),
        )
        if figure is not core_ms or interrupts_are_apart()
    ]


def slow(bench: Bench) -> list[table.Row]:
    """Process memory of 10,000 downloaders who read a little and then stop."""
    needed = SLOW_DOWNLOADERS + WARM_UP_DOWNLOADERS + SPARE_FILES
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < needed:
        raise MeasurementError(f"{needed:,} open files are needed (ulimit -Hn)")
    path = site.large()
    content = site.content(path)
    with Stentor(bench, config=PATIENT_CONFIG, root=site.ROOT) as stentor:
        grown = slow_growth(stentor, path, content)
    with NginxFiles(site.ROOT) as nginx:
        nginx_grown = slow_growth(nginx, path, content)
    return [table.absolute_row(
        f"{SLOW_DOWNLOADERS:,} slow downloaders of 100 MB: process memory each",
        f"{grown.resident} B (PSS {grown.proportional}, anonymous {grown.anonymous})",
        grown.resident, table.at_most(256, " B"), f"nginx {nginx_grown.resident} B")]


def slow_growth(server: Server, path: str, content: bytes) -> Memory:
    """Growth from a few hundred downloaders to 10,000 more; afterwards each must get on."""
    with stalled(server, path, content, WARM_UP_DOWNLOADERS):
        time.sleep(SETTLE_SECONDS)
        before = server.memory()
        with stalled(server, path, content, SLOW_DOWNLOADERS) as downloaders:
            time.sleep(SETTLE_SECONDS)
            after = server.memory()
            for first in range(0, SLOW_DOWNLOADERS, READ_ON_AT_ONCE):
                read_on(downloaders[first:first + READ_ON_AT_ONCE])
    return after.growth_each(before, SLOW_DOWNLOADERS)


class Downloader:
    """Asks for the file and reads only when it is told to; each byte must be the right one."""

    def __init__(self, server: Server, path: str, content: bytes) -> None:
        self.content = content
        self.offset = 0
        self.socket = socket.socket()
        self.socket.settimeout(10)
        be_far(self.socket)
        self.socket.bind((ADDRESS, 0))
        self.socket.connect(("127.0.0.1", server.port))
        self.socket.sendall(get(path))
        received = b""
        while b"\r\n\r\n" not in received:
            received += self.receive()
        head, _, body = received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise MeasurementError(f"{server.name}: GET {path}: {head!r}")
        self.check(body)

    def read(self) -> None:
        """What there is; waits if that is nothing."""
        self.check(self.receive())

    def receive(self) -> bytes:
        received = self.socket.recv(READ_BYTES)
        if not received:
            raise ConnectionError(f"the end after {self.offset:,} bytes")
        return received

    def check(self, received: bytes) -> None:
        end = self.offset + len(received)
        if received != self.content[self.offset:end]:
            raise ConnectionError(f"wrong bytes between {self.offset:,} and {end:,}")
        self.offset = end


@contextmanager
def stalled(server: Server, path: str, content: bytes, count: int) -> Iterator[list[Downloader]]:
    """That many downloaders, each of which has got the first bytes and reads no more."""
    downloaders: list[Downloader] = []
    try:
        for _ in range(count):
            downloaders.append(Downloader(server, path, content))
            while downloaders[-1].offset < FIRST_BYTES:
                downloaders[-1].read()
        yield downloaders
    except OSError as error:
        raise MeasurementError(f"{server.name}: of {len(downloaders):,} slow downloaders one had "
                               f"{error}") from error
    finally:
        for downloader in downloaders:
            downloader.socket.close()


def read_on(downloaders: list[Downloader]) -> None:
    """Each reads more than was sent until now, and then leaves.

    They take turns, and read larger pieces than before: while one reads, the server sends to the
    others.
    """
    goal = {downloader: downloader.offset + READ_ON_BYTES for downloader in downloaders}
    for downloader in downloaders:
        downloader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, READ_BYTES)
    while goal:
        for downloader in list(goal):
            downloader.read()
            if downloader.offset >= goal[downloader]:
                downloader.socket.close()
                del goal[downloader]


def cpu_ms(sample: Sample) -> float:
    return sample.cpu_us / 1e3


def core_ms(sample: Sample) -> float:
    return sample.core_us / 1e3
