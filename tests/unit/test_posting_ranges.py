"""Values of several sources are put together as a dictionary of them has it; tables that crowd buckets are named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.join_layout import Layout
from service.core.posting_buckets import MOST_VALUES, CrowdedError, decode_buckets
from service.core.posting_ranges import ValuePlaces, code_range, crowding_tables
from service.core.records import Keys, starts_of
from tests.unit.test_posting_buckets import KEYS

CELLS = st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True)
FAR = 1 << 61
"""With places of so many bits, and more than two values, list and place do not fit into one word."""


def values_of(source: int, held: dict[bytes, list[int]]) -> ValuePlaces:
    """Give a source's values in the order in which they are held, which need not be that of their keys."""
    flat = [place for places in held.values() for place in places]
    lengths = [len(places) for places in held.values()]
    codes = np.arange(len(held))
    return ValuePlaces(
        source, codes, Keys.of(list(held)), starts_of(np.array(lengths, np.int64)), np.array(flat, np.int64)
    )


@given(
    st.lists(
        st.dictionaries(KEYS, st.lists(st.integers(0, 50), min_size=1, max_size=4, unique=True), max_size=6), max_size=4
    ),
    st.sampled_from([1, 9, 32]),
    st.sampled_from([0, FAR]),
)
def test_values_of_all_sources_are_one_range(sources, bits, beyond) -> None:
    """Each cell is in one source, as each table is; a source's cells come in any order."""
    laid = [
        {key: [beyond + place * len(sources) + source for place in places] for key, places in held.items()}
        for source, held in enumerate(sources)
    ]
    buckets, numbers = code_range([values_of(source, held) for source, held in enumerate(laid)], bits)
    keys, starts, places, all_numbers = decode_buckets(buckets)
    expected: dict[bytes, list[int]] = {}
    for held in laid:
        for key, cells in held.items():
            expected[key] = sorted([*expected.get(key, []), *cells])
    assert [keys.key(i) for i in range(len(keys.high))] == sorted(expected)
    assert [places[starts[i] : starts[i + 1]].tolist() for i in range(len(keys.high))] == [
        expected[key] for key in sorted(expected)
    ]
    number_of = dict(zip(sorted(expected), all_numbers.tolist(), strict=True))
    assert [found.tolist() for found in numbers] == [[number_of[key] for key in held] for held in laid]


def test_of_no_source_nothing_is_coded() -> None:
    buckets, numbers = code_range([], 4)
    assert [len(part) for part in buckets] == [0, 1, 0]
    assert numbers == []


def crowded(values: dict[int, list[int]], first_bits: dict[int, int]) -> tuple[list[ValuePlaces], Layout]:
    """Lay out tables of one column, each with some values; a value's key begins as said, or else with 0."""
    sources, first = [], 0
    for table, held in values.items():
        cells = {
            first_bits.get(value, 0).to_bytes(1, "big") + value.to_bytes(15, "big"): [first + row]
            for row, value in enumerate(held)
        }
        first += len(held)
        sources.append(values_of(table, cells))
    rows = np.array([len(held) for held in values.values()])
    return sources, Layout.of(rows, np.ones(len(rows), np.int64), np.ones(len(rows), np.int64))


def test_tables_with_most_values_of_a_crowded_bucket_are_named_until_it_has_room() -> None:
    """Table 2 has most, and with it there are too many; table 1 has most of the rest, among them values of others."""
    tables = {0: [*range(100)], 1: [*range(50, 200)], 2: [*range(1000, 1200)], 3: [*range(190, 300)]}
    sources, layout = crowded(tables, {})
    with pytest.raises(CrowdedError):
        code_range(sources, 8)
    assert crowding_tables(sources, layout, 8).tolist() == [2, 1]
    left = [source for table, source in enumerate(sources) if table not in (2, 1)]
    assert len(code_range(left, 8)[0].numbers) == 1


def test_a_table_that_is_named_for_one_bucket_is_not_looked_at_for_another() -> None:
    """Table 0 crowds two buckets, and without it both have room; table 1 is alone in a third, which is full."""
    several = {value: 64 * (value // 300) for value in range(600)} | dict.fromkeys(range(600, 900), 200)
    tables = {0: [*range(600)], 1: [*range(600, 600 + MOST_VALUES)], 2: [*range(290, 310)]}
    sources, layout = crowded(tables, several)
    assert crowding_tables(sources, layout, 8).tolist() == [0]
    assert len(code_range(sources[1:], 8)[0].numbers) == 3


def test_where_no_bucket_is_crowded_no_table_is_named() -> None:
    sources, layout = crowded({0: [*range(MOST_VALUES)], 1: [*range(10)]}, {})
    assert crowding_tables(sources, layout, 8).tolist() == []
