"""The comparison table: what the same load costs Stentor, nginx (with nchan) and the floor.

All load is `stentor bench`, so that whoever reads the table can repeat any line of it.
"""

import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from .bench import Bench, MeasurementError
from .compare import (
    Compared,
    Contestant,
    Report,
    compare,
    hold_idle,
    process_bytes_each,
    push,
)
from .fanout import PER_SECOND
from .load import CONNECTIONS, FOREIGN_SHARE_MAX
from .push import MESSAGE_BYTES, capture, message
from .reading import PIPELINE_DEPTH, TOPIC, VALUE
from .servers import (
    QUIET_STREAMS_CONFIG,
    Floor,
    FloorPush,
    Nchan,
    Nginx,
    Stentor,
    expect_body,
    get,
)

NAMES = ("stentor", "nginx", "floor")
STREAM = "/bench/peers"
ABSENT = "–"


@dataclass(frozen=True)
class Line:
    """One line of the table: a figure of each of NAMES, as text."""

    what: str
    cells: dict[str, str]
    foreign_share: float
    """What other processes took of the two cores meanwhile."""


@dataclass(frozen=True)
class Figure:
    """What to take from a report, and how to write it."""

    what: str
    of: Callable[[Report], float]
    text: Callable[[float], str]


RATE = Figure("requests/s", lambda report: report["requests"]["per_second"],
              lambda figure: f"{figure:,.0f}")
CPU = Figure("CPU each", lambda report: report["processor"]["busy_us_each"],
             lambda figure: f"{figure:.2f} µs")
PROCESS = Figure("process memory each", process_bytes_each, lambda figure: f"{figure:,.0f} B")
LAST = Figure("until the last has a message",
              lambda report: statistics.median(
                  message["last_us"] for message in report["delivery"]["messages"]),
              lambda figure: f"{figure / 1e3:.0f} ms")


def measure(bench: Bench, connections: int) -> list[Line]:
    return [*reading(bench, connections),
            *streams(bench, "SSE", "sse", connections),
            *streams(bench, "WebSocket", "ws", connections)]


def reading(bench: Bench, connections: int) -> list[Line]:
    """Requests of a 12-byte value, and connections that wait for the next one."""
    seconds, rounds = f"{bench.options.seconds}s", bench.options.rounds
    with Stentor(bench) as stentor, Nginx(VALUE) as nginx:
        stentor.put(TOPIC, VALUE)
        expect_body(nginx, TOPIC, VALUE)
        with Floor(bench, get(stentor, TOPIC)) as floor:
            all_of_them = [Contestant(name, server, TOPIC)
                           for name, server in zip(NAMES, (stentor, nginx, floor))]
            requests = ["--connections", str(CONNECTIONS), "--duration"]
            compare(bench, "get", all_of_them, *requests, "1s")
            # Before the others, which leave closed connections behind in the kernel.
            held = hold_idle(bench, all_of_them, connections, rounds)
            plain = compare(bench, "get", all_of_them, *requests, seconds, rounds=rounds)
            pipelined = compare(bench, "get", all_of_them, *requests, seconds, "--pipeline",
                                str(PIPELINE_DEPTH), rounds=rounds)
            # The floor closes nothing.
            short = compare(bench, "get", all_of_them[:2], *requests, seconds, "--close",
                            rounds=rounds)
    return [
        *lines(f"GET of {len(VALUE)} bytes, {CONNECTIONS} connections", plain, RATE, CPU),
        *lines(f"{PIPELINE_DEPTH} GETs in one write", pipelined, RATE, CPU),
        *lines("one connection per request", short, RATE, CPU),
        *lines(f"{connections:,} idle connections", held, PROCESS),
    ]


def streams(bench: Bench, kind: str, role: str, connections: int) -> list[Line]:
    """One topic with many readers, and a message for all of them a few times a second."""
    with ExitStack() as stack:
        stentor = stack.enter_context(Stentor(bench, config=QUIET_STREAMS_CONFIG))
        data = message(0)
        stentor.put(STREAM, data)
        captured = capture(stentor, STREAM, data, websocket=role == "ws")
        floor = stack.enter_context(FloorPush(bench, *captured))
        nchan = stack.enter_context(Nchan())
        all_of_them = [
            Contestant(name, server, STREAM, f"http://127.0.0.1:{port}{path}")
            for name, server, port, path in (
                ("stentor", stentor, stentor.control_port, STREAM),
                ("nginx", nchan, nchan.port, "/pub"),
                ("floor", floor, floor.publish_port, "/"))
        ]
        push(bench, all_of_them, role, MESSAGE_BYTES, PER_SECOND)
        found = push(bench, all_of_them, role, MESSAGE_BYTES, PER_SECOND, connections)
    return lines(f"{connections:,} {kind} readers of one topic", found, PROCESS, CPU, LAST)


def lines(what: str, found: Compared, *figures: Figure) -> list[Line]:
    """A line for each figure; a subject that was not measured has none."""
    return [
        Line(f"{what}: {figure.what}",
             {name: figure.text(found.median(name, figure.of)) if name in found.samples else ABSENT
              for name in NAMES}, found.foreign_share)
        for figure in figures
    ]


def markdown(bench: Bench, table: list[Line]) -> str:
    """The table, under a paragraph that says when, where and of what."""
    text = [*about(bench), *caution(table), "",
            "| | Stentor | nginx, nchan for streams | the floor |", "|---|---|---|---|"]
    text += ["| " + " | ".join((line.what, *(line.cells[name] for name in NAMES))) + " |"
             for line in table]
    return "\n".join(text) + "\n"


def about(bench: Bench) -> list[str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    versions = ", ".join((said("Stentor", [str(bench.stentor), "--version"]),
                          said("nginx", ["nginx", "-v"]),
                          said("nchan", ["dpkg-query", "--show", "libnginx-mod-nchan"])))
    return [
        f"By `bench/peers` on {time.strftime('%-d %B %Y')}: {processor()}, {os.cpu_count()} cores, "
        f"{memory:.0f} GB,",
        f"Linux {platform.release()}. {versions}.",
        "One process of each server on one core, `stentor bench` on another; medians of "
        f"{bench.options.rounds}",
        "alternating rounds. *CPU each* is the server's processor time per request or delivery.",
    ]


def caution(table: list[Line]) -> list[str]:
    """What whoever reads the table must know of the host."""
    worst = max(line.foreign_share for line in table)
    if worst <= FOREIGN_SHARE_MAX:
        return []
    return [f"**Other processes took up to {worst:.0%} of the two cores: do not trust it.**"]


def said(name: str, command: list[str]) -> str:
    """The name with the version that a command tells."""
    done = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if not (version := re.search(r"(?<![\w.])(?:\d+:)?(\d+(?:\.\d+)+)", done.stdout)):
        raise MeasurementError(f"{' '.join(command)} tells no version: {done.stdout.strip()}")
    return f"{name} {version[1]}"


def processor() -> str:
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return re.sub(r"\((?:R|TM)\)", "", line.partition(":")[2]).strip()
    return platform.machine()
