"""Own the page of results: `python -m tests.mutants.report` writes the table of modules and the list of survivors."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

EXPLAINED = Path(__file__).with_name("survivors.json")
"""Why a mutant may live, by module and change."""

_HEAD = (
    "| module | mutants | tried | killed before | killed after | 95 % interval | live | explained |\n"
    + "|---" * 8
    + "|"
)


def main() -> None:
    """Write the results that are kept in a folder as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.report")
    parser.add_argument("--kept", type=Path, default=Path("build/mutants"))
    given = parser.parse_args()
    records = [json.loads(path.read_text("utf-8")) for path in sorted(given.kept.glob("service.*.json"))]
    print(page([record for record in records if record["tried"]], json.loads(EXPLAINED.read_text("utf-8"))))


def page(records: Sequence[dict[str, Any]], explained: dict[str, dict[str, str]]) -> str:
    """Write the table, a line a module and one of all, and then each mutant that lives, with why."""
    lines = [_HEAD]
    totals = [0] * 5
    survivors = []
    for record in records:
        reasons = explained.get(record["path"], {})
        lives = record["survivors"]
        known = sum(survivor["change"] in reasons for survivor in lives)
        counts = [record["mutants"], record["tried"], record["lived_first"], len(lives), known]
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        lines.append(_row(f"`{record['path']}`", counts))
        for survivor in lives:
            lines_of = {
                sign: [line[2:] for line in survivor["change"].splitlines() if line[0] == sign] for sign in "-+"
            }
            before = " ".join(line for line in lines_of["-"] if line not in lines_of["+"])
            after = " ".join(line for line in lines_of["+"] if line not in lines_of["-"])
            why = reasons.get(survivor["change"], "not explained")
            survivors.append(f"* `{record['path']}:{survivor['line']}` `{before}` → `{after}`: {why}")
    return "\n".join([*lines, _row("all", totals), "", *survivors])


def _row(name: str, counts: Sequence[int]) -> str:
    mutants, tried, lived_first, lives, known = counts
    low, high = _interval(tried - lives, tried)
    interval = f"{low:.0%} to {high:.0%}" if tried < mutants else "all tried"
    first, last = 1 - lived_first / tried, 1 - lives / tried
    return f"| {name} | {mutants} | {tried} | {first:.0%} | {last:.0%} | {interval} | {lives} | {known} |"


def _interval(found: int, tried: int) -> tuple[float, float]:
    """Wilson's interval of a share, with 95 % confidence."""
    z, share = 1.96, found / tried
    centre = share + z * z / (2 * tried)
    spread = z * math.sqrt(share * (1 - share) / tried + z * z / (4 * tried * tried))
    return (centre - spread) / (1 + z * z / tried), (centre + spread) / (1 + z * z / tried)


if __name__ == "__main__":
    main()
