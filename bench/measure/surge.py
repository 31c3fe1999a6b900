"""Crowds that come or go at once, and what those who were there before feel of them.

Each round is one `stentor bench surge` on a fresh server. With --queued it stops the server until
all newcomers have connected and asked: no load generator is as quick as a server, and this way the
wave is the server's alone.
"""

import argparse
import os
import shutil
import signal
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import host, table
from .bench import BENCH_DIR, LOAD_CORE, Bench, MeasurementError, build_stentor
from .compare import Report, finish, start
from .process import ALL_CORES
from .servers import QUIET_STREAMS_CONFIG, Stentor

TOPIC = "/bench/surge"
BESIDE = "/bench/beside"
"""What those who were there before read: news for them are none for the newcomers."""

GETS_PER_SECOND = 2_000
MESSAGES_PER_SECOND = 100
READERS = 20
WAITING = (8_000, 16_000)
QUEUE = 65_535
TIMEOUT_SECONDS = 8
SECONDS_MAX = 120
MISSED = 5
STEADY_SECONDS = 20
UNBOUNDED_FEATURE = "stentor-io/unbounded-accepting"


def own_network() -> None:
    """Goes on in a network of its own, where the listen queue is long enough, if that is allowed.

    Whatever else the host does with TCP then has no part in it, and nothing of the host changes.
    """
    if os.geteuid() != 0 or "STENTOR_BENCH_NETWORK" in os.environ or not shutil.which("unshare"):
        return
    script = (f"ip link set lo up && echo {QUEUE} > /proc/sys/net/core/somaxconn "
              f"&& exec \"$@\"")
    os.environ["STENTOR_BENCH_NETWORK"] = "own"
    os.execvp("unshare", ["unshare", "--net", "sh", "-c", script, "sh", sys.executable,
                          *sys.argv])


@contextmanager
def server(bench: Bench, stentor: Path, **settings: Any) -> Iterator[Stentor]:
    """A fresh one, before other processes of its core, with a value to ask for."""
    prefix = ("nice", "-n", "-11") if os.geteuid() == 0 else ()
    settings.setdefault("config", QUIET_STREAMS_CONFIG)
    with Stentor(Bench(bench.options, stentor), prefix=prefix, **settings) as running:
        running.put(TOPIC, b"101:99")
        running.put(BESIDE, b"101:99")
        yield running


def surge(bench: Bench, running: Stentor, connections: int, *flags: str,
          cores: str | None = str(LOAD_CORE)) -> Report:
    """One surge. Nobody may be refused, cut or forgotten."""
    process = start([
        *(("taskset", "--cpu-list", cores) if cores else ()),
        bench.stentor, "bench", "surge", f"http://127.0.0.1:{running.port}{TOPIC}",
        "--beside", f"http://127.0.0.1:{running.port}{BESIDE}",
        "--publish", f"http://127.0.0.1:{running.control_port}{BESIDE}", "--publish-method", "PUT",
        "--connections", connections, "--rate", GETS_PER_SECOND, "--readers", READERS,
        "--messages", MESSAGES_PER_SECOND, "--pid", running.pid, "--json", *flags])
    try:
        report = finish("surge", process, SECONDS_MAX, statuses=(0, 1))
    finally:
        # Whatever has become of it, the server goes on.
        running.process.send_signal(signal.SIGCONT)
    bystanders = report["bystanders"]
    for who in (bystanders, bystanders["listeners"]):
        if who["dropped"] or who.get("failed") or who.get("missing"):
            raise MeasurementError(f"bystanders were harmed: {report['errors']} {who}")
    return report


@dataclass(frozen=True)
class Felt:
    """What bystanders felt in the rounds of a case: medians of their p99, in microseconds."""

    gets: tuple[float, float]
    news: tuple[float, float]

    @staticmethod
    def of(rounds: list[Report], period: str = "during") -> "Felt":
        def p99(pick: Callable[[Report], Report]) -> float:
            return statistics.median(pick(one["bystanders"])["p99_us"] for one in rounds)

        return Felt(
            (p99(lambda b: b["before"]), p99(lambda b: b[period])),
            (p99(lambda b: b["listeners"]["before"]), p99(lambda b: b["listeners"][period])))

    def rows(self, what: str, gets_us: float | None, gets_ratio: float,
             news_ratio: float) -> list[table.Row]:
        return [
            ratio_row(f"{what}: GET p99", self.gets, gets_ratio, gets_us),
            ratio_row(f"{what}: delivery p99", self.news, news_ratio, None),
        ]


def ratio_row(what: str, found: tuple[float, float], ratio_max: float,
              us_max: float | None) -> table.Row:
    """Reached by the ratio to what it is in quiet, or by the time itself."""
    quiet, during = found
    ratio = during / quiet if quiet else float("inf")
    must = f"<= {ratio_max:g}"
    if us_max is not None:
        must = f"<= {us_max / 1000:g} ms, or {must}"
    return table.Row(what, f"{during / 1000:.2f} ms", f"quiet {quiet / 1000:.2f} ms",
                     f"{ratio:.2f}", must,
                     ratio <= ratio_max or us_max is not None and during <= us_max)


def all_came(what: str, rounds: list[Report]) -> table.Row:
    """Nobody was refused, reset, or not answered."""
    wanted = sum(one["connections"]["wanted"] for one in rounds)
    opened = sum(one["connections"]["opened"] for one in rounds)
    trouble = sum(error["count"] for one in rounds for error in one["errors"])
    return table.absolute_row(f"{what}: refused, reset or unanswered",
                              f"{wanted - opened:,} of {wanted:,}",
                              max(wanted - opened, trouble), table.at_most(0))


def rate(rounds: list[Report]) -> float:
    return statistics.median(one["connections"]["per_second"] for one in rounds)


def speed(what: str, rounds: list[Report]) -> table.Row:
    seconds = statistics.median(one["connections"]["opening_seconds"] for one in rounds)
    cpu = statistics.median(one["processor"]["busy_us_each"] for one in rounds)
    text = f"{rate(rounds):,.0f}/s, {seconds * 1000:.0f} ms, {cpu:.1f} us of CPU each"
    return table.note(f"{what}: rate", text)


def queued(bench: Bench, stentor: Path, count: int, role: str) -> Report:
    with server(bench, stentor) as running:
        return surge(bench, running, count, "--as", role, "--queued")


def requests(bench: Bench, args: argparse.Namespace) -> list[table.Row]:
    """8,000 and 16,000 requests that wait on one worker."""
    rows = []
    for count in WAITING:
        rounds = [queued(bench, bench.stentor, count, "idle") for _ in range(args.rounds)]
        what = f"{count:,} requests at once"
        rows += [all_came(what, rounds), speed(what, rounds),
                 *Felt.of(rounds).rows(what, 500, 2, 1.3)]
    return rows


def streams(bench: Bench, args: argparse.Namespace) -> list[table.Row]:
    """16,000 who want a stream, against a server that accepts as long as anybody waits."""
    unbounded = args.unbounded or build_unbounded()
    count, ours, theirs = WAITING[-1], [], []
    for _ in range(args.rounds):
        ours.append(queued(bench, bench.stentor, count, "sse"))
        theirs.append(queued(bench, unbounded, count, "sse"))
    what = f"{count:,} readers at once"
    return [
        all_came(what, ours), speed(what, ours),
        table.ratio_row(f"{what}: rate, accepting unbounded", f"{rate(ours):,.0f}/s",
                        f"{rate(theirs):,.0f}/s", rate(ours) / rate(theirs),
                        table.at_least(0.9)),
        *Felt.of(ours).rows(what, 500, 2, 1.3),
        table.note(f"{what}: GET p99, unbounded", f"{Felt.of(theirs).gets[1] / 1000:.2f} ms"),
    ]


def timeouts(bench: Bench, args: argparse.Namespace) -> list[table.Row]:
    """16,000 idle connections whose time is up in the same moment."""
    count, rounds = WAITING[-1], []
    config = QUIET_STREAMS_CONFIG + f'[limits]\nkeep_alive_timeout = "{TIMEOUT_SECONDS}s"\n'
    for _ in range(args.rounds):
        with server(bench, bench.stentor, config=config) as running:
            rounds.append(surge(bench, running, count, "--queued", "--timeout",
                                f"{TIMEOUT_SECONDS}s"))
    what = f"{count:,} timeouts at once"
    return Felt.of(rounds, "timeout").rows(what, 1_000, 2, 1.3)


def returning(bench: Bench, args: argparse.Namespace) -> list[table.Row]:
    """Readers who come back after a cut, with what they missed: at once, and below saturation."""
    count = args.readers
    workers = host.Judgement.of(bench.stentor, count, 1).workers

    def come_back(within: str) -> Report:
        with server(bench, bench.stentor, workers=workers, cores=ALL_CORES) as running:
            last = running.put(TOPIC, b"the last they had")
            for number in range(MISSED):
                running.put(TOPIC, b"missed %d" % number)
            return surge(bench, running, count, "--as", "sse", "--within", within,
                         "--header", f"Last-Event-ID: {last}", cores=None)

    at_once, steady = come_back("1ms"), come_back(f"{STEADY_SECONDS}s")
    what = f"{count:,} readers back"
    seconds = at_once["connections"]["opening_seconds"]
    return [
        all_came(what, [at_once, steady]),
        table.absolute_row(f"{what} at once: until all are in", f"{seconds:.1f} s", seconds,
                           table.at_most(15, " s")),
        table.note(f"{what} at once: GET p99", f"{Felt.of([at_once]).gets[1] / 1000:.2f} ms"),
        *Felt.of([steady]).rows(f"{what} in {STEADY_SECONDS} s", None, 1.2, 1.3),
    ]


def build_unbounded() -> Path:
    """The same source, but for the bound on accepting."""
    return build_stentor("--target-dir", str(BENCH_DIR.parent / "target" / "unbounded"),
                         "--package", "stentor-io", "--features", UNBOUNDED_FEATURE)


CASES: dict[str, Callable[[Bench, argparse.Namespace], list[table.Row]]] = {
    "requests": requests, "streams": streams, "timeouts": timeouts, "returning": returning,
}
