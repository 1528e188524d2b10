"""Own the plots of the report on sketches, by matplotlib: no dependency, `pip install matplotlib` by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from PIL import Image

mpl.use("Agg")
from matplotlib import pyplot as plt

STYLES = {
    "bml": ("#7f7f7f", "s"),
    "bml-exact-load": ("#e69f00", "v"),
    "joint-mle": ("#0072b2", "^"),
    "bottom-k": ("#d55e00", "o"),
    "estimated": ("#000000", "*"),
    "Theta (datasketches)": ("#009e73", "D"),
    "HLL union (datasketches)": ("#cc79a7", "X"),
    "heaps, estimated": ("#000000", "*"),
    "heaps, bml": ("#7f7f7f", "s"),
    "as a state keeps it, estimated": ("#0072b2", "^"),
    "heaps": ("#000000", "*"),
    "as a state keeps it": ("#0072b2", "^"),
    "bottom-k, k = 1,536": ("#d55e00", "o"),
    "bottom-k, bytes of the heaps": ("#cc79a7", "X"),
    "bottom-k, k = 12,288": ("#e69f00", "v"),
    "bottom-k, k = 1,536, read again": ("#d55e00", "o"),
    "bottom-k, k = 12,288, read again": ("#e69f00", "v"),
}
"""Colour and marker of each line: the same estimator looks the same everywhere."""

ERROR = "mean |error|"
"""The unit of most plots."""

LETTERS_AN_INCH = 14
"""Of a legend."""

COLOURS = 64
"""A plot is stored with so many."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Hold one plot: values of each line over `places`, which are numbers or names."""

    title: str
    label: str
    places: Sequence[float] | Sequence[str]
    lines: Mapping[str, Sequence[float]]


def draw_lines(file: Path, panels: Sequence[Panel], unit: str, columns: int = 2) -> None:
    """Draw panels beside and below each other, with one legend.

    Errors have a logarithmic axis from 0 to 1, linear below 10^-4; other units have a linear one from 0 on.
    """
    rows = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(max(4.4 * columns, 7), 3 * rows + 0.6), squeeze=False, sharey=True
    )
    for place, axis in enumerate(axes.flat):
        if place >= len(panels):
            axis.set_visible(False)
            continue
        panel = panels[place]
        for name, values in panel.lines.items():
            colour, marker = STYLES[name]
            axis.plot(
                range(len(panel.places)), values, label=name, color=colour, marker=marker, markersize=5, linewidth=1.4
            )
        axis.set_xticks(range(len(panel.places)), [str(one) for one in panel.places], fontsize=8)
        axis.set_title(panel.title, fontsize=10)
        axis.set_xlabel(panel.label, fontsize=9)
        if place % columns == 0:
            axis.set_ylabel(unit, fontsize=9)
        if unit == ERROR:
            axis.set_yscale("symlog", linthresh=1e-4)
        axis.set_ylim(0, 1 if unit == ERROR else None)
        axis.grid(alpha=0.3)
    _save(figure, axes.flat[0], file)


def draw_bars(file: Path, groups: Sequence[str], bars: Mapping[str, Sequence[float]], unit: str) -> None:
    """Draw the bars of each group side by side, on a logarithmic axis."""
    figure, axis = plt.subplots(figsize=(8, 4))
    width = 0.8 / len(bars)
    for number, (name, values) in enumerate(bars.items()):
        places = np.arange(len(groups)) + (number - (len(bars) - 1) / 2) * width
        axis.bar(places, values, width, label=name, color=STYLES[name][0])
    axis.set_xticks(range(len(groups)), groups)
    axis.set_yscale("log")
    axis.set_ylabel(unit, fontsize=9)
    axis.grid(alpha=0.3, axis="y")
    _save(figure, axis, file)


def _save(figure: plt.Figure, with_names: plt.Axes, file: Path) -> None:
    handles, names = with_names.get_legend_handles_labels()
    columns = max(int(figure.get_figwidth() * LETTERS_AN_INCH / (max(map(len, names)) + 6)), 1)
    figure.legend(handles, names, loc="lower center", ncols=columns, fontsize=8, frameon=False)
    height = 0.1 + 0.18 * -(-len(names) // columns)
    figure.tight_layout(rect=(0, height / figure.get_figheight(), 1, 1))
    file.parent.mkdir(parents=True, exist_ok=True)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=85, facecolor="white")
    plt.close(figure)
    Image.open(drawn).convert("RGB").quantize(COLOURS).save(file, optimize=True)
