"""Load from `stentor bench`: what it reports of each of several servers, round by round."""

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import table
from .bench import Bench, MeasurementError
from .load import Series, Usage, foreign_share, warn_of_others
from .process import TIED, Server

Report = dict[str, Any]

WARM_UP_CONNECTIONS = 300
FIRST = ("chrt", "--fifo", "1")


@dataclass(frozen=True)
class Contestant:
    """A server, what it is asked for, and for `push` where it is published to."""

    name: str
    server: Server
    path: str
    publish: str | None = None

    @property
    def url(self) -> str:
        return f"{self.server.scheme}://127.0.0.1:{self.server.port}{self.path}"


class Compared(Series[Report]):
    """The reports of all rounds, by contestant."""

    def __init__(self, reports: dict[str, list[Report]], foreign_share: float) -> None:
        super().__init__(reports)
        self.foreign_share = foreign_share
        """Share of the two cores' time that neither the servers nor the load used."""


def compare(bench: Bench, kind: str, contestants: Sequence[Contestant], *options: str,
            rounds: int = 1) -> Compared:
    """Alternating rounds of all contestants; one on its own makes a plain run.

    Whatever went wrong, for whichever server, makes all of it worthless.
    """
    several = len(contestants) > 1
    command = [str(bench.stentor), "bench", kind]
    for contestant in contestants:
        command.append(contestant.url)
    for contestant in contestants:
        command += ["--pid", str(contestant.server.process.pid)]
        if contestant.publish:
            command += ["--publish", contestant.publish]
    if any(contestant.server.scheme == "https" for contestant in contestants):
        # Whether it is the right one is not what is measured.
        command.append("--insecure")
    command += [*options, "--json", *(["--rounds", str(rounds)] if several else [])]
    table.progress(shlex.join(command))
    servers = [contestant.server for contestant in contestants]
    before = Usage.now(*servers)
    done = subprocess.run([*TIED, *command], stdin=subprocess.DEVNULL, capture_output=True,
                          text=True)
    foreign = foreign_share(before, Usage.now(*servers))
    warn_of_others([foreign])
    if done.returncode != 0:
        raise MeasurementError(f"stentor bench {kind}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    subjects = found["subjects"] if several else [{"reports": [found]}]
    reports = {contestant.name: subject["reports"]
               for contestant, subject in zip(contestants, subjects, strict=True)}
    for name, of_one in reports.items():
        for report in of_one:
            check(f"{kind}, {name}", report)
    return Compared(reports, foreign)


@cache
def first() -> tuple[str, ...]:
    """Runs a command before all others of its core, where that is allowed."""
    if subprocess.run([*FIRST, "true"], capture_output=True).returncode == 0:
        return FIRST
    table.progress("warning: no real-time scheduling: steady GETs wait for other load")
    return ()


def steady_gets(bench: Bench, port: int, path: str, per_second: int, seconds: int,
                connections: int) -> subprocess.Popen[str]:
    """GETs at a steady rate, whatever the server does: each counts from when it was due.

    They share their core with other load and go first there, where that is allowed: what they would
    wait for the others is not the server's.
    """
    return subprocess.Popen([
        *TIED, *first(), str(bench.stentor), "bench", "get", f"http://127.0.0.1:{port}{path}",
        "--connections", str(connections), "--rate", str(per_second), "--requests",
        str(per_second * seconds), "--threads", "1", "--json",
    ], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def latencies(gets: subprocess.Popen[str], seconds: int) -> dict[str, float]:
    """How long steady GETs took, all of which must have been answered."""
    try:
        output, trouble = gets.communicate(timeout=seconds + 30)
    except subprocess.TimeoutExpired as error:
        raise MeasurementError("steady GETs have no end") from error
    finally:
        gets.kill()
        gets.wait()
    if gets.returncode != 0:
        raise MeasurementError(f"stentor bench get: {trouble.strip()}")
    report = json.loads(output)
    check("steady GETs", report)
    return report["requests"]["latency"]


def hold_idle(bench: Bench, contestants: Sequence[Contestant], connections: int,
              rounds: int = 1) -> Compared:
    """Connections that ask once and stay silent, after some that have come and gone: what a server
    takes once for all is not theirs."""
    idle = ("--as", "idle", "--connections")
    compare(bench, "hold", contestants, *idle, str(WARM_UP_CONNECTIONS), "--duration", "100ms")
    return compare(bench, "hold", contestants, *idle, str(connections), "--duration", "500ms",
                   rounds=rounds)


def push(bench: Bench, contestants: Sequence[Contestant], role: str, size: int, rate: int,
         connections: int | None = None) -> Compared:
    """Messages to so many readers; by default two, to some that come and go before the others."""
    messages = 2 if connections is None else bench.options.seconds * rate
    return compare(bench, "push", contestants, "--as", role, "--publish-method", "PUT", "--size",
                   str(size), "--rate", str(rate), "--connections",
                   str(connections or WARM_UP_CONNECTIONS), "--messages", str(messages),
                   rounds=1 if connections is None else bench.options.rounds)


def process_bytes_each(report: Report) -> float:
    """What the server's process has grown by for each connection."""
    return report["memory"]["process_bytes"] / report["memory"]["connections"]


def check(what: str, report: Report) -> None:
    """Every connection came about and stayed, every answer was good, every message arrived."""
    connections, delivery = report["connections"], report.get("delivery")
    statuses = [status for status, _ in report.get("requests", {}).get("statuses", [])]
    wrong = [f"{error['count']} times: {error['kind']}" for error in report["errors"]]
    if connections["opened"] < connections["wanted"] or connections["dropped"]:
        wrong.append(f"{connections['opened']} of {connections['wanted']} connections opened, "
                     f"{connections['dropped']} dropped")
    if any(status != 200 for status in statuses):
        wrong.append(f"statuses {statuses}")
    if delivery and delivery["readers_complete"] < delivery["readers"]:
        wrong.append(f"{delivery['readers_complete']} of {delivery['readers']} readers have every "
                     "message once, in order")
    if wrong:
        raise MeasurementError(f"{what}: {'; '.join(wrong)}")
