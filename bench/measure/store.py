"""What it costs that messages outlive the process: beside the raw disk, and without a store."""

import os
import re
import shutil
import signal
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from . import table
from .bench import OUT_DIR, Bench, MeasurementError
from .load import Series, Subject
from .publish import MESSAGE_BYTES, stream
from .reading import PIPELINE_DEPTH, TOPIC, VALUE
from .client import LINES, publish_lines, raw
from .compare import finish, start
from .servers import Floor, Stentor, expect_body, ready

DATA = OUT_DIR / "data"
PUBLISHERS = 1_000
TOPICS = 10_000
TOPICS_MANY = 1_000_000
NAME_BYTES = len("/bench/topics/0000000")
PUT_NAME_BYTES = len("/bench/topics/0000")
SYNC_BYTES = (4 << 10, 64 << 10)
SYNC_SECONDS = 2
SYNC_FILE_BYTES = 16 << 20
PAUSE_US = 1_000
DISK_US_GOOD = 200
STEADY_PER_SECOND = 10_000
SEGMENT_BYTES = 64 << 20
LOG_BYTES = 1 << 30
SNAPSHOTS = 2
OVERWRITING_SECONDS = 300
STORED, BARE = "with a store", "without a store"
VALUES_ONLY = '[[topics]]\nmatch = "/bench/**"\nhistory = 1\n'


@dataclass(frozen=True)
class Answers:
    """What publishers who wait for their answers were given."""

    count: int
    seconds: float
    p50_us: float
    p99_us: float

    @property
    def per_second(self) -> float:
        return self.count / self.seconds


@dataclass(frozen=True)
class Thread:
    """What threads of one name have used so far."""

    cpu_us: float
    written_bytes: int


def store(bench: Bench) -> list[table.Row]:
    """What it costs that messages outlive the process, beside the raw disk."""
    steps = table.named(answers, unhurried, in_bulk, start_and_memory, beside_publishers,
                        overwriting)
    rows = disk_rows() + table.each(steps, bench)
    shutil.rmtree(DATA, ignore_errors=True)
    return rows


def server(bench: Bench, stored: bool, config: str = VALUES_ONLY,
           keeps: bool = False, data: Path = DATA,
           more: str = "") -> AbstractContextManager[Stentor]:
    """A server on both cores, since the disk's thread is to have its own; with an empty store,
    unless it `keeps` what is there."""
    if not keeps:
        shutil.rmtree(data, ignore_errors=True)
    text = config + (f'[store]\npath = "{data}"\n{more}' if stored else "")
    return ready(Stentor(bench, config=text, cores="0,1"))


def in_turn(bench: Bench) -> Iterator[tuple[str, Stentor]]:
    """Servers without a store and with one, in rounds."""
    for _ in range(bench.options.rounds):
        for kind in (BARE, STORED):
            with server(bench, kind == STORED) as stentor:
                yield kind, stentor


def syncs(count: int, pause_us: int = 0) -> tuple[float, float]:
    """The 50th and 99th percentile of an fdatasync(2) of so many bytes, in microseconds: blocks
    written one behind the other into a file that was written before, as a store does."""
    times, offset = [], 0
    with open(OUT_DIR / "syncs.bin", "w+b", buffering=0) as file:
        os.unlink(file.name)
        file.write(b"x" * SYNC_FILE_BYTES)
        os.fsync(file)
        end = time.monotonic() + SYNC_SECONDS
        while (since := time.monotonic()) < end:
            os.pwrite(file.fileno(), b"x" * count, offset)
            os.fdatasync(file)
            times.append((time.monotonic() - since) * 1e6)
            offset = (offset + count) % SYNC_FILE_BYTES
            # With a pause the process has to be given a core again each time, as a store has.
            time.sleep(pause_us / 1e6)
    cuts = statistics.quantiles(times, n=100)
    return cuts[49], cuts[98]


def disk_rows() -> list[table.Row]:
    rows = []
    for count in SYNC_BYTES:
        p50, p99 = syncs(count)
        rows.append(table.note(f"the raw disk: fdatasync of {count >> 10} KB, p50 and p99",
                               f"{p50:,.0f} and {p99:,.0f} us"))
    p50, p99 = syncs(SYNC_BYTES[0], PAUSE_US)
    rows.append(table.note("the same of 4 KB, each a millisecond after the one before",
                           f"{p50:,.0f} and {p99:,.0f} us"))
    return rows


def publish(bench: Bench, port: int, seconds: float, rate: int = 0) -> Answers:
    """Publishers with one PUT under way each."""
    return answers_of(start(put_command(bench, port, TOPICS, seconds, rate, PUBLISHERS)), seconds)


def put_command(bench: Bench, port: int, topics: int, seconds: float, rate: int,
                publishers: int) -> list[object]:
    return [bench.stentor, "bench", "put", f"http://127.0.0.1:{port}/bench/topics/{{n}}",
            "--topics", topics, "--bytes", MESSAGE_BYTES, "--connections", publishers,
            "--duration", f"{round(seconds * 1000)}ms", "--threads", 1, "--json",
            *(("--rate", rate) if rate else ())]


def answers_of(put: subprocess.Popen[str], seconds: float) -> Answers:
    """All must be good. It may have been ended by SIGINT."""
    report = finish("put", put, seconds + 60, statuses=(0, 130))
    requests, latency = report["requests"], report["requests"]["latency"]
    if report["errors"] or any(status >= 300 for status, _ in requests["statuses"]):
        raise MeasurementError(f"bench put: {report['errors']} {requests['statuses']}")
    return Answers(requests["completed"], report["seconds"], latency["p50_us"], latency["p99_us"])


def answer_to_put(stentor: Stentor) -> bytes:
    """What publishers are answered, exactly as it comes."""
    return raw(stentor.control_port, b"PUT %b HTTP/1.1\r\nHost: 127.0.0.1\r\n"
               b"Content-Length: 1\r\n\r\n1" % TOPIC.encode())


def thread(stentor: Stentor, name: str) -> Thread:
    """Of all threads that have this name now."""
    cpu_us, written = 0.0, 0
    for task in Path(f"/proc/{stentor.pid}/task").iterdir():
        try:
            if (task / "comm").read_text().strip() == name:
                cpu_us += int((task / "schedstat").read_text().split()[0]) / 1e3
                written += int(re.search(r"wchar: (\d+)", (task / "io").read_text())[1])
        except FileNotFoundError:
            continue
    return Thread(cpu_us, written)


def answers(bench: Bench) -> list[table.Row]:
    """1,000 publishers, with a store, without one, and at the floor in turn; and what the store's
    thread takes."""
    runs: dict[str, list[Answers]] = {STORED: [], BARE: []}
    cpu_us, log_bytes, disks, floors = [], [], [], []
    for kind, stentor in in_turn(bench):
        answer = answer_to_put(stentor)
        publish(bench, stentor.control_port, 0.5)
        before = thread(stentor, "store")
        run = publish(bench, stentor.control_port, bench.options.seconds)
        runs[kind].append(run)
        if kind == BARE:
            continue
        after = thread(stentor, "store")
        cpu_us.append((after.cpu_us - before.cpu_us) / run.count)
        log_bytes.append((after.written_bytes - before.written_bytes) / run.count)
        stentor.stop()
        with Floor(bench, answer) as floor:
            floors.append(publish(bench, floor.port, bench.options.seconds).per_second)
        disks.append(syncs(SYNC_BYTES[1]))
    of = Series(runs).median
    p50, p99 = (statistics.median(column) for column in zip(*disks))
    asked = 300_000 * min(1, DISK_US_GOOD / p50)
    rate, bare = of(STORED, lambda run: run.per_second), of(BARE, lambda run: run.per_second)
    latest, bare_latest = of(STORED, lambda run: run.p99_us), of(BARE, lambda run: run.p99_us)
    what = f"{PUBLISHERS:,} publishers with one PUT of {MESSAGE_BYTES} bytes each"
    own, written = statistics.median(cpu_us), statistics.median(log_bytes)
    return [
        table.Row(f"{what}: answers/s, synced", f"{rate:,.0f}",
                  f"without a store {bare:,.0f}; the floor {statistics.median(floors):,.0f}",
                  f"{rate / bare:.2f}", f">= {asked:,.0f} (disk {p50:,.0f} us)", rate >= asked),
        table.note(f"{what}: p50 of the answers", f"{of(STORED, lambda run: run.p50_us):,.0f} us",
                   f"without a store {of(BARE, lambda run: run.p50_us):,.0f} us"),
        table.ratio_row(f"{what}: p99 of the answers", f"{latest:,.0f} us",
                        f"the disk {p99:,.0f} us; without a store {bare_latest:,.0f} us",
                        latest / p99, table.at_most(5)),
        table.absolute_row("the store's thread: CPU per message", f"{own:.2f} us", own,
                           table.at_most(0.7, " us")),
        table.note(f"bytes of the log per message of {MESSAGE_BYTES} with a name of "
                   f"{PUT_NAME_BYTES}", f"{written:.0f} B"),
    ]


def unhurried(bench: Bench) -> list[table.Row]:
    """The same publishers at a rate that leaves the processor idle half of the time.

    When each publishes as fast as it is answered, the time to an answer is the number of publishers
    divided by what the host can do, with a store or without. Here it is what the disk adds.
    """
    runs: dict[str, list[Answers]] = {STORED: [], BARE: []}
    disks = []
    for kind, stentor in in_turn(bench):
        publish(bench, stentor.control_port, 0.5, STEADY_PER_SECOND)
        runs[kind].append(
            publish(bench, stentor.control_port, bench.options.seconds, STEADY_PER_SECOND))
        if kind == STORED:
            stentor.stop()
            disks.append(syncs(SYNC_BYTES[0], PAUSE_US))
    of = Series(runs).median
    p50, p99 = (statistics.median(column) for column in zip(*disks))
    what = f"{PUBLISHERS:,} publishers, {STEADY_PER_SECOND:,} publishes/s by all"
    rows = []
    for name, disk, figure in (("p50", p50, lambda run: run.p50_us),
                               ("p99", p99, lambda run: run.p99_us)):
        own, bare = of(STORED, figure), of(BARE, figure)
        rows.append(table.ratio_row(f"{what}: {name} of the answers", f"{own:,.0f} us",
                                    f"the disk {disk:,.0f} us; without a store {bare:,.0f} us",
                                    own / disk, table.at_most(5)))
    return rows


def in_bulk(bench: Bench) -> list[table.Row]:
    """Lines on one connection, with a store and without one in turn."""
    rates: dict[str, list[float]] = {STORED: [], BARE: []}
    cpu_us = []
    for kind, stentor in in_turn(bench):
        stream(stentor, 0.5)
        before = thread(stentor, "store").cpu_us
        run = stream(stentor, bench.options.seconds)
        rates[kind].append(run.messages / run.wall_seconds)
        if kind == STORED:
            cpu_us.append((thread(stentor, "store").cpu_us - before) / run.messages)
    return [
        Series(rates).row("in bulk on one connection: messages/s, synced", STORED, BARE, float,
                          "{:,.0f}"),
        table.absolute_row("in bulk: the store's thread: CPU per message",
                           f"{statistics.median(cpu_us):.2f} us", statistics.median(cpu_us),
                           table.at_most(0.7, " us")),
    ]


def start_and_memory(bench: Bench) -> list[table.Row]:
    """A million topics: what the process holds, and how long the next one takes to read them."""
    resident = {}
    for stored in (False, True):
        with server(bench, stored) as stentor:
            stentor.put_many((f"/bench/topics/{n:07d}", f"{n:07d} ".ljust(MESSAGE_BYTES, "."))
                             for n in range(TOPICS_MANY))
            time.sleep(1)
            resident[stored] = stentor.memory().anonymous
    taken, cpu_ms = [], []
    for _ in range(3):
        with server(bench, True, keeps=True) as stentor:
            cpu_ms.append(stentor.cpu_seconds() * 1e3)
            log = stentor.log.read_text()
            taken.append(int(re.search(r"was read in (\d+) ms: (\d+) topics", log)[1]))
            after_start = stentor.memory().anonymous
    more = (resident[True] - resident[False]) / (1 << 20)
    target = table.at_most(80, " MiB")
    return [
        table.absolute_row(f"start with {TOPICS_MANY:,} topics",
                           f"{statistics.median(taken):,.0f} ms, CPU "
                           f"{statistics.median(cpu_ms):,.0f} ms",
                           statistics.median(taken), table.at_most(2_000, " ms")),
        table.Row(f"process memory beside what the hub holds, {TOPICS_MANY:,} topics",
                  f"{resident[True] >> 20:,} MiB",
                  f"without a store {resident[False] >> 20:,} MiB, after a start "
                  f"{after_start >> 20:,} MiB", f"+{more:.0f} MiB", target.text,
                  target.holds(more)),
    ]


def beside_publishers(bench: Bench) -> list[table.Row]:
    """GETs, plain and pipelined, while others publish at a steady rate: with a store, without."""
    rows = []
    for what, script, arguments in (("GET of 12 bytes", None, ()),
                                    (f"{PIPELINE_DEPTH} pipelined GETs", "pipelined.lua",
                                     (str(PIPELINE_DEPTH),))):
        rates: dict[str, list[float]] = {STORED: [], BARE: []}
        for kind, stentor in in_turn(bench):
            stentor.put(TOPIC, VALUE)
            expect_body(stentor, TOPIC, VALUE)
            with publishing(bench, stentor, STEADY_PER_SECOND):
                subject = Subject("stentor", stentor, TOPIC, script=script, arguments=arguments)
                before = thread(stentor, "worker-0").cpu_us
                requests, _ = subject.run(bench.options.seconds)
                after = thread(stentor, "worker-0").cpu_us
            rates[kind].append((after - before) / requests)
        rows.append(Series(rates).row(
            f"{what} beside {STEADY_PER_SECOND:,} publishes/s: the worker's CPU each",
            STORED, BARE, float, "{:.2f} us", table.at_most(1.05)))
    return rows


@contextmanager
def publishing(bench: Bench, stentor: Stentor, rate: int,
               publishers: int = PUBLISHERS) -> Iterator[list[Answers]]:
    """Publishers at a steady rate, meanwhile. Their answers are there in the end."""
    load = start(put_command(bench, stentor.control_port, TOPICS, 600, rate, publishers))
    answered: list[Answers] = []
    try:
        time.sleep(0.3)
        yield answered
    finally:
        load.send_signal(signal.SIGINT)
        answered.append(answers_of(load, 0))


def overwriting(bench: Bench) -> list[table.Row]:
    """A day's worth of overwriting a million topics, made quick: what the disk must hold and
    take."""
    with server(bench, True) as stentor:
        data = b"." * MESSAGE_BYTES
        lines = [b"".join(b'{"topic":"/bench/topics/%07d","data":"%s"}\n' % (n, data)
                          for n in range(first, first + LINES))
                 for first in range(0, TOPICS_MANY, LINES)]
        with WatchedDisk() as watched:
            given, begin = 0, time.monotonic()
            while watched.snapshots < SNAPSHOTS and time.monotonic() - begin < OVERWRITING_SECONDS:
                for chunk in lines:
                    publish_lines(stentor.control_port, chunk)
                    given += LINES
        log_bytes = thread(stentor, "store").written_bytes
    if watched.snapshots < SNAPSHOTS:
        raise MeasurementError(f"{watched.snapshots} snapshots after {given:,} messages")
    bound = 4 * watched.live + LOG_BYTES + 2 * SEGMENT_BYTES
    written = (log_bytes + watched.snapshot_bytes) / (given * (MESSAGE_BYTES + NAME_BYTES))
    mib = 1 << 20
    what = f"{TOPICS_MANY:,} topics overwritten {given / TOPICS_MANY:.0f} times"
    return [
        table.absolute_row(f"{what}: bytes written per byte of data and name", f"{written:.2f}",
                           written, table.at_most(1.7)),
        table.Row(f"{what}: the most that is on the disk", f"{watched.most // mib:,} MiB",
                  f"live {watched.live // mib:,} MiB, {watched.snapshots} snapshots", "",
                  f"<= {bound // mib:,} MiB", watched.most <= bound),
    ]


class WatchedDisk(threading.Thread):
    """The most that was on the disk at any time, and the snapshots that were written."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.is_over = threading.Event()
        self.most, self.live, self.snapshots, self.snapshot_bytes = 0, 0, 0, 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.join(10)

    def run(self) -> None:
        writing = 0
        while not self.is_over.wait(0.02):
            self.most = max(self.most, sum(file.st_blocks for file in stats("*")) * 512)
            now = under_way()
            if writing and not now:
                self.snapshots += 1
                self.live = max(self.live, writing)
                self.snapshot_bytes += writing
            writing = now


def under_way() -> int:
    """The length of a snapshot that is being written, or 0."""
    return max((max(1, file.st_size) for file in stats("snapshot-*.tmp")), default=0)


def stats(names: str) -> Iterator[os.stat_result]:
    """What the kernel says of each file of the store that is still there."""
    for file in DATA.glob(names):
        with suppress(FileNotFoundError):
            yield file.stat()
