"""Own the command `python -m benchmarks.compare NEW OLD [OLD ...]`: what became slower, larger, or missed its goal.

Ratios to a baseline of the same run are compared always, absolute figures only between runs on the same processor.
Worse is what is beyond the worst of the older files by more than the noise: several runs of one state, given as OLD,
widen it. A figure that is gone is told, and is worse if it had a goal.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import results_file

NOISE = 1.25
"""Factor by which repeated runs of a row differ on a quiet machine of two shared cores."""

SMALLER_IS_BETTER = {"s", "ms", "µs", "µs/value", "µs/tuple", "GB", "MB", "KB", "B", "bytes", "bytes a cell"}
SMALLER_IS_BETTER |= {"mean |error|", "of Φ"}

LARGER_NAMES = ("F1", "precision", "covered", "HOT", "answers as", "exponent of tuples/s")
SMALLER_NAMES = ("exponent", "false positives", "accesses", "errors", "that differ", "do not join", "largest share")
"""Words in the name of a metric that say which way is better, where its unit does not."""


class Verdict(Enum):
    """Say how a metric stands to what it was."""

    WORSE = "worse"
    MISSED = "goal missed"
    BETTER = "better"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold one metric that changed: `factor` is how many times worse than the worst (or best) of before it is.

    It is below 1 for what became better, infinite for what came off zero, and None where only the goal tells.
    """

    row: str
    metric: str
    what: str
    before: float
    now: float | None
    factor: float | None
    verdict: Verdict


def compare(
    new: Sequence[dict[str, Any]], old: Sequence[Sequence[dict[str, Any]]], noise: float = NOISE
) -> list[Comparison]:
    """Compare objects of one file of results with those of others; what is within the noise is left out."""
    before = [{_key(one): one for one in objects} for objects in old]
    found = []
    for one in new:
        others = [known[_key(one)] for known in before if _key(one) in known]
        if others and (judged := _judged(one, others, noise)):
            found.append(judged)
    return found


def not_measured(new: Sequence[dict[str, Any]], old: Sequence[Sequence[dict[str, Any]]]) -> list[str]:
    """Name the rows that older files have and the new one has not."""
    return sorted({one["row"] for objects in old for one in objects} - {one["row"] for one in new})


def gone(new: Sequence[dict[str, Any]], old: Sequence[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Give the figures of rows of the new file that it has not, and that each older file with their row has."""
    rows, keys = {one["row"] for one in new}, {_key(one) for one in new}
    last = {_key(one): one for objects in old for one in objects if one["row"] in rows}
    before = [({one["row"] for one in objects}, {_key(one) for one in objects}) for objects in old]
    return [
        one
        for key, one in last.items()
        if key not in keys and all(key in known for measured, known in before if one["row"] in measured)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what changed; return 2 for files that are not there, and 1 if anything is worse.

    That is what is slower or larger, misses a goal that it met before, or had a goal and is gone.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare", description=__doc__)
    parser.add_argument("new", type=Path, metavar="NEW", help="file of results, as `make bench` writes it")
    parser.add_argument("old", type=Path, nargs="+", metavar="OLD", help="those to compare with")
    parser.add_argument("--noise", type=float, default=NOISE, help=f"factor that is no difference (default {NOISE})")
    options = parser.parse_args(arguments)
    missing = [str(path) for path in (options.new, *options.old) if not path.is_file()]
    if missing:
        parser.error(f"there is no file {', '.join(missing)}: `make bench` writes {results_file.RESULTS}")
    new, old = results_file.load(options.new), [results_file.load(path) for path in options.old]
    changed = compare(new, old, options.noise)
    console = Console(soft_wrap=True) if sys.stdout.isatty() else Console(width=160)
    console.print(_table(changed))
    if missed := not_measured(new, old):
        console.print(f"Not in {options.new}: {', '.join(missed)}", highlight=False, markup=False)
    lost = gone(new, old)
    for one in lost:
        goal = f" (goal: {one['goal']})" if one["goal"] else ""
        console.print(f"Gone from {one['row']}: {one['metric']}{goal}", highlight=False, markup=False)
    worse = sum(one.verdict is not Verdict.BETTER for one in changed)
    console.print(f"{worse} worse, {len(changed) - worse} better, of {len(new)} figures", highlight=False)
    return 1 if worse or any(one["goal"] for one in lost) else 0


def _judged(one: dict[str, Any], others: Sequence[dict[str, Any]], noise: float) -> Comparison | None:
    """Judge a metric: by a goal that it met before and misses now, else by its ratio, else by its value."""
    row, metric = one["row"], one["metric"]
    if one["holds"] is False and all(o["holds"] and o["goal"] == one["goal"] for o in others):
        subject = one["goal"].split()[0]
        return Comparison(row, metric, subject, others[-1][subject], one[subject], None, Verdict.MISSED)
    subject = "value" if one["ratio"] is None else "ratio"
    known = [o[subject] for o in others if o[subject] is not None and (subject == "ratio" or _same_box(one, o))]
    direction = _direction(one)
    if not known or not direction:
        return None
    times = sorted((_times_worse(before, one[subject], direction), before) for before in known)
    factor, before = times[0]  # beside the worst of before
    if factor > noise:
        return Comparison(row, metric, subject, before, one[subject], factor, Verdict.WORSE)
    factor, before = times[-1]
    return (
        Comparison(row, metric, subject, before, one[subject], factor, Verdict.BETTER) if factor < 1 / noise else None
    )


def _times_worse(before: float, now: float, direction: int) -> float:
    """Say how many times worse a figure is; below zero counts as zero, of which nothing is a multiple."""
    better, worse = (max(0, one) for one in ((now, before) if direction > 0 else (before, now)))
    if better:
        return worse / better
    return math.inf if worse else 1


def _direction(one: dict[str, Any]) -> int:
    """Say whether more of a metric is better (1), worse (-1), or neither, as far as its unit, goal and name tell."""
    if one["unit"].endswith("/s"):
        return 1
    if one["unit"] in SMALLER_IS_BETTER:
        return -1
    if one["goal"] and (bound := {"<=": -1, ">=": 1}.get(one["goal"].split()[1])):
        return bound
    if any(name in one["metric"] for name in LARGER_NAMES):
        return 1
    return -1 if any(name in one["metric"] for name in SMALLER_NAMES) else 0


def _key(one: dict[str, Any]) -> tuple[str, str, str | None]:
    return one["row"], one["metric"], one["baseline"]


def _same_box(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Tell whether two objects come from the same processor with as much memory."""
    return bool(one["machine"].split(", Linux")[0] == other["machine"].split(", Linux")[0])


def _table(changed: Sequence[Comparison]) -> Table:
    table = Table("Row", "Metric", "Of it", "Before", "Now", "Factor", "", box=None)
    for one in sorted(changed, key=lambda one: (one.verdict is Verdict.BETTER, -(one.factor or 1e9))):
        factor = "" if one.factor is None else f"{one.factor:.2f}"
        style = None if one.verdict is Verdict.BETTER else "red"
        now = "" if one.now is None else f"{one.now:.4g}"
        cells = (one.row, one.metric, one.what, f"{one.before:.4g}", now, factor, one.verdict.value)
        table.add_row(*cells, style=style)
    return table


if __name__ == "__main__":
    sys.exit(main())
