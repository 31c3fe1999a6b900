"""What readers feel of the disk: while a large snapshot is written, and while the disk hangs."""

import re
import shutil
import signal
import socket
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from . import table
from .bench import OUT_DIR, Bench, MeasurementError
from .client import LINES, Client, stream
from .compare import start
from .servers import Stentor
from .store import DATA, EVERY_SECONDS, Watched, answers_of, put_command, server, under_way

TOPIC = "/live/value"
LIVE = '[[topics]]\nmatch = "/live/**"\nkeep = "memory"\n'
VALUES = LIVE + '[[topics]]\nmatch = "/bench/**"\nhistory = 1\n'
TOPICS = 1_000_000
LARGE_BYTES = 1_000
QUIET_SECONDS = 10
HANG_SECONDS = 10
SNAPSHOT_SECONDS_MAX = 300
# By default publishers are told after 5 s that the disk does not answer.
PATIENT = "wait_max = '1m'\n"
IMAGE_BYTES = 1 << 30
PUBLISHERS = 100
RATE = 2_000


def disturbed(bench: Bench) -> list[table.Row]:
    """GETs and deliveries while a snapshot is written, and the disk hangs."""
    return table.each(table.named(while_it_hangs, beside_a_snapshot), bench)


class WatchedStream(Watched):
    """Also how long deliveries take."""

    def __init__(self, stentor: Stentor) -> None:
        self.deliveries: dict[str, list[float]] = {}
        stentor.put(TOPIC, b"0")
        super().__init__(stentor, TOPIC)

    def works(self) -> list[Callable[[], None]]:
        return [*super().works(), self.publish, self.hear]

    def publish(self) -> None:
        """Each message is the time when it was sent."""
        with Client(self.stentor.control_port) as publisher:
            while not self.is_over.wait(EVERY_SECONDS):
                publisher.put(TOPIC, f"{time.monotonic():.6f}".encode())

    def hear(self) -> None:
        with socket.create_connection(("127.0.0.1", self.stentor.port), 60) as connection:
            connection.sendall(stream(TOPIC))
            rest = b""
            while not self.is_over.is_set():
                rest += connection.recv(65_536)
                *lines, rest = rest.split(b"\n")
                for line in lines:
                    if found := re.fullmatch(rb"data: (\d+\.\d{6})\r?", line):
                        taken = (time.monotonic() - float(found[1])) * 1e3
                        self.deliveries.setdefault(self.phase, []).append(taken)

    def rows(self, what: str, phase: str) -> list[table.Row]:
        rows = []
        for name, times in (("GETs", self.gets), ("deliveries", self.deliveries)):
            if min(len(times.get(key, ())) for key in ("before", phase)) < 100:
                rows.append(table.not_measured(f"{name} while {what}", "too few were made"))
                continue
            before, during = (statistics.quantiles(times[key], n=100)[98]
                              for key in ("before", phase))
            rows.append(table.ratio_row(
                f"p99 of {name} while {what}", f"{during:.2f} ms of {len(times[phase]):,}",
                f"before {before:.2f} ms of {len(times['before']):,}", during / before,
                table.at_most(1.2)))
        return rows


@contextmanager
def own_disk() -> Iterator[Path]:
    """A file system in a file, which can be made to hang. Takes root, and loop devices."""
    image, at = OUT_DIR / "disk.img", OUT_DIR / "disk"
    at.mkdir(exist_ok=True)
    with open(image, "wb") as file:
        file.truncate(IMAGE_BYTES)
    run("mkfs.ext4", "-q", "-F", str(image))
    run("mount", "-o", "loop", str(image), str(at))
    try:
        yield at
    finally:
        run("umount", str(at))
        image.unlink()


def run(*command: str) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60)
    if done.returncode:
        raise MeasurementError(f"{' '.join(command)}: {done.stdout.strip()}")


def while_it_hangs(bench: Bench) -> list[table.Row]:
    with own_disk() as disk, server(
            bench, True, VALUES, data=disk / "data", more=PATIENT) as stentor:
        with WatchedStream(stentor) as watched:
            publishers = start(put_command(bench, stentor.control_port, 1_000, 600, RATE,
                                           PUBLISHERS))
            try:
                time.sleep(1)
                watched.gets.clear()
                watched.deliveries.clear()
                time.sleep(QUIET_SECONDS)
                run("fsfreeze", "--freeze", str(disk))
                try:
                    watched.phase = "meanwhile"
                    time.sleep(HANG_SECONDS)
                finally:
                    watched.phase = "after"
                    run("fsfreeze", "--unfreeze", str(disk))
                time.sleep(2)
            finally:
                publishers.send_signal(signal.SIGINT)
                answered = answers_of(publishers, 0)
    hang = f"the disk hangs for {HANG_SECONDS} s"
    return [*watched.rows(hang, "meanwhile"),
            table.absolute_row(f"{PUBLISHERS} publishers over that: all answered",
                               f"{answered.count:,}", answered.count, None)]


def beside_a_snapshot(bench: Bench) -> list[table.Row]:
    """All topics are filled, and overwritten until the next snapshot begins; then nothing more is
    published but the topic that is watched."""
    data = "." * (LARGE_BYTES - 20)
    with server(bench, True, VALUES) as stentor:
        for first in range(0, TOPICS, LINES):
            put_lines(stentor, first, 0, data)
        time.sleep(2)
        await_snapshot()
        with WatchedStream(stentor) as watched:
            time.sleep(1)
            watched.gets.clear()
            watched.deliveries.clear()
            time.sleep(QUIET_SECONDS)
            watched.phase = "overwriting"
            live = overwrite_until_it_begins(stentor, data)
            watched.phase = "meanwhile"
            begin = time.monotonic()
            live = max(live, await_snapshot())
            watched.phase = "after"
            taken = time.monotonic() - begin
    shutil.rmtree(DATA, ignore_errors=True)
    return watched.rows(f"a snapshot of {live >> 20:,} MiB is written, in {taken:.0f} s",
                        "meanwhile")


def await_snapshot() -> int:
    """Waits until none is being written. Returns how long the one became that was."""
    give_up, longest = time.monotonic() + SNAPSHOT_SECONDS_MAX, 0
    while now := under_way():
        longest = max(longest, now)
        if time.monotonic() > give_up:
            raise MeasurementError(f"a snapshot takes more than {SNAPSHOT_SECONDS_MAX} s")
        time.sleep(0.05)
    return longest


def put_lines(stentor: Stentor, first: int, turn: int, data: str) -> None:
    stentor.put_many((f"/bench/topics/{n:07d}", f"{turn:020d}{data}")
                     for n in range(first, first + LINES))


def overwrite_until_it_begins(stentor: Stentor, data: str) -> int:
    """Publishes in bulk until the next snapshot is under way; that it is so is not counted."""
    for turn in range(1, 10):
        for first in range(0, TOPICS, LINES):
            put_lines(stentor, first, turn, data)
            if now := under_way():
                return now
    raise MeasurementError("no second snapshot has begun")
