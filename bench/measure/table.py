"""Result rows and the one table they are printed in."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .bench import MeasurementError
from .process import Process


@dataclass(frozen=True)
class Row:
    """One line of the result; `reached` is None for a figure that has no target."""

    what: str
    stentor: str
    against: str
    ratio: str
    must: str
    reached: bool | None

    @property
    def missed(self) -> bool:
        return self.reached is False

    @property
    def verdict(self) -> str:
        return {None: "", True: "reached", False: "MISSED"}[self.reached]


@dataclass(frozen=True)
class Target:
    """A bound with the way it is written in the table."""

    text: str
    holds: Callable[[float], bool]


def at_most(bound: float, unit: str = "") -> Target:
    return Target(f"<= {bound:g}{unit}", lambda figure: figure <= bound)


def below(bound: float, unit: str = "") -> Target:
    return Target(f"< {bound:g}{unit}", lambda figure: figure < bound)


def at_least(bound: float, unit: str = "") -> Target:
    return Target(f">= {bound:,g}{unit}" if bound < 1e5 else f">= {bound:,.0f}{unit}",
                  lambda figure: figure >= bound)


def ratio_row(what: str, stentor: str, against: str, ratio: float, target: Target | None) -> Row:
    """A figure judged by its ratio to another subject's."""
    return Row(what, stentor, against, f"{ratio:.2f}", target.text if target else "",
               target.holds(ratio) if target else None)


def absolute_row(what: str, text: str, figure: float, target: Target | None,
                 against: str = "") -> Row:
    """A figure judged by itself; another one may be shown beside it."""
    return Row(what, text, against, "", target.text if target else "",
               target.holds(figure) if target else None)


def note(what: str, text: str, against: str = "") -> Row:
    """A figure that is not judged."""
    return Row(what, text, against, "", "", None)


def either_row(what: str, judged: list[tuple[str, float, Target]]) -> Row:
    """Ratios to several subjects, one of which must reach its target; says which do."""
    reached = [name for name, ratio, target in judged if target.holds(ratio)]
    return Row(what, f"reached: {' and '.join(reached) or 'none'}",
               " or ".join(name for name, _, _ in judged),
               " or ".join(f"{ratio:.2f}" for _, ratio, _ in judged),
               " or ".join(target.text for _, _, target in judged), bool(reached))


def not_measured(what: str, reason: str) -> Row:
    """Counts as missed: a figure nobody could measure has not been reached."""
    return Row(what, "not measured", reason, "", "", False)


def render(rows: list[Row]) -> str:
    """Columns in which no row has anything are left out."""
    lines = [("what", "stentor", "against", "ratio", "must reach", "verdict")]
    lines += [(r.what, r.stentor, r.against, r.ratio, r.must, r.verdict) for r in rows]
    lines = list(zip(*(column for column in zip(*lines) if any(column[1:]))))
    return align(lines)


def align(lines: list[tuple[str, ...]]) -> str:
    """The first line is the heads of the columns."""
    widths = [max(map(len, column)) for column in zip(*lines)]
    lines = [lines[0], tuple("-" * width for width in widths), *lines[1:]]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip()
        for line in lines
    )


def progress(text: str) -> None:
    """What goes on, on stderr: stdout holds the table alone."""
    print(text, file=sys.stderr, flush=True)


def each(steps: dict[str, Callable[..., list[Row]]], *arguments: Any) -> list[Row]:
    """The rows of all steps; one that cannot be made is a row that says so."""
    rows: list[Row] = []
    for name, step in steps.items():
        progress(f"{name} ...")
        try:
            rows += step(*arguments)
        except (MeasurementError, OSError, subprocess.SubprocessError) as error:
            rows.append(not_measured(name, str(error)))
            progress(Process.last_words_of_all())
    return rows


def named(*steps: Callable[..., list[Row]]) -> dict[str, Callable[..., list[Row]]]:
    return {step.__name__: step for step in steps}
