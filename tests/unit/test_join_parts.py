"""A table in parts that supersede each other is searched as its present rows; a coded part holds what it was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise, permutations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core.canonical import value_key, value_keys
from service.core.cell_index import CellIndex
from service.core.join_layout import EMPTY_CELL
from service.core.join_parts import CellRows, RowsInMemory, TableInParts, code_part, distinct_keys
from service.core.joinability import search
from service.core.posting_buckets import decode_buckets
from service.core.records import Keys
from service.core.row_filters import CountedBits

Row = tuple[str, ...]

cells = st.sampled_from(["", "a", "b", "c", "d", "e"])
widths = st.integers(1, 4)


def rows_of(found: Mapping[int, Row], width: int) -> CellRows:
    """Give rows as a store has them; those that were made when the table had fewer columns are short."""
    by_key = sorted((value_key(str(key)), row) for key, row in found.items())
    texts = [cell for _, row in by_key for cell in (*row, *[""] * (width - len(row)))]
    keys = value_keys(texts)
    has_text = np.array([bool(text) for text in texts], np.bool_)
    return CellRows(Keys.of(key for key, _ in by_key), Keys(keys.high * has_text, keys.low * has_text), width)


def best(present: Sequence[Row], query: Sequence[Row], ordinals: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Find the first mapping of most keys, by trying them all."""
    keys = {key for key in query if all(key)}
    found: tuple[int, tuple[int, ...]] = (0, ())
    for mapping in permutations(range(len(ordinals)), len(query[0])):
        joined = keys & {
            tuple(row[ordinals[place]] if ordinals[place] < len(row) else "" for place in mapping) for row in present
        }
        if len(joined) > found[0]:
            found = len(joined), mapping
    return found


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_parts_are_searched_as_the_rows_that_are_left(data: st.DataObject) -> None:
    present: dict[int, Row] = {}
    parts, covers = [], []
    functions = data.draw(st.integers(1, 16))
    width = 1
    for number in range(data.draw(st.integers(1, 5))):
        width = data.draw(st.integers(width, 4))
        rows = st.tuples(*[cells] * width)
        changed = data.draw(st.dictionaries(st.integers(0, 9), st.none() | rows, max_size=8))
        if number == 0:
            changed = {key: row for key, row in changed.items() if row is not None}
        present |= {key: row for key, row in changed.items() if row is not None}
        for key in changed:
            if changed[key] is None:
                present.pop(key, None)
        parts.append(RowsInMemory(rows_of({k: row for k, row in changed.items() if row is not None}, width), functions))
        covers.append(distinct_keys([Keys.of(value_key(str(key)) for key in changed)] if number else []))
    ordinals = sorted(data.draw(st.sets(st.integers(0, width), min_size=1)))
    size = data.draw(st.integers(1, min(3, len(ordinals))))
    query = data.draw(st.lists(st.tuples(*[cells] * size), min_size=1, max_size=12))
    index = TableInParts(parts, covers, functions, ordinals)
    asked = distinct_keys([value_keys(sorted({cell for key in query for cell in key if cell}))])
    numbers = dict(zip(map(asked.key, range(len(asked.high))), index.numbers(asked).tolist(), strict=True))
    keys = np.array([[numbers[value_key(cell)] if cell else -1 for cell in key] for key in query], np.int64)
    expected = best(list(present.values()), query, ordinals)
    assert [(one.joinability, one.columns) for one in search(index, keys, 1).best] == (
        [expected] if expected[0] else []
    )


@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(widths.flatmap(lambda width: st.dictionaries(st.integers(0, 99), st.tuples(*[cells] * width))))
def test_a_coded_part_holds_the_cells_it_was_given(found: Mapping[int, Row]) -> None:
    width = len(next(iter(found.values()), ("",)))
    rows = rows_of(found, width)
    part = code_part(rows)
    assert part.row_keys == rows.row_keys
    keys, starts, places, numbers = decode_buckets(part.buckets)
    decoded = np.zeros((2, len(rows.cells.high)), np.uint64)
    cells = np.full(len(rows.cells.high), EMPTY_CELL)
    for value in range(len(keys.high)):
        here = places[starts[value] : starts[value + 1]]
        decoded[:, here] = np.array([[keys.high[value]], [keys.low[value]]])
        cells[here] = numbers[value]
    assert np.array_equal(decoded, np.stack(rows.cells))
    assert np.array_equal(cells, part.cells)
    codes = np.where(part.cells == EMPTY_CELL, -1, np.searchsorted(numbers, part.cells))
    ends = np.array([0, len(rows.row_keys.high)])
    of_index = CountedBits.of(CellIndex.of(codes, rows.starts, ends, len(keys.high)), keys)
    assert np.array_equal(of_index.rows, part.super_keys)
    assert part.layout.functions.tolist() == of_index.functions.tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40))
def test_values_of_one_first_half_are_told_apart(cells: list[tuple[int, int]]) -> None:
    """Ordering by the first halves is the fast way; the second halves decide where these are equal."""
    keys = Keys(*(np.array(half, np.uint64) for half in zip(*cells, strict=True)))
    row_keys = Keys(np.arange(len(cells)).astype(np.uint64), np.zeros(len(cells), np.uint64))
    coded = code_part(CellRows(row_keys, keys, 1))
    values, starts, places, _ = decode_buckets(coded.buckets)
    found = {
        key: places[start:end].tolist()
        for key, (start, end) in zip(zip(*map(np.ndarray.tolist, values), strict=True), pairwise(starts), strict=True)
    }
    expected: dict[tuple[int, int], list[int]] = {}
    for place, key in enumerate(cells):
        if any(key):
            expected.setdefault(key, []).append(place)
    assert found == expected
    assert list(found) == sorted(found)


def test_rows_of_one_width_are_put_end_to_end() -> None:
    one, other = rows_of({1: ("a", "b"), 2: ("c", "")}, 2), rows_of({3: ("d", "e")}, 2)
    joined = CellRows.joined([one, other])
    assert joined.width == 2
    assert joined.starts.tolist() == [0, 2, 4, 6]
    assert [joined.row_keys.key(i) for i in range(3)] == [*map(one.row_keys.key, range(2)), other.row_keys.key(0)]
    assert [joined.cells.key(i) for i in range(6)] == [*map(one.cells.key, range(4)), *map(other.cells.key, range(2))]
