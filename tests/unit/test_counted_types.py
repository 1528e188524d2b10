"""Columns of every type that a file can hold are counted as Python counts their texts, however they are laid out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.kernels import column_texts, count_texts

Cell = tuple[Any, str | None]
"""A value and its canonical text, as docs/canonical.md says it."""

LONG = "longer than what a view holds itself"
MOMENT, MOMENT_TEXT = datetime(2026, 11, 21, 8, 20, 30), "2026-11-21T08:20:30.000000"
DOCUMENTS = [
    ('{"b": 1.00, "a": [2, null]}', '{"a":[2,null],"b":1}'),
    (' "é" ', '"é"'),
    ("null", "null"),
    ("1e2", "100"),
]

TEXTS: dict[pa.DataType, list[Cell]] = {
    kind: cells
    for kinds, cells in [
        ([pa.bool_()], [(True, "true"), (False, "false")]),
        ([pa.int8(), pa.int16(), pa.int32(), pa.int64()], [(0, "0"), (100, "100"), (-5, "-5")]),
        ([pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()], [(0, "0"), (7, "7"), (100, "100")]),
        ([pa.float32(), pa.float64()], [(1.5, "1.5"), (-0.0, "0"), (0.0, "0"), (float("nan"), "NaN")]),
        ([pa.float16()], [(np.float16(1.5), "1.5"), (np.float16(0), "0")]),
        (
            [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(9, 2), pa.decimal256(60, 2)],
            [(Decimal("1.50"), "1.5"), (Decimal("0.00"), "0"), (Decimal("20.00"), "20")],
        ),
        ([pa.string(), pa.large_string(), pa.string_view()], [("", ""), ("é", "é"), (LONG, LONG), ("None", "None")]),
        (
            [pa.binary(), pa.large_binary(), pa.binary_view()],
            [(b"", ""), (b"\0\xff", "00ff"), (LONG.encode(), LONG.encode().hex())],
        ),
        ([pa.binary(2)], [(b"ab", "6162"), (b"\0\xff", "00ff")]),
        ([pa.date32(), pa.date64()], [(date(2026, 11, 21), "2026-11-21"), (date(1, 1, 1), "0001-01-01")]),
        (
            [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")],
            [(time(8, 20, 30), "08:20:30.000000"), (time(0), "00:00:00.000000")],
        ),
        ([pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")], [(MOMENT, MOMENT_TEXT)]),
        (
            [pa.timestamp("us", "UTC"), pa.timestamp("ns", "Europe/Berlin")],
            [(MOMENT.replace(tzinfo=UTC), MOMENT_TEXT + "Z")],
        ),
        (
            [pa.duration(unit) for unit in ("s", "ms", "us", "ns")],
            [(timedelta(0), "PT0S"), (timedelta(hours=26), "PT93600S")],
        ),
        (
            [kind(pa.int8()) for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view)],
            [([], "[]"), ([1, None], "[1,null]"), ([2], "[2]")],
        ),
        ([pa.list_(pa.int8(), 2)], [([1, None], "[1,null]"), ([2, 3], "[2,3]")]),
        (
            [pa.list_(pa.string()), pa.list_(pa.string_view())],
            [([], "[]"), (["a", None, ""], '["a",null,""]'), ([LONG], f'["{LONG}"]')],
        ),
        (
            [pa.struct([("b", pa.int8()), ("a", pa.string_view())])],
            [({"b": 1, "a": None}, '{"a":null,"b":1}'), ({"b": None, "a": ""}, '{"a":"","b":null}')],
        ),
        ([pa.uuid()], [(UUID(int=10), "00000000-0000-0000-0000-00000000000a"), (UUID(int=0), str(UUID(int=0)))]),
        ([pa.json_(kind) for kind in (pa.string(), pa.large_string(), pa.string_view())], DOCUMENTS),
        ([pa.bool8()], [(1, "true"), (0, "false"), (2, "true")]),
        ([pa.map_(pa.string(), pa.int8())], [([], "{}"), ([("k", 1), ("a", None)], '{"a":null,"k":1}')]),
    ]
    for kind in kinds
}

AS_DICTIONARIES = [
    kind() for kind in (pa.string, pa.large_string, pa.string_view, pa.binary, pa.large_binary, pa.binary_view)
]
"""Arrow reads no others of Parquet so."""


def plain(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array(values, kind)


def encoded(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Make a dictionary of the values, each once, as Parquet has it."""
    distinct = {repr(value): value for value in values if value is not None}
    places = {name: place for place, name in enumerate(distinct)}
    indices = pa.array([places.get(repr(value)) for value in values], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, plain(kind, list(distinct.values())))


@pytest.mark.parametrize(
    ("make", "kind"), [*((plain, kind) for kind in TEXTS), *((encoded, kind) for kind in AS_DICTIONARIES)]
)
@settings(max_examples=30)  # of each of so many kinds
@given(data=st.data())
def test_texts_are_counted_as_python_counts_them(
    make: Callable[[pa.DataType, list[Any]], pa.Array], kind: pa.DataType, data: st.DataObject
) -> None:
    cells = st.lists(st.sampled_from([(None, None), *TEXTS[kind]]), max_size=8)
    parts = data.draw(st.lists(st.tuples(cells, st.integers(0, 3), st.integers(0, 8)), min_size=1, max_size=3))
    column = pa.chunked_array([make(kind, [value for value, _ in part]).slice(first, n) for part, first, n in parts])
    texts = [text for part, first, n in parts for _, text in part[first : first + n]]
    assert column_texts(column, (), None).to_pylist() == texts
    counted: Counter[str] = Counter()
    for text, count in zip(*(array.tolist() for array in count_texts(column, (), None)), strict=True):
        counted[text] += count
    assert counted == Counter(text for text in texts if text is not None)
