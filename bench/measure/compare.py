"""Load from `stentor bench`: what it reports of each of several servers, round by round."""

import json
import shlex
import statistics
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from . import client, table
from .bench import Bench, MeasurementError
from .load import Figure, Series, Usage, foreign_share, warn_of_others
from .process import TIED, Server

Report = dict[str, Any]

WARM_UP_CONNECTIONS = 300
SECONDS_MAX = 600
FIRST = ("chrt", "--fifo", "1")

CPU_EACH = Figure("CPU each", lambda report: report["processor"]["busy_us_each"], "{:.2f} us")
PROCESS_EACH = Figure(
    "process memory each",
    lambda report: report["memory"]["process_bytes"] / report["memory"]["connections"],
    "{:,.0f} B")
LAST = Figure("until the last has a message", lambda report: statistics.median(
    message["last_us"] for message in report["delivery"]["messages"]) / 1e3, "{:.1f} ms")


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


def compare(bench: Bench, kind: str, contestants: Sequence[Contestant], *options: object,
            rounds: int = 1) -> Series:
    """Alternating rounds of all contestants; one on its own makes a plain run.

    Whatever went wrong, for whichever server, makes all of it worthless.
    """
    several = len(contestants) > 1
    command = command_of(bench, kind, contestants, *options,
                         *(("--rounds", rounds) if several else ()))
    table.progress(shlex.join(command))
    servers = [contestant.server for contestant in contestants]
    before = Usage.now(servers[0], *servers[1:])
    found = finish(kind, start(command), SECONDS_MAX)
    foreign = warn_of_others([foreign_share(before, Usage.now(servers[0], *servers[1:]))])
    subjects = found["subjects"] if several else [{"reports": [found]}]
    reports = {contestant.name: subject["reports"]
               for contestant, subject in zip(contestants, subjects, strict=True)}
    for name, of_one in reports.items():
        for report in of_one:
            check(f"{kind}, {name}", report)
    return Series(reports, foreign)


def command_of(bench: Bench, kind: str, contestants: Sequence[Contestant],
               *options: object) -> list[str]:
    command: list[object] = [bench.stentor, "bench", kind, *(one.url for one in contestants)]
    for one in contestants:
        command += ["--pid", one.server.pid]
        if one.publish:
            command += ["--publish", one.publish]
    if any(one.server.scheme == "https" for one in contestants):
        # Whether it is the right one is not what is measured.
        command.append("--insecure")
    return list(map(str, [*command, *options, "--json"]))


def start(command: Sequence[object], **more: object) -> subprocess.Popen[str]:
    return subprocess.Popen([*TIED, *map(str, command)], text=True, **{
        "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})


def finish(what: str, process: subprocess.Popen[str], seconds: float,
           statuses: Sequence[int] = (0,)) -> Report:
    """The report of `stentor bench`, which must come in time, with one of these exit statuses."""
    try:
        output, trouble = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(f"stentor bench {what} has not ended after {seconds:g} s") from error
    finally:
        process.kill()
        process.wait()
    return parse(what, process, output, trouble, statuses)


def parse(what: str, process: subprocess.Popen[str], output: str, trouble: str | None,
          statuses: Sequence[int]) -> Report:
    if process.returncode not in statuses or not output:
        raise MeasurementError(f"stentor bench {what} ended with {process.returncode}: {trouble}")
    return json.loads(output)


@cache
def first() -> tuple[str, ...]:
    """Runs a command before all others of its core, where that is allowed."""
    if subprocess.run([*FIRST, "true"], capture_output=True).returncode == 0:
        return FIRST
    table.progress("warning: no real-time scheduling: steady GETs wait for other load")
    return ()


def steady_gets(bench: Bench, port: int, path: str, per_second: int, seconds: int,
                connections: int) -> dict[str, float]:
    """How long GETs at a steady rate took, whatever the server does: each counts from when it was
    due, and all must have been answered.

    They share their core with other load and go first there, where that is allowed: what they would
    wait for the others is not the server's.
    """
    report = finish("get", start([
        *first(), bench.stentor, "bench", "get", f"http://127.0.0.1:{port}{path}",
        "--connections", connections, "--rate", per_second, "--requests",
        per_second * seconds, "--threads", 1, "--json",
    ]), seconds + 30)
    check("steady GETs", report)
    return report["requests"]["latency"]


def hold_idle(bench: Bench, contestants: Sequence[Contestant], connections: int,
              rounds: int = 1) -> Series:
    """Connections that ask once and stay silent, after some that have come and gone: what a server
    takes once for all is not theirs."""
    idle = ("--as", "idle", "--connections")
    compare(bench, "hold", contestants, *idle, WARM_UP_CONNECTIONS, "--duration", "100ms")
    return compare(bench, "hold", contestants, *idle, connections, "--duration", "500ms",
                   rounds=rounds)


def push(bench: Bench, contestants: Sequence[Contestant], role: str, size: int, rate: int,
         connections: int, rounds: int | None = None) -> Series:
    """Messages to so many readers, after two messages to some that come and go before them."""
    def run(connections: int, messages: int, rounds: int) -> Series:
        return compare(bench, "push", contestants, "--as", role, "--publish-method", "PUT",
                       "--size", size, "--rate", rate, "--connections", connections,
                       "--messages", messages, rounds=rounds)

    run(WARM_UP_CONNECTIONS, 2, 1)
    return run(connections, bench.options.seconds * rate, rounds or bench.options.rounds)


def await_connections(control_port: int, count: int, seconds: float = 60) -> None:
    """Waits until the server has so many connections."""
    give_up = time.monotonic() + seconds
    while (found := client.status(control_port)["connections_open"]) < count:
        if time.monotonic() > give_up:
            raise MeasurementError(f"{found:,} of {count:,} connections after {seconds:g} s")
        time.sleep(0.1)


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
