"""The table of servers and loads: what the same load costs Stentor, nginx (with nchan) and the
floor. Each load is also a command of `bench/run`, which judges its figures."""

import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator

from .bench import Bench, MeasurementError
from .connections import idle_load
from .fanout import stream_load
from .load import FOREIGN_SHARE_MAX, Load
from .reading import pipelined_load, plain_load, short_load

COLUMNS = {"Stentor": ("stentor",), "nginx, nchan for streams": ("nginx", "nchan"),
           "the floor": ("floor",)}


def loads(bench: Bench, connections: int) -> Iterator[Load]:
    """Idle connections come before others, which leave closed ones behind in the kernel."""
    yield idle_load(bench, connections, bench.options.rounds)
    yield plain_load(bench)
    yield pipelined_load(bench)
    yield short_load(bench)
    yield stream_load(bench, "sse", connections)
    yield stream_load(bench, "ws", connections)


def markdown(bench: Bench, loads: list[Load]) -> str:
    """The table, under a paragraph that says when, where and of what."""
    text = [*about(bench), *caution(loads), "", f"| | {' | '.join(COLUMNS)} |",
            f"|---|{'---|' * len(COLUMNS)}"]
    for load in loads:
        for figure in load.figures:
            cells = (next((load.median(figure, name) for name in names
                           if name in load.series.samples), "–") for names in COLUMNS.values())
            text.append(f"| {load.what}: {figure.what} | {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def about(bench: Bench) -> list[str]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    versions = ", ".join((version("Stentor", bench.stentor, "--version"),
                          version("nginx", "nginx", "-v"),
                          version("nchan", "dpkg-query", "--show", "libnginx-mod-nchan")))
    return [
        f"By `bench/peers` on {time.strftime('%-d %B %Y')}: {processor()}, {os.cpu_count()} cores, "
        f"{memory:.0f} GB,",
        f"Linux {platform.release()}. {versions}.",
        f"One process of each server on one core, the load on another; medians of "
        f"{bench.options.rounds}",
        "alternating rounds. *CPU each* is the server's processor time per request or delivery.",
    ]


def caution(loads: list[Load]) -> list[str]:
    """A warning above the table if the host was busy."""
    worst = max(load.series.foreign_share for load in loads)
    if worst <= FOREIGN_SHARE_MAX:
        return []
    return [f"**Other processes took up to {worst:.0%} of the two cores: do not trust it.**"]


def version(name: str, *command: object) -> str:
    done = subprocess.run(list(map(str, command)), check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=10)
    if not (found := re.search(r"(?<![\w.])(?:\d+:)?(\d+(?:\.\d+)+)", done.stdout)):
        raise MeasurementError(f"{command[0]} tells no version: {done.stdout.strip()}")
    return f"{name} {found[1]}"


def processor() -> str:
    with open("/proc/cpuinfo") as file:
        found = re.search(r"^model name\s*: (.*)$", file.read(), re.M)
    return re.sub(r"\((?:R|TM)\)", "", found[1]).strip() if found else platform.machine()
