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

CELLS = st.text('ab,"\r\né', max_size=12)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=8)
CRLF = [["a", "b\r\nc"], ["\r\n\r\r\n\n", "\n"]]


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
    parsed = parse_texts(out.getvalue().encode(), 2, pacsv.ParseOptions(newlines_in_values=True))
    expected = list(csv.reader(io.StringIO(out.getvalue(), newline=""), strict=True))
    assert [list(row) for row in zip(*(column.to_pylist() for column in parsed.columns), strict=True)] == expected
    assert expected == table
