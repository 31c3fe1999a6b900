"""What the programs of this directory have in common: options, preparing, and how they end."""

import argparse
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from . import table
from .bench import Bench, MeasurementError, Options
from .process import Process


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def parser_of(name: str, about: str, **more: object) -> argparse.ArgumentParser:
    """A parser with the option that all have."""
    parser = argparse.ArgumentParser(prog=f"bench/{name}", description=about, **more)
    add_stentor(parser)
    return parser


def add_stentor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stentor", type=Path, metavar="BINARY",
                        help="measure this binary instead of building one")


def positive(text: str) -> int:
    """A number that an option takes."""
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("numbers must be at least 1")
    return number


def run(name: str, options: Options, tools: Iterable[str], work: Callable[[Bench], int],
        takes_core: bool = True, **more: Callable[..., None]) -> int:
    """Prepares, does the work, and returns the exit status."""
    def prepared() -> int:
        bench = Bench.prepare(options, tools)
        if takes_core:
            bench.take_core()
        table.progress(bench.describe_host())
        return work(bench)

    return guard(name, prepared, **more)


def guard(name: str, work: Callable[[], int],
          on_signal: Callable[..., None] = signal.default_int_handler) -> int:
    """The exit status of the work. Signals end it as Ctrl-C does; an error is a sentence."""
    for number in SIGNALS:
        signal.signal(number, on_signal)
    try:
        return int(work())
    except (MeasurementError, OSError, subprocess.SubprocessError) as error:
        print(f"{name}: {error}\n{Process.last_words_of_all()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def show(rows: list[table.Row]) -> int:
    """Prints the table, and returns the exit status."""
    print(table.render(rows))
    return int(any(row.missed for row in rows))
