"""What a query of joinable tables is read from, and what cannot be asked."""

from __future__ import annotations

from unittest import mock

import pyarrow as pa
import pytest

from service.core.errors import SourceError
from service.usecases import joinable
from service.usecases.joinable import read_query

CSV = ["city,no,city2,no2\r\n", "\n", 'berlin,1,"a\n', 'b",\n', ",2,,\n"]


def read(lines: list[str], key: list[str], most_rows: int | None = None) -> list[list[str]]:
    return [list(pa.chunked_array(column).to_pylist()) for column in read_query(lines, key, most_rows).columns]


@pytest.mark.parametrize("at_once", [1, 2, 65536])
def test_key_columns_come_in_the_order_in_which_they_are_named(at_once: int) -> None:
    with mock.patch.object(joinable, "READ_AT_ONCE", at_once):
        assert read(CSV, ["no", "city"]) == [["1", "2"], ["berlin", ""]]
        assert read(CSV, ["city2"]) == [["a\nb", ""]]


def test_a_cell_of_a_megabyte_is_a_cell() -> None:
    assert read(["a,b\n", "x" * 1_000_000 + ",1\n"], ["a"]) == [["x" * 1_000_000]]


def test_a_header_alone_is_a_query_without_rows() -> None:
    assert read(["a,b\n"], ["b", "a"]) == [[], []]


def test_rows_are_bounded_and_empty_lines_are_none() -> None:
    lines = ["a\n", "1\n", "\n", "2\n", "\n"]
    assert read(lines, ["a"], 2) == [["1", "2"]]
    with pytest.raises(SourceError, match="more than 2 rows"):
        read([*lines, "3\n"], ["a"], 2)
    with pytest.raises(SourceError, match="more than 1 rows"):
        read(lines, ["a"], 1)


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        (CSV, ["town"], "There is no column 'town'. The columns are 'city', 'no', 'city2', 'no2'"),
        (CSV, ["no", "city", "no"], "The key column 'no' is named twice"),
        (["a,a\n"], ["a"], "There are several columns 'a'"),
        (CSV, [], "No key column"),
        (CSV, [f"c{n}" for n in range(11)], "11 key columns are named: at most 10"),
        ([], ["a"], "not even a header"),
        (["1," * 30 + "x" * 99 + "\n"], ["a"], "'1', '1', ...\\.$"),
        (["x" * 99 + "\n"], ["a"], "The columns are 'x{60}...'\\.$"),
        (["a,b\n", "1,2\n", "1\n"], ["a"], "Line 3: the row has 1 cells, the header 2"),
        (["a,b\n", '1,"2\n'], ["a"], "Line 3: it cannot be read as CSV in UTF-8"),
    ],
)
def test_what_cannot_be_asked_is_told(lines: list[str], key: list[str], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_query(lines, key)
