"""Kernel settings that are changed for a measurement and put back after it, whatever happens."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import table
from .bench import OUT_DIR, MeasurementError

SAVED = OUT_DIR / "sysctl-saved.json"
"""Exists while settings are changed: what a killed run left behind, the next one puts back."""


@contextmanager
def changed(settings: dict[str, str]) -> Iterator[None]:
    """Signals must already be turned into exceptions; a kill is made good by the next call."""
    if os.geteuid() != 0:
        raise MeasurementError("changing kernel settings needs root")
    restore()
    OUT_DIR.mkdir(exist_ok=True)
    SAVED.write_text(json.dumps({name: path(name).read_text().strip() for name in settings}))
    try:
        for name, value in settings.items():
            path(name).write_text(value)
        yield
    except OSError as error:
        raise MeasurementError(f"kernel settings: {error}") from error
    finally:
        restore()


def restore() -> None:
    """Puts back what is saved, if anything is."""
    if not SAVED.exists():
        return
    for name, value in json.loads(SAVED.read_text()).items():
        path(name).write_text(value)
        table.progress(f"{name} is {' '.join(value.split())} again")
    SAVED.unlink()


def path(name: str) -> Path:
    return Path("/proc/sys") / name.replace(".", "/")
