"""Rounds of load on several servers in turn, from wrk or another program, with the server's
processor time around each; and what is made of the rounds."""

import gzip
import json
import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from . import table
from .bench import LOAD_CORE, LUA_DIR, SERVER_CORE, MeasurementError, Options
from .process import Process, Server

CLOCK_TICKS_PER_SECOND = 100  # USER_HZ, the same on every Linux
FOREIGN_SHARE_MAX = 0.05
CONNECTIONS = 64
# Beyond the time that a round is to take.
SPARE_SECONDS = 60


@dataclass(frozen=True)
class Sample:
    """One round of one server."""

    cpu_us: float
    """Processor time of the server process per request, in microseconds."""

    core_us: float
    """The same with the soft interrupts of the server's core (TCP processing), wherever the kernel
    counts them."""

    per_second: float
    """Requests per second of wall time."""

    load_us: float
    """Processor time of the load generator per request, in microseconds."""

    foreign_share: float
    """Share of the two cores' time that neither the server nor the load used."""

    @property
    def core_share(self) -> float:
        """Share of the time in which the server's core was busy with the requests."""
        return self.core_us * self.per_second / 1e6


@dataclass(frozen=True)
class Subject:
    """A server, and how wrk loads it."""

    name: str
    server: Server
    path: str
    connections: int = CONNECTIONS
    fields: tuple[str, ...] = ()
    script: str | None = None
    arguments: tuple[object, ...] = ()

    def command(self, seconds: int) -> list[object]:
        fields = (word for field in self.fields for word in ("--header", field))
        script = ("--script", LUA_DIR / self.script) if self.script else ()
        return ["wrk", "--threads", 1, "--connections", self.connections, "--duration",
                f"{seconds}s", *fields, *script,
                f"http://127.0.0.1:{self.server.port}{self.path}", "--", *self.arguments]

    def run(self, seconds: int) -> tuple[float, float]:
        """Requests, and requests per second."""
        done = subprocess.run(list(map(str, self.command(seconds))), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=seconds + SPARE_SECONDS)
        return self.read_report(done.stdout)

    def load(self, seconds: int) -> Sample:
        before = Usage.now(self.server)
        requests, per_second = self.run(seconds)
        after = Usage.now(self.server)
        cpu = after.server - before.server
        softirq = after.softirq - before.softirq
        return Sample(
            cpu_us=cpu * 1e6 / requests,
            core_us=(cpu + softirq) * 1e6 / requests,
            per_second=per_second,
            load_us=(after.load - before.load) * 1e6 / requests,
            foreign_share=foreign_share(before, after),
        )

    def read_json(self, report: str) -> dict[str, Any]:
        """The report of a load generator that writes JSON, or the reason why there is none."""
        try:
            return json.loads(report)
        except ValueError as error:
            raise MeasurementError(f"{self.name}: {report.strip()}") from error

    def read_report(self, report: str) -> tuple[float, float]:
        """Any error makes the round worthless."""
        requests = re.search(r"(\d+) requests in", report)
        per_second = re.search(r"Requests/sec:\s+([\d.]+)", report)
        trouble = re.search(r"Socket errors.*|Non-2xx.*|unable to connect.*", report)
        if trouble or not requests or not per_second or int(requests[1]) == 0:
            what = trouble[0] if trouble else report.strip() or "wrk said nothing"
            raise MeasurementError(f"{self.name}: {what}")
        return int(requests[1]), float(per_second[1])


@dataclass(frozen=True)
class Usage:
    """Seconds spent so far; those of the cores advance in steps of 10 ms."""

    wall: float
    server: float
    load: float
    softirq: float
    """Of the server's core, as far as the processes' own clocks leave them out."""

    both_cores: float

    @staticmethod
    def now(server: Server, *load: Process) -> "Usage":
        """The load is this process, its children that have ended, and those named."""
        lines = map(str.split, Path("/proc/stat").read_text().splitlines())
        ticks = {name: figures for name, *figures in lines}
        # The columns are user, nice, system, idle, iowait, irq, softirq (proc_stat(5)).
        of_processes = [
            int(ticks[f"cpu{core}"][column])
            for core in (SERVER_CORE, LOAD_CORE) for column in (0, 1, 2)
        ]
        return Usage(
            wall=time.monotonic(),
            server=server.cpu_seconds(),
            load=sum(os.times()[:4]) + sum(process.cpu_seconds() for process in load),
            softirq=(int(ticks[f"cpu{SERVER_CORE}"][6]) / CLOCK_TICKS_PER_SECOND
                     if interrupts_are_apart() else 0),
            both_cores=sum(of_processes) / CLOCK_TICKS_PER_SECOND,
        )


@cache
def interrupts_are_apart() -> bool:
    """Whether the kernel leaves soft interrupts out of the clock of the process they come upon.

    If it does not, adding them would count them twice. Where the kernel does not tell, they are
    added: the same for every server, they bring ratios nearer to 1, which favours none of them.
    """
    for file in (Path("/proc/config.gz"), Path(f"/boot/config-{platform.release()}")):
        try:
            text = file.read_bytes()
        except OSError:
            continue
        return b"\nCONFIG_IRQ_TIME_ACCOUNTING=y" in (
            gzip.decompress(text) if file.suffix == ".gz" else text)
    return True


def foreign_share(before: Usage, after: Usage) -> float:
    """Share of the two cores' time that neither the server nor the load used."""
    ours = (after.server - before.server) + (after.load - before.load)
    foreign = after.both_cores - before.both_cores - ours
    return max(foreign, 0) / (2 * (after.wall - before.wall))


class Series:
    """The samples of several servers, round by round."""

    def __init__(self, samples: dict[str, list[Any]], foreign_share: float = 0) -> None:
        self.samples = samples
        self.foreign_share = foreign_share

    def median(self, name: str, figure: Callable[[Any], float] = float) -> float:
        return statistics.median(figure(sample) for sample in self.samples[name])

    def ratio(self, name: str, other: str, figure: Callable[[Any], float] = float) -> float:
        """The median of the rounds' ratios: drift of the host cancels within a round."""
        return statistics.median(
            figure(mine) / figure(theirs)
            for mine, theirs in zip(self.samples[name], self.samples[other], strict=True)
        )

    def row(self, what: str, name: str, other: str, figure: Callable[[Any], float],
            text: str, target: table.Target | None = None, label: str = "") -> table.Row:
        """The medians of two servers, written as `text` says, judged by their ratio."""
        mine, theirs = (text.format(self.median(one, figure)) for one in (name, other))
        return table.ratio_row(what, mine, f"{label or other} {theirs}",
                               self.ratio(name, other, figure), target)


@dataclass(frozen=True)
class Figure:
    """A number that samples have, and its text."""

    what: str
    of: Callable[[Any], float]
    text: str


@dataclass(frozen=True)
class Load:
    """A load on all servers that can take it, and the figures that it gives of each."""

    what: str
    series: Series
    figures: tuple[Figure, ...]

    def row(self, figure: Figure, other: str, target: table.Target | None = None,
            name: str = "stentor") -> table.Row:
        whose = "" if name == "stentor" else f" of the {name}"
        return self.series.row(f"{self.what}: {figure.what}{whose}", name, other, figure.of,
                               figure.text, target)

    def against_all(self, figure: Figure, target: table.Target | None) -> table.Row:
        """The figure of Stentor judged by itself, with those of the others beside it."""
        others = ", ".join(f"{name} {self.median(figure, name)}" for name in self.series.samples
                           if name != "stentor")
        return table.absolute_row(
            f"{self.what}: {figure.what}", self.median(figure, "stentor"),
            self.series.median("stentor", figure.of), target, others)

    def median(self, figure: Figure, name: str) -> str:
        """As text; a server that was not measured has none."""
        if name not in self.series.samples:
            return "–"
        return figure.text.format(self.series.median(name, figure.of))


def alternate(options: Options, subjects: Sequence[Subject]) -> Series:
    """A short warm-up of each, then rounds in which every server has its turn.

    Every other round goes backwards, so that none always follows the same one.
    """
    for subject in subjects:
        subject.load(1)
    samples: dict[str, list[Sample]] = {subject.name: [] for subject in subjects}
    for turn in range(options.rounds):
        for subject in subjects if turn % 2 == 0 else reversed(subjects):
            samples[subject.name].append(subject.load(options.seconds))
    return Series(samples, warn_of_others(
        [s.foreign_share for series in samples.values() for s in series]))


def warn_of_others(foreign_shares: list[float]) -> float:
    """Returns what others took, as a rule."""
    foreign = statistics.median(foreign_shares)
    if foreign > FOREIGN_SHARE_MAX:
        table.progress(f"warning: other processes took {foreign:.0%} of the two cores meanwhile")
    return foreign


cpu_us = attrgetter("cpu_us")
core_us = attrgetter("core_us")
core_share = attrgetter("core_share")
per_second = attrgetter("per_second")
load_us = attrgetter("load_us")

RATE = Figure("requests/s", per_second, "{:,.0f}")
CPU = Figure("CPU each", cpu_us, "{:.2f} us")


def carried_per_second(sample: Sample) -> float:
    """Requests per second of time that the server's core was busy: what it would carry if full."""
    return 1e6 / core_us(sample)
