"""CSV that Arrow parses by blocks says what Python's csv module says of it, wherever its blocks end."""

from __future__ import annotations

import csv
import io

import pyarrow.csv as pacsv
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from spark_jobs import arrow_csv
from spark_jobs.arrow_csv import parse_texts

CELLS = st.text('ab,"\r\né\ufeff', max_size=12)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=8)
CRLF = [["a", "b\r\nc"], ["\r\n\r\r\n\n", "\n"]]


def parsed(text: str) -> list[list[str | None]]:
    """Give the rows of a text of two columns."""
    columns = parse_texts(text.encode(), 2, pacsv.ParseOptions(newlines_in_values=True)).to_pydict().values()
    return [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("block", [2, 3, 7, 16, 64])
@given(table=TABLES, newline=st.sampled_from(["\n", "\r\n", "\r"]))
@example(CRLF, "\n")
@example(CRLF, "\r\n")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_cells_are_those_of_python_wherever_a_block_ends(
    monkeypatch: pytest.MonkeyPatch, block: int, table: list[list[str]], newline: str
) -> None:
    monkeypatch.setattr(arrow_csv, "BLOCK_BYTES", block)
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator=newline, quoting=csv.QUOTE_ALL).writerows(table)
    assert parsed(out.getvalue()) == list(csv.reader(io.StringIO(out.getvalue(), newline=""), strict=True)) == table


@pytest.mark.parametrize("block", [2, 3, 7, 16, 64])
@given(
    table=st.lists(st.lists(st.none() | CELLS, min_size=2, max_size=2), min_size=1, max_size=8),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
)
@example([["x", None]], "\n")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_empty_cell_is_null_also_at_the_end_of_a_text_without_a_line_end(
    monkeypatch: pytest.MonkeyPatch, block: int, table: list[list[str | None]], newline: str
) -> None:
    monkeypatch.setattr(arrow_csv, "BLOCK_BYTES", block)
    quoted = lambda cell: "" if cell is None else '"' + cell.replace('"', '""') + '"'  # noqa: E731
    text = newline.join(",".join(map(quoted, row)) for row in table)
    for end in ("", newline):
        assert parsed(text + end) == table


@given(st.lists(st.text("a\ufeff", min_size=1, max_size=3), min_size=2, max_size=2))
@example(["\ufeffa", "b"])
def test_a_byte_order_mark_is_a_character_of_the_cell_that_it_is_in(row: list[str]) -> None:
    """The mark of a file is taken off before; a range of one may begin with a cell that has its own."""
    assert parsed(",".join(row) + "\n") == [row]
