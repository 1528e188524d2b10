"""Own the picture of both distributions of a candidate: how its values lie over those of the key, cell by cell.

Both rows have one scale, so that a share is as high in the one as in the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from service.core.foreign_keys.sides import ForeignKey
from service.usecases.graph_export import xml_text

BLOCKS = " ▁▂▃▄▅▆▇█"

WIDTH, ROW, LEFT = 640, 84, 16
"""Of the drawing, of one row's bars in height, and the margin, in pixels."""
LONGEST_NAME = 88
"""Characters of a name that are drawn."""

SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" \
role="img" aria-labelledby="title desc">
<title id="title">{title}</title>
<desc id="desc">{described}</desc>
<style>
  text {{ font: 13px system-ui, sans-serif; fill: #1f2933; }}
  .ground {{ fill: #ffffff; }} .line {{ stroke: #9aa5b1; }} .note {{ fill: #52606d; }}
  .dependent {{ fill: #b45309; }} .referenced {{ fill: #1d4ed8; }}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #e4e7eb; }}
    .ground {{ fill: #12181f; }} .line {{ stroke: #52606d; }} .note {{ fill: #9aa5b1; }}
    .dependent {{ fill: #f59e0b; }} .referenced {{ fill: #7aa5ff; }}
  }}
</style>
<rect class="ground" width="{width}" height="{height}"/>
{rows}
<text class="note" x="{left}" y="{note}">{said}</text>
</svg>
"""

ROW_SVG = """<text x="{left}" y="{name}">{side}</text>
<path class="{kind}" d="{bars}"/>
<line class="line" x1="{left}" x2="{right}" y1="{base}" y2="{base}"/>"""


def as_blocks(dependent: Sequence[float], referenced: Sequence[float]) -> tuple[str, str]:
    """Draw both rows as characters, one for each cell; a share above 0 is never blank."""
    highest = max(*dependent, *referenced)
    both = ("".join(BLOCKS[ceil(share / highest * 8)] for share in shares) for shares in (dependent, referenced))
    return next(both), next(both)


def as_svg(foreign_key: ForeignKey, dependent: Sequence[float], referenced: Sequence[float], distance: float) -> str:
    """Draw both rows as an SVG that stands by itself, for light and dark grounds, with its title and description."""
    highest = max(*dependent, *referenced)
    rows, top = [], 8
    for kind, shares in (("dependent", dependent), ("referenced", referenced)):
        base = top + 22 + ROW
        rows.append(
            ROW_SVG.format(
                left=LEFT, right=WIDTH - LEFT, name=top + 14, base=base, kind=kind,
                side=xml_text(_cut(str(getattr(foreign_key, kind)))), bars=_bars(shares, highest, base),
            )
        )  # fmt: skip
        top = base + 12
    most = max(range(len(dependent)), key=lambda cell: dependent[cell])
    described = (
        f"Two rows of {len(referenced)} bars over the values of the referenced columns, in their order: the share of "
        f"the distinct values of each side that lie in a cell. The dependent's highest bar is number {most + 1}, with "
        f"{dependent[most]:.1%}; the referenced columns have {referenced[most]:.1%} there. Their distance is "
        f"{distance:.4f}."
    )
    return SVG.format(
        width=WIDTH, height=top + 24, left=LEFT, note=top + 10,
        title=xml_text(f"Distributions of {foreign_key}"), described=xml_text(described), rows="\n".join(rows),
        said=f"values of the referenced columns in their order; distance {distance:.4f}; highest bar {highest:.1%}",
    )  # fmt: skip


def _bars(shares: Sequence[float], highest: float, base: int) -> str:
    """Give the outlines of all bars as one path; one above 0 is a pixel high at least."""
    step = (WIDTH - 2 * LEFT) / len(shares)
    gap = min(1.0, step / 5)
    return "".join(
        f"M{LEFT + cell * step:.1f} {base}v{-max(share / highest * ROW, 1):.1f}h{step - gap:.1f}V{base}z"
        for cell, share in enumerate(shares)
        if share
    )


def _cut(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
