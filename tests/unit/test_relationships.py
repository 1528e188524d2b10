"""Own the proof that foreign keys of tables at hand are found, whatever form the tables come in."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import SourceError
from service.core.foreign_keys.plain_columns import overlaps
from service.core.foreign_keys.ranking import Method
from service.relationships import find_relationships

CUSTOMERS = [{"id": number, "name": f"customer {number}", "since": date(2020, 1, number)} for number in range(1, 21)]
ORDERS = [
    {"id": 100 + number, "customer_id": 1 + number * 7 % 20, "note": "late" if number % 5 else None}
    for number in range(60)
]
ITEMS = [{"order_id": 100 + number % 60, "line": number // 60, "price": Decimal(number)} for number in range(150)]
SHOP = {"customers": CUSTOMERS, "orders": ORDERS, "items": ITEMS}
FOUND = [("items", "order_id", "orders", "id"), ("orders", "customer_id", "customers", "id")]


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as a CSV file."""
    with path.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def names(tables: Mapping[str, Any], **options: Any) -> list[tuple[str, ...]]:
    return sorted(tuple(one)[1:5] for one in find_relationships(tables, **options))


@pytest.mark.parametrize("form", ["rows", "arrow", "csv"])
def test_the_form_of_a_table_makes_no_difference(form: str, tmp_path: Path) -> None:
    made = {
        "rows": lambda name, rows: rows,
        "arrow": lambda name, rows: pa.Table.from_pylist(rows),
        "csv": lambda name, rows: str(written(tmp_path / name, rows)),
    }[form]
    assert names({name: made(name, rows) for name, rows in SHOP.items()}) == FOUND


def test_a_file_may_have_cells_of_any_length(tmp_path: Path) -> None:
    csv.field_size_limit(131_072)  # Python's own, which lasts until it is told another one
    long = [{**order, "note": "x" * 200_000} for order in ORDERS[:2]]
    tables = SHOP | {"orders": str(written(tmp_path / "orders", long + ORDERS[2:]))}
    assert names(tables) == FOUND


def test_a_relationship_has_its_shares_and_a_score() -> None:
    found = {one.from_table: one for one in find_relationships(SHOP)}
    orders = found["orders"]
    assert (orders.multiplicity, orders.coverage_from, orders.coverage_to) == ("m:1", 1.0, 1.0)
    assert 0.5 < orders.score <= 1
    assert orders.suggested
    assert not orders.implied


def test_thresholds_leave_out_what_is_below_them() -> None:
    dirty = SHOP | {"orders": [*ORDERS, {"id": 1000, "customer_id": 21, "note": None}]}
    assert names(dirty) == FOUND[:1]
    assert names(dirty, coverage_threshold=20 / 21) == FOUND
    everything = find_relationships(SHOP, only_suggested=False)
    assert len(everything) > len(FOUND)
    alike = find_relationships(SHOP, name_similarity_threshold=0.9, only_suggested=False)
    assert len(FOUND) <= len(alike) < len(everything)
    for name in ("coverage_threshold", "name_similarity_threshold"):
        with pytest.raises(ValueError, match=rf"{name} is 1\.5"):
            find_relationships(SHOP, **{name: 1.5})


@pytest.mark.parametrize("method", Method)
def test_tables_of_any_kind_are_taken(method: str) -> None:
    odd = {
        "": [{"": 1}, {"": 2}],
        "no rows": [],
        "1": [{"1": 1, "2": None}, {"1": 1, "2": None}],
        "顧客": [{"番号": 1}, {"番号": 2}, {"番号": 3}],
        "x" * 1000: [{"y" * 1000: float("nan")}, {"y" * 1000: 2.0}],
        "flags": pa.table({"f": pa.array([True, False]), "empty": pa.array([None, None], pa.string())}),
        "empty": pa.table({}),
    }
    assert all(0 <= one.score <= 1 for one in find_relationships(odd, method=method, only_suggested=False))
    assert find_relationships({}, method=method) == []
    with pytest.raises(ValueError, match="guess"):
        find_relationships(SHOP, method="guess")


def test_numbers_and_times_of_numpy_are_those_of_python() -> None:
    own = [
        {
            "n": 1,
            "f": 0.5,
            "b": True,
            "t": datetime(2020, 1, 1, 2),
            "d": timedelta(hours=1),
            "day": date(2020, 1, 1),
            "none": None,
        }
    ]
    theirs = [
        {
            "n": np.int64(1),
            "f": np.float64(0.5),
            "b": np.bool_(True),
            "t": np.datetime64("2020-01-01T02", "ns"),
            "d": np.timedelta64(1, "h"),
            "day": np.datetime64("2020-01-01", "D"),
            "none": np.datetime64("NaT"),
        }
    ]
    found = find_relationships({"own": own, "theirs": theirs}, only_suggested=False)
    pairs = {(one.from_table, one.from_column, one.to_column) for one in found}
    assert {("theirs", name, name) for name in ("n", "f", "b", "t", "d", "day")} <= pairs
    assert not any(one.from_column == "none" for one in found)


@pytest.mark.parametrize(
    ("tables", "error", "message"),
    [
        ({"t": [{3: 1}]}, ValueError, "A column of t is called 3"),
        ({7: [{"a": 1}]}, ValueError, "A table is called 7"),
        ({"t": [{"a": 1}, {"a": object()}]}, SourceError, r"t\.a, row 2: A value has no canonical text"),
    ],
)
def test_what_is_no_name_and_no_value_is_told_with_its_place(
    tables: dict[Any, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        find_relationships(tables)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1\n", "line 2: it has 1 cells, and the header 2"),
        (b"a,a\n1,2\n", "two columns of one name"),
        (b"a\n\xff\n", "cannot be read as CSV"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message):
        find_relationships({"t": path})
    with pytest.raises(SourceError, match="cannot be read as CSV"):
        find_relationships({"t": tmp_path / "none.csv"})


@given(st.lists(st.sets(st.sampled_from("abcdefgh")), min_size=1, max_size=6))
def test_overlaps_are_those_of_sets(values: list[set[str]]) -> None:
    keys = range(0, len(values), 2)
    assert overlaps(values, keys) == {
        (a, b): len(values[a] & values[b])
        for a, b in permutations(range(len(values)), 2)
        if b in keys and values[a] & values[b]
    }


def test_an_arrow_table_with_two_columns_of_one_name_is_refused() -> None:
    with pytest.raises(SourceError, match="two columns of one name: id, id"):
        find_relationships({"t": pa.table([[1, 2], [3, 3]], names=["id", "id"])})
