"""The pictures of two distributions: as high as the shares are, well-formed, and said in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.foreign_keys.sides import ForeignKey, Side
from service.usecases.distribution_picture import BLOCKS, ROW, as_blocks, as_svg

SVG = "{http://www.w3.org/2000/svg}"
KEY = ForeignKey(Side("s", "orders", ("customer",)), Side("s", "customers", ("id",)))
NAMES = st.text(st.characters(codec="utf-8"), max_size=200)


@st.composite
def shares(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Make two rows of shares over the same cells."""
    cells = draw(st.integers(1, 64))
    both = draw(st.tuples(*[st.lists(st.integers(0, 50), min_size=cells, max_size=cells) for _ in range(2)]))
    return tuple([one / max(sum(row), 1) for one in row] for row in both)  # type: ignore[return-value]


@given(shares().filter(lambda both: any(both[0] + both[1])))
def test_blocks_are_as_high_as_shares(both: tuple[Sequence[float], Sequence[float]]) -> None:
    highest = max(*both[0], *both[1])
    for row, drawn in zip(both, as_blocks(*both), strict=True):
        assert len(drawn) == len(row)
        for share, block in zip(row, drawn, strict=True):
            assert (block == " ") == (share == 0)
            assert 0 <= BLOCKS.index(block) / 8 - share / highest < 1 / 8 + 1e-9


@given(shares().filter(lambda both: any(both[0]) and any(both[1])), NAMES, NAMES)
def test_the_drawing_is_xml_whose_bars_are_as_high_as_shares(
    both: tuple[Sequence[float], Sequence[float]], table: str, column: str
) -> None:
    drawn = ElementTree.fromstring(as_svg(ForeignKey(Side("s", table, (column,)), KEY.referenced), *both, 0.25))
    highest = max(*both[0], *both[1])
    for kind, row in zip(("dependent", "referenced"), both, strict=True):
        (path,) = (one for one in drawn.iter(f"{SVG}path") if one.get("class") == kind)
        heights = [float(one) for one in re.findall(r"v-([\d.]+)", path.get("d", ""))]
        assert heights == pytest.approx([max(share / highest * ROW, 1) for share in row if share], abs=0.051)


def test_the_drawing_says_what_it_shows_to_those_who_do_not_see_it() -> None:
    drawn = ElementTree.fromstring(as_svg(KEY, [0.75, 0.25], [0.5, 0.5], 0.25))
    assert (drawn.get("role"), drawn.get("aria-labelledby")) == ("img", "title desc")
    said = {one.get("id"): one.text or "" for one in drawn if one.get("id")}
    assert said["title"] == "Distributions of s.orders.customer → s.customers.id"
    assert "highest bar is number 1, with 75.0%; the referenced columns have 50.0% there" in said["desc"]
    assert "prefers-color-scheme: dark" in (drawn.findtext(f"{SVG}style") or "")


def test_a_long_name_is_cut_where_it_is_drawn_alone() -> None:
    long = ForeignKey(Side("s", "x" * 300, ("a",)), KEY.referenced)
    drawn = ElementTree.fromstring(as_svg(long, [1.0], [1.0], 0.0))
    assert str(long) in (drawn.findtext(f"{SVG}title") or "")
    assert max(len(one.text or "") for one in drawn.iter(f"{SVG}text")) < 120
