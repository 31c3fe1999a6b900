"""The host, made ready by `stentor tune` for a measurement and put back after it, come what may."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import table
from .bench import OUT_DIR, MeasurementError

SAVED = OUT_DIR / "host-saved.json"
"""File -> value before. Exists while the host is changed: what a killed run left behind, the next
one puts back."""

SOCKSTAT = Path("/proc/net/sockstat")
USAGE_ERROR = 2


@dataclass(frozen=True)
class Change:
    """A value of a file below /proc/sys or /sys."""

    name: str
    file: Path
    now: str
    wanted: str


class Judgement:
    """What `stentor tune` says of this host."""

    def __init__(self, report: dict[str, Any]) -> None:
        self.report = report

    @staticmethod
    def of(stentor: Path, connections: int, rate: float, *options: str) -> "Judgement":
        """For readers by Server-Sent Events, each of which is sent `rate` messages a second."""
        command = [str(stentor), "tune", "--connections", str(connections), "--as", "sse",
                   "--rate", f"{rate:g}", "--json", *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        # 1 says that the host is not ready, which is told in the report as well.
        if done.returncode >= USAGE_ERROR or not done.stdout:
            raise MeasurementError(f"stentor tune: {done.stderr.strip()}")
        return Judgement(json.loads(done.stdout))

    @property
    def workers(self) -> int:
        """As many as the limit of open files asks for."""
        if (workers := self.report["need"]["workers"]) is None:
            raise MeasurementError("no number of workers makes up for the limit of open files: "
                                   "raise it (ulimit -Hn)")
        return workers

    def changes(self) -> list[Change]:
        """Those that can be made while the host runs."""
        found = [change for finding in self.report["findings"] for change in finding["changes"]]
        return [live for change in found if (live := live_change(change))]

    def applied(self) -> tuple[list[Change], list[str]]:
        """What was changed, with the values before, and what could not be."""
        tried = [(live, entry["error"]) for entry in self.report["applied"]
                 if (live := live_change(entry["change"]))]
        return ([live for live, _ in tried],
                [f"{live.name}: {error}" for live, error in tried if error])

    def obstacles(self) -> list[str]:
        """Why the host cannot hold what was asked."""
        return [f"{finding['rule']}: {finding['why']}" for finding in self.report["findings"]
                if finding["severity"] == "blocks"]


def live_change(change: dict[str, Any]) -> Change | None:
    """None for a setting that belongs to whoever starts a process."""
    setting = change["setting"]
    if not isinstance(setting, dict) or change["now"] is None:
        return None
    (kind, name), = setting.items()
    file = Path("/proc/sys", name.replace(".", "/")) if kind == "sysctl" else Path("/", name)
    return Change(name, file, change["now"], change["wanted"])


@contextmanager
def tuned(stentor: Path, connections: int, rate: float,
          planned: list[Change]) -> Iterator[None]:
    """Has `stentor tune` make the changes. Signals must already be turned into exceptions.

    The values before are noted before the first of them is changed, since a kill can come at any
    time; those `planned` are what the judgement without --apply found.
    """
    if os.geteuid() != 0:
        raise MeasurementError("changing the host's settings needs root; --no-tune leaves them")
    restore()
    try:
        save(planned)
        changed, failed = Judgement.of(stentor, connections, rate, "--apply").applied()
        save(changed)
        for line in failed:
            table.progress(f"warning: {line}")
        yield
    finally:
        restore()


def save(changes: list[Change]) -> None:
    """At no time is there a file that is not whole."""
    draft = SAVED.with_suffix(".tmp")
    draft.write_text(json.dumps({str(change.file): change.now for change in changes}))
    draft.replace(SAVED)


def restore() -> None:
    """Puts back what is saved, if anything is; what fails does not keep the rest from it."""
    if not SAVED.exists():
        return
    failed = {}
    for name, value in json.loads(SAVED.read_text()).items():
        try:
            if Path(name).read_text().split() != value.split():
                Path(name).write_text(value)
                table.progress(f"{name} is {value} again")
        except OSError as error:
            failed[name] = value
            table.progress(f"warning: {name} could not be put back to {value}: {error}")
    if failed:
        SAVED.write_text(json.dumps(failed))
    else:
        SAVED.unlink()


def tcp_sockets(what: str) -> int:
    """Returns a count of this host's TCP sockets: those `inuse`, or their pages of `mem`."""
    if found := re.search(rf"^TCP: .*\b{what} (\d+)", SOCKSTAT.read_text(), re.MULTILINE):
        return int(found[1])
    raise MeasurementError(f"{SOCKSTAT} does not tell of TCP")
