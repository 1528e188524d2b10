"""Own the report of a soak: Markdown, JSON and plots, from what was seen. Pure but for the files that it writes."""

from __future__ import annotations

import json
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

from service import __version__
from tests.endurance.soak.judge import (
    JUDGED,
    MOST_P99,
    MOST_SLOPE,
    Killed,
    Point,
    Seen,
    faults,
    freshness,
    percentile,
    slopes,
    undisturbed,
)

WIDTH, HEIGHT, LEFT, TOP = 760, 260, 70, 30
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MOST_POINTS = 700


def write(seen: Seen, seed: int, witness: str, folder: Path) -> list[str]:
    """Write the report into a folder; give what makes it red."""
    red = faults(seen, witness)
    folder.mkdir(parents=True, exist_ok=True)
    plots = {
        "memory": ("Memory, MB", seen.memory),
        "disk": ("Disk, MB", seen.disk),
        "lag": ("Records behind (direct: bytes)", seen.lag),
        "freshness": (
            "Worst freshness of each 30 s, s",
            {name: worst(points) for name, points in seen.freshness.items()},
        ),
    }
    for name, (title, lines) in plots.items():
        (folder / f"{name}.svg").write_text(plot(title, lines, seen.kills, seen.paused))
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "system": platform.platform()}
    numbers = vars(seen) | {"kills": [asdict(one) for one in seen.kills]}
    told = {"subsetd": __version__, "seed": seed, "machine": machine, "red": red, **numbers}
    (folder / "report.json").write_text(json.dumps(told, indent=1))
    (folder / "report.md").write_text(markdown(seen, seed, red, list(plots)))
    return red


def markdown(seen: Seen, seed: int, red: Sequence[str], plots: Sequence[str]) -> str:
    """Give the report for people."""
    lines = [
        f"# Soak of {seen.seconds / 60:.0f} minutes, SEED={seed}: {'red' if red else 'green'}",
        "",
        *[f"* **{one}**" for one in red],
        "",
        f"{sum(seen.changes.values()):,} changes, {len(seen.kills):,} kills.",
        "",
        "| feed | changes | p99 freshness, without 10 s from each kill | of samples | p50 | worst |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    p99 = freshness(seen)
    for feed, count in sorted(seen.changes.items()):
        points = seen.freshness.get(feed, [])
        calm = undisturbed(points, seen.kills)
        cells = [f"{p99[feed]:.2f} s" if feed in p99 else "", f"{len(calm):,} of {len(points):,}" if points else ""]
        cells.append(f"{percentile(calm, 0.5):.2f} s" if calm else "")
        cells.append(f"{max(value for _, value in points):.1f} s" if points else "")
        lines.append(f"| {feed} | {count:,} | {' | '.join(cells)} |")
    lines += ["", "| killed | times | seconds until it was started again, median |", "|---|---:|---:|"]
    for part, count in sorted(Counter(one.part for one in seen.kills).items()):
        lines.append(
            f"| {part} | {count} | {median(one.back - one.at for one in seen.kills if one.part == part):.1f} |"
        )
    judged = "judged" if seen.seconds >= JUDGED else f"not judged below {JUDGED / 60:.0f} minutes"
    lines += ["", f"| process | MB, median | MB an hour in the second half ({judged}) |", "|---|---:|---:|"]
    grown = slopes(seen)
    for name, points in sorted(seen.memory.items()):
        slope = f"{grown[name]:+.2f}" if name in grown else ""
        lines.append(f"| {name} | {median(value for _, value in points):.0f} | {slope} |")
    lines += ["", "| done | times |", "|---|---:|"]
    lines += [f"| {what} | {count:,} |" for what, count in sorted(seen.did.items())]
    if seen.exits:
        lines += ["", "Commands that ended by themselves, and were started again:", ""]
        lines += [f"* {one.splitlines()[0][:300]} … {one.splitlines()[-1][-300:]}" for one in seen.exits]
    lines += ["", *[f"![{name}]({name}.svg)" for name in plots], ""]
    lines.append(f"Allowed: {MOST_P99:g} s of freshness, {MOST_SLOPE:g} MB an hour, no difference.")
    return "\n".join(lines) + "\n"


def worst(points: Sequence[Point], seconds: float = 30.0) -> list[Point]:
    """Give the largest number of each so many seconds."""
    found: dict[int, float] = {}
    for at, value in points:
        found[int(at / seconds)] = max(value, found.get(int(at / seconds), 0.0))
    return [(place * seconds, value) for place, value in sorted(found.items())]


def plot(
    title: str, lines: Mapping[str, Sequence[Point]], kills: Sequence[Killed], paused: Sequence[tuple[float, float]]
) -> str:
    """Draw numbers over minutes as SVG; kills are ticks below, comparisons are grey."""
    points = [point for line in lines.values() for point in line]
    end = max((at for at, _ in points), default=1.0) or 1.0
    top = max((value for _, value in points), default=1.0) or 1.0

    def x(at: float) -> float:
        return LEFT + at / end * (WIDTH - LEFT - 130)

    def y(value: float) -> float:
        return HEIGHT - TOP - value / top * (HEIGHT - 2 * TOP)

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="13">{escape(title)}</text>',
    ]
    for begin, until in paused:
        if begin < end:
            width = max(1.0, x(min(until, end)) - x(begin))
            drawn.append(
                f'<rect x="{x(begin):.1f}" y="{TOP}" width="{width:.1f}" height="{HEIGHT - 2 * TOP}" fill="#eeeeee"/>'
            )
    for share in (0, 0.25, 0.5, 0.75, 1):
        drawn.append(
            f'<text x="{LEFT - 6}" y="{y(share * top) + 4:.1f}" text-anchor="end">{share * top:,.4g}</text>'
            f'<text x="{x(share * end):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{share * end / 60:.3g} min</text>'
        )
    for kill in kills:
        if kill.at <= end:
            drawn.append(
                f'<path d="M {x(kill.at):.1f} {HEIGHT - TOP} v 6" stroke="black">'
                f"<title>{escape(kill.part)}</title></path>"
            )
    for place, (name, line) in enumerate(sorted(lines.items())):
        colour = COLOURS[place % len(COLOURS)]
        thinned = line[:: max(1, len(line) // MOST_POINTS)]
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in thinned)
        drawn.append(f'<polyline fill="none" stroke="{colour}" points="{path}"/>')
        drawn.append(f'<text x="{WIDTH - 122}" y="{TOP + 14 * place + 10}" fill="{colour}">{escape(name)}</text>')
    return "\n".join([*drawn, "</svg>"]) + "\n"
