"""What readers feel of the disk: while a large snapshot is written, and while the disk hangs."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import table
from .bench import OUT_DIR, Bench, MeasurementError
from .client import LINES
from .compare import Report, finish, first, start
from .servers import Stentor
from .store import DATA, publishing, server, under_way

TOPIC = "/live/value"
LIVE = '[[topics]]\nmatch = "/live/**"\nkeep = "memory"\n'
VALUES = LIVE + '[[topics]]\nmatch = "/bench/**"\nhistory = 1\n'
TOPICS = 1_000_000
LARGE_BYTES = 1_000
QUIET_SECONDS = 10
HANG_SECONDS = 10
LEAD_SECONDS = 0.3
EACH_PER_SECOND = 400
SNAPSHOT_SECONDS_MAX = 300
# By default publishers are told after 5 s that the disk does not answer.
PATIENT = "wait_max = '1m'\n"
IMAGE_BYTES = 1 << 30
PUBLISHERS = 100
RATE = 2_000


def disturbed(bench: Bench) -> list[table.Row]:
    """GETs and deliveries while a snapshot is written, and the disk hangs."""
    return table.each(table.named(while_it_hangs, beside_a_snapshot), bench)


def felt(bench: Bench, stentor: Stentor, act: Callable[[], Any]) -> tuple[dict[str, Report], Any]:
    """The latencies of GETs and of deliveries while `act` goes on, and what it returned."""
    url, load = f"http://127.0.0.1:{stentor.port}{TOPIC}", ("--rate", EACH_PER_SECOND, "--json")
    running = {
        "GETs": start([*first(), bench.stentor, "bench", "get", url, "--connections", 1,
                       "--duration", "1h", *load]),
        "deliveries": start([
            *first(), bench.stentor, "bench", "push", url, "--publish",
            f"http://127.0.0.1:{stentor.control_port}{TOPIC}", "--publish-method", "PUT",
            "--connections", 1, "--messages", EACH_PER_SECOND * 3_600, *load])}
    try:
        time.sleep(LEAD_SECONDS)
        result = act()
        time.sleep(LEAD_SECONDS)
    finally:
        for process in running.values():
            process.send_signal(signal.SIGINT)
    gets, push = (finish(name, process, 60, statuses=(130,)) for name, process in running.items())
    return {"GETs": gets["requests"]["latency"], "deliveries": push["delivery"]["latency"]}, result


def rows(what: str, before: dict[str, Report], during: dict[str, Report]) -> list[table.Row]:
    return [table.ratio_row(
        f"p99 of {name} while {what}", f"{during[name]['p99_us'] / 1e3:.2f} ms",
        f"before {before[name]['p99_us'] / 1e3:.2f} ms",
        during[name]["p99_us"] / before[name]["p99_us"], table.at_most(1.2)) for name in before]


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
    def hang() -> None:
        run("fsfreeze", "--freeze", str(disk))
        try:
            time.sleep(HANG_SECONDS)
        finally:
            run("fsfreeze", "--unfreeze", str(disk))

    with own_disk() as disk, server(
            bench, True, VALUES, data=disk / "data", more=PATIENT) as stentor:
        with publishing(bench, stentor, RATE, PUBLISHERS) as answered:
            before, _ = felt(bench, stentor, lambda: time.sleep(QUIET_SECONDS))
            during, _ = felt(bench, stentor, hang)
            # Until all that was due meanwhile is answered.
            time.sleep(3)
    count = answered[0].count
    return [*rows(f"the disk hangs for {HANG_SECONDS} s", before, during),
            table.note(f"{PUBLISHERS} publishers over that: all answered", f"{count:,}")]


def beside_a_snapshot(bench: Bench) -> list[table.Row]:
    """All topics are filled, and overwritten until the next snapshot begins; then nothing more is
    published but the topic that is watched."""
    data = "." * (LARGE_BYTES - 20)
    with server(bench, True, VALUES) as stentor:
        for first_one in range(0, TOPICS, LINES):
            put_lines(stentor, first_one, 0, data)
        time.sleep(2)
        await_snapshot()
        before, _ = felt(bench, stentor, lambda: time.sleep(QUIET_SECONDS))
        live, begin = overwrite_until_it_begins(stentor, data), time.monotonic()
        during, length = felt(bench, stentor, await_snapshot)
        taken = time.monotonic() - begin
    shutil.rmtree(DATA, ignore_errors=True)
    return rows(f"a snapshot of {max(live, length) >> 20:,} MiB is written, in {taken:.0f} s",
                before, during)


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
