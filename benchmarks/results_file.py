"""Own what a row measures and the file and tables that it goes into."""

from __future__ import annotations

import json
import operator
import os
import platform
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from service.store.embedded import POSTGRES_MAJOR
from spark_jobs.java_runtime import find_java

RESULTS = Path(__file__).parent / "results" / "latest.json"

_SIZE = re.compile(r"^(x\d+|[\d,]+ tables)(, |: )")
"""How a metric that is measured in several sizes begins."""

_COMPARISONS = {"<=": operator.le, ">=": operator.ge, "=": operator.eq}


@dataclass(frozen=True, slots=True)
class Result:
    """Hold one metric of one row, beside the baseline that the same run measured.

    `ratio` is value / baseline_value. `goal` reads `value <= 8` or `ratio >= 0.7`; a metric without one is
    reported only, and neither holds nor fails. A goal on a ratio does not hold when there is no baseline.
    """

    metric: str
    value: float
    unit: str
    baseline: str | None = None
    baseline_value: float | None = None
    goal: str | None = None

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline_value if self.baseline_value else None

    @property
    def holds(self) -> bool | None:
        if self.goal is None:
            return None
        subject, comparison, bound = self.goal.split()
        measured = {"value": self.value, "ratio": self.ratio}[subject]
        return measured is not None and bool(_COMPARISONS[comparison](measured, float(bound)))


def as_objects(row: str, seed: int, results: Iterable[Result]) -> list[dict[str, Any]]:
    """Return the objects of one row as `latest.json` keeps them."""
    shared = {"seed": seed, "machine": machine(), "versions": versions()}
    return [
        {
            "row": row,
            "metric": result.metric,
            "value": _rounded(result.value),
            "unit": result.unit,
            "baseline": result.baseline,
            "baseline_value": _rounded(result.baseline_value),
            "ratio": _rounded(result.ratio),
            "goal": result.goal,
            "holds": result.holds,
            **shared,
        }
        for result in results
    ]


def machine() -> str:
    """Describe this machine in one line, with its load, because the rows are only as quiet as it is."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    total = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return (
        f"{os.cpu_count()} cores {model}, {total / 2**20:.0f} GiB, Linux {platform.release().split('-')[0]}, "
        f"load {os.getloadavg()[0]:.1f}"
    )


@cache
def versions() -> str:
    """Name in one line the versions of what figures hang on."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba", "pyarrow", "pyspark"))
    return f"Python {platform.python_version()}, {packages}, Postgres {POSTGRES_MAJOR}, Java {find_java().version}"


def load(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Read the file of results; none yet is an empty list."""
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def store(row: str, objects: Sequence[dict[str, Any]], path: Path = RESULTS) -> None:
    """Replace a row's objects by new ones, keeping all others; the file is replaced whole or not at all."""
    kept = [one for one in load(path) if one["row"] != row]
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_suffix(".new")
    written.write_text(json.dumps([*kept, *objects], indent=1, ensure_ascii=False) + "\n", "utf-8")
    written.replace(path)


def goals_met(objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Choose what pages show: metrics with a goal, of several sizes the last one that fails, or else the last."""
    shown: dict[tuple[str, str, str], dict[str, Any]] = {}
    for one in objects:
        key = (one["row"], _SIZE.sub("", one["metric"]), one["goal"])
        if one["goal"] and not (one["holds"] and key in shown and shown[key]["holds"] is False):
            shown[key] = one
    return list(shown.values())


def exponent(sizes: Sequence[float], taken: Sequence[float]) -> float:
    """Give the exponent of the power law that is nearest to what sizes took, by least squares of logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])


def one(objects: Sequence[dict[str, Any]], row: str, metric: str, baseline: str | None = None) -> dict[str, Any]:
    """Find a figure; raise LookupError with its name where it was not measured."""
    for one in objects:
        if (one["row"], one["metric"]) == (row, metric) and baseline in (None, one["baseline"]):
            return one
    raise LookupError(f"no {metric!r} of {row} in the results: run `make bench ONLY={row}`")


def markdown_table(objects: Iterable[dict[str, Any]]) -> str:
    """Return the table of pages."""
    head = ["Row", "Metric", "Value", "Beside it", "Ratio", "Goal", "Holds"]
    lines = [head, ["---", "---", "---:", "---", "---:", "---", "---"], *map(_cells, objects)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def console_table(objects: Iterable[dict[str, Any]]) -> Table:
    """Return the same table for a terminal."""
    table = Table("Row", "Metric", "Value", "Beside it", "Ratio", "Goal", "Holds", box=None)
    for one in objects:
        cells = [cell.strip("`*") for cell in _cells(one)]
        table.add_row(*cells, style="red" if one["holds"] is False else None)
    return table


def _cells(one: dict[str, Any]) -> list[str]:
    baseline = one["baseline"] or ""
    if one["baseline_value"] is not None:
        baseline += f": {_number(one['baseline_value'])}"
    return [
        f"`{one['row']}`",
        one["metric"],
        f"{_number(one['value'])} {one['unit']}".strip(),
        baseline,
        "" if one["ratio"] is None else _number(one["ratio"]),
        (one["goal"] or "").replace("<=", "≤").replace(">=", "≥"),
        {True: "yes", False: "**no**", None: ""}[one["holds"]],
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"


def _rounded(value: float | None) -> float | None:
    """Keep six digits, and all of a whole number."""
    return value if value is None or value == int(value) else float(f"{value:.6g}")


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines() if os.path.exists(path) else []
