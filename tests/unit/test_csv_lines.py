"""CSV that we write is read back as it was, whatever the cells hold."""

from __future__ import annotations

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from service.core.csv_lines import csv_lines

CELLS = st.text(st.sampled_from("a,\"\r\n\t '\u2028⊆") | st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=4))
def test_cells_come_back(rows: list[list[str]]) -> None:
    text = "".join(csv_lines(rows))
    assert list(csv.reader(io.StringIO(text, newline=""), strict=True)) == rows
    assert text.count("\n") == 0 or text.endswith("\n")


def test_plain_rows_are_plain_lines() -> None:
    assert list(csv_lines([["a", 1], ["b c", None]])) == ["a,1\n", "b c,\n"]
