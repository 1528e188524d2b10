"""What a query of joinable tables is read from, and what cannot be asked."""

from __future__ import annotations

import pytest

from service.core.errors import SourceError
from service.usecases.joinable import read_query

CSV = ["city,no,city2,no2\r\n", "\n", 'berlin,1,"a\n', 'b",\n', ",2,,\n"]


def test_key_columns_come_in_the_order_in_which_they_are_named() -> None:
    assert read_query(CSV, ["no", "city"]).columns == [["1", "2"], ["berlin", ""]]
    assert read_query(CSV, ["city2"]).columns == [["a\nb", ""]]


def test_a_cell_of_a_megabyte_is_a_cell() -> None:
    assert read_query(["a,b\n", "x" * 1_000_000 + ",1\n"], ["a"]).columns == [["x" * 1_000_000]]


def test_a_header_alone_is_a_query_without_rows() -> None:
    assert read_query(["a,b\n"], ["b", "a"]).columns == [[], []]


@pytest.mark.parametrize(
    ("lines", "key", "message"),
    [
        (CSV, ["town"], "The file has no column 'town'. Its columns are 'city', 'no', 'city2', 'no2'"),
        (CSV, ["no", "city", "no"], "The key column 'no' is named twice"),
        (["a,a\n"], ["a"], "has more than one column 'a'"),
        (CSV, [], "No key column"),
        ([], ["a"], "not even a header"),
        (["a,b\n", "1,2\n", "1\n"], ["a"], "Line 3: the row has 1 cells, the header 2"),
        (["a,b\n", '1,"2\n'], ["a"], "Line 3: it cannot be read as CSV in UTF-8"),
    ],
)
def test_what_cannot_be_asked_is_told(lines: list[str], key: list[str], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        read_query(lines, key)
