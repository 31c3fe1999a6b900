"""What the programs of this directory have in common: options, preparing, and how they end."""

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from . import table
from .bench import Bench, MeasurementError, Options


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def parser_of(name: str, about: str, **more: object) -> argparse.ArgumentParser:
    """A parser with the option that all have."""
    parser = argparse.ArgumentParser(prog=f"bench/{name}", description=about, **more)
    parser.add_argument("--stentor", type=Path, metavar="BINARY",
                        help="measure this binary instead of building one")
    return parser


def positive(text: str) -> int:
    """A number that an option takes."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("numbers must be at least 1")
    return number


def run(name: str, options: Options, tools: Iterable[str], work: Callable[[Bench], int],
        takes_core: bool = True,
        on_signal: Callable[..., None] = signal.default_int_handler) -> int:
    """Does the work, and returns the exit status. Signals end it as Ctrl-C does."""
    for number in SIGNALS:
        signal.signal(number, on_signal)
    try:
        bench = Bench.prepare(options, tools)
        if takes_core:
            bench.take_core()
        table.progress(bench.describe_host())
        return work(bench)
    except (MeasurementError, subprocess.CalledProcessError) as error:
        print(f"bench/{name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def show(rows: list[table.Row]) -> int:
    """Prints the table, and returns the exit status."""
    print(table.render(rows))
    return int(any(row.missed for row in rows))
