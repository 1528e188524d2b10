"""Own the plots of reports: lines and bars as SVG, which no package is needed for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, isnan, log10
from pathlib import Path

STYLES = {
    "SCR": ("#7f7f7f", "2 2"),
    "MCR": ("#b8860b", "8 2 2 2"),
    "MD5": ("#bdbdbd", "5 2"),
    "CityHash": ("#969696", "2 2"),
    "SimHash": ("#cc79a7", "5 2"),
    "HT": ("#56b4e9", "2 2"),
    "LHBF": ("#0072b2", "6 2"),
    "BF": ("#e69f00", ""),
    "XASH": ("#d55e00", ""),
    "counted bits": ("#009e73", ""),
}
"""Colour and dashes of a method's line: it looks the same everywhere. Others take these by place, from the last."""

HEIGHT = 230
"""Of a panel's axes in pixels."""
LEFT, TOP, BOTTOM, RIGHT = 62, 34, 48, 14
"""Around them."""

SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" \
role="img">
<title>{title}</title>
<style>text {{ font: 11px system-ui, sans-serif; fill: #1f2933; }} .grid {{ stroke: #d5dae0; }}</style>
<rect width="{width}" height="{height}" fill="#fff"/>
{parts}
</svg>
"""


@dataclass(frozen=True, slots=True)
class Panel:
    """Hold one plot: the values of each line at `places`; NaN is not drawn."""

    title: str
    label: str
    places: Sequence[str]
    lines: Mapping[str, Sequence[float]]
    unit: str
    is_log: bool = False
    has_bars: bool = False


@dataclass(frozen=True, slots=True)
class _Axis:
    """Hold the values at the bottom and the top of a panel."""

    low: float
    high: float
    is_log: bool

    @staticmethod
    def of(panel: Panel) -> _Axis:
        """Choose them: powers of ten, 0 to 1 for shares, or 0 to a round number."""
        shown = [value for line in panel.lines.values() for value in line if not isnan(value)]
        highest = max(shown, default=1.0)
        if panel.is_log:
            positive = [value for value in shown if value > 0] or [1.0]
            return _Axis(10.0 ** floor(log10(min(positive))), 10.0 ** ceil(log10(max(positive)) + 1e-9), True)
        step = 10.0 ** floor(log10(highest)) if highest > 0 else 1.0
        return _Axis(0, 1.0 if highest <= 1 else ceil(highest / step) * step, False)

    def ticks(self) -> list[float]:
        """Give the values that have a line."""
        if self.is_log:
            return [10.0**power for power in range(round(log10(self.low)), round(log10(self.high)) + 1)]
        return [self.high * part / 5 for part in range(6)]

    def height(self, value: float) -> float:
        """Give how far above the bottom a value is, as a share."""
        if self.is_log:
            return log10(max(value, self.low) / self.low) / log10(self.high / self.low)
        return value / self.high


def draw(file: Path, title: str, panels: Sequence[Panel], panel_width: int = 360) -> None:
    """Write panels to a file; see `drawn`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(drawn(title, panels, panel_width), "utf-8")


def drawn(title: str, panels: Sequence[Panel], panel_width: int = 360) -> str:
    """Draw panels beside each other, with one legend: the names of all lines, in their order."""
    across = LEFT + panel_width + RIGHT
    width, top = len(panels) * across, TOP + HEIGHT + BOTTOM
    parts = [
        f'<g transform="translate({place * across + LEFT} {TOP})">\n' + "\n".join(_panel(panel, panel_width)) + "\n</g>"
        for place, panel in enumerate(panels)
    ]
    names = list(dict.fromkeys(name for panel in panels for name in panel.lines if len(panel.lines) > 1))
    a_row = max(1, (width - LEFT) // 105)
    for place, name in enumerate(names):
        x, y = LEFT + place % a_row * 105, top + 12 + place // a_row * 18
        parts.append(
            _line(_style(name, place), [(x, y - 4), (x + 22, y - 4)])
            + f'<text x="{x + 27}" y="{y}">{escape(name)}</text>'
        )
    height = top + 18 * -(-len(names) // a_row) + 6
    return SVG.format(width=width, height=height, title=escape(title), parts="\n".join(parts))


def _panel(panel: Panel, width: int) -> Iterator[str]:
    axis = _Axis.of(panel)
    yield f'<text x="{width / 2}" y="-12" text-anchor="middle">{escape(panel.title)}</text>'
    for tick in axis.ticks():
        y = HEIGHT * (1 - axis.height(tick))
        yield f'<path class="grid" d="M0 {y:.1f}H{width}"/>'
        yield f'<text x="-6" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
    step = width / len(panel.places)
    for place, name in enumerate(panel.places):
        yield f'<text x="{step * (place + 0.5):.1f}" y="{HEIGHT + 16}" text-anchor="middle">{escape(name)}</text>'
    yield f'<text x="{width / 2}" y="{HEIGHT + 34}" text-anchor="middle">{escape(panel.label)}</text>'
    yield f'<text transform="translate(-46 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(panel.unit)}</text>'
    bar = 0.8 * step / len(panel.lines)
    for number, (name, values) in enumerate(panel.lines.items()):
        points = []
        for place, value in enumerate(values):
            if isnan(value):
                continue
            top = HEIGHT * (1 - axis.height(value))
            if panel.has_bars:
                x = step * (place + 0.1) + bar * number
                fill = STYLES.get(name, STYLES["XASH"])[0]
                yield f'<path fill="{fill}" d="M{x:.1f} {HEIGHT}V{top:.1f}h{bar:.1f}V{HEIGHT}z"/>'
            else:
                points.append((step * (place + 0.5), top))
        if points:
            style = _style(name, number)
            yield _line(style, points)
            yield "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{style[0]}"/>' for x, y in points)
    yield f'<path stroke="#52606d" d="M0 0V{HEIGHT}H{width}" fill="none"/>'


def _style(name: str, number: int) -> tuple[str, str]:
    return STYLES[name] if name in STYLES else list(STYLES.values())[-1 - number % len(STYLES)]


def _line(style: tuple[str, str], points: Sequence[tuple[float, float]]) -> str:
    colour, dashes = style
    way = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}" d="M{way}"/>'
