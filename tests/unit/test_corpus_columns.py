"""The cells of small tables: distinct keys and flags of each column against sets, however the rows are portioned."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.canonical import value_key
from service.core.column_filters import NULL_TOKENS
from service.core.errors import SourceError
from service.core.records import starts_of
from spark_jobs.corpus_columns import CellTexts, ColumnCells, concat_cells, distinct_cells, merge_cells

CELLS = st.lists(st.sampled_from(["", "-", "1", "+23", "1.0", "a", "né", None]), max_size=4)
PORTIONS = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=4)
)
TOKENS = st.sampled_from([(), ("-",), ("", "a", "missing")])


def cells_of(columns: list[list[str | None]], tokens: tuple[str, ...]) -> ColumnCells:
    texts = pa.array([cell for column in columns for cell in column], pa.large_string())
    return distinct_cells(
        CellTexts.of_array(texts, starts_of(np.array([len(column) for column in columns], np.int64))), tokens
    )


def described(cells: ColumnCells) -> list[tuple[list[bytes], bool, bool]]:
    keys = [cells.keys.key(place) for place in range(len(cells.keys.high))]
    by_column = [sorted(keys[cells.starts[c] : cells.starts[c + 1]]) for c in range(len(cells))]
    return list(zip(by_column, cells.null_only.tolist(), cells.integers_only.tolist(), strict=True))


def by_sets(columns: list[list[str | None]], tokens: tuple[str, ...]) -> list[tuple[list[bytes], bool, bool]]:
    held = [{cell for cell in column if cell is not None and cell not in tokens} for column in columns]
    return [
        (
            sorted(map(value_key, values)),
            bool(values) and values <= set(NULL_TOKENS),
            bool(values) and values <= {"1", "+23"},
        )
        for values in held
    ]


@given(PORTIONS, TOKENS)
def test_columns_are_the_sets_of_their_values_in_one_portion_or_many(
    portions: list[list[list[str | None]]], tokens: tuple[str, ...]
) -> None:
    whole = [[cell for portion in portions for cell in portion[place]] for place in range(len(portions[0]))]
    expected = by_sets(whole, tokens)
    assert described(cells_of(whole, tokens)) == expected
    parts = [cells_of(portion, tokens) for portion in portions]
    merged = merge_cells(parts)
    assert described(merged) == expected
    assert merged.sums().tolist() == cells_of(whole, tokens).sums().tolist()
    assert described(concat_cells(parts)) == [each for portion in portions for each in by_sets(portion, tokens)]


@given(st.lists(CELLS, max_size=4))
def test_sums_tell_columns_apart(columns: list[list[str | None]]) -> None:
    sums = cells_of(columns, ()).sums().reshape(-1, 2).tolist()
    keys = [[value_key(cell) for cell in {cell for cell in column if cell is not None}] for column in columns]
    assert sums == [
        [sum(int.from_bytes(key[half : half + 8], "big") for key in held) % 2**64 for half in (0, 8)] for held in keys
    ]


def test_many_texts_make_the_table_of_texts_grow() -> None:
    columns = [[f"{n % 700} of {column}" for n in range(5000)] for column in range(9)]
    assert described(cells_of(columns, ())) == by_sets(columns, ())


def test_columns_that_share_all_values_keep_each_its_own() -> None:
    shared: list[list[str | None]] = [["x", "y", "z"]] * 600
    portions = [cells_of(shared, ()), cells_of(shared, ())]
    assert described(merge_cells(portions)) == by_sets(shared, ())


def test_a_text_with_nul_has_no_key() -> None:
    with pytest.raises(SourceError, match="has a NUL character"):
        cells_of([["a\0b"]], ())
