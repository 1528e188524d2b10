"""Columns whose values are at hand: what they tell of themselves, and candidates measured as if one by one."""

from __future__ import annotations

import pytest

from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.plain_columns import measure, overlaps, with_values
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.quantile_grids import KeyHistogram, histogram_over
from service.core.randomness import outside, randomness
from service.core.value_order import ValueOrder

BARE = ColumnProfile("s", "t", "c", 0, "text", 500, 3, 9, ValueOrder.MIXED)


@pytest.mark.parametrize(
    ("values", "order", "least", "greatest", "length", "whole"),
    [
        ({"9", "10", "-2"}, ValueOrder.NUMERIC, "-2", "10", 5 / 3, True),
        ({"9", "10.5"}, ValueOrder.NUMERIC, "9", "10.5", 2.5, False),
        ({"9", "1" * 251}, ValueOrder.NUMERIC, "9", "1" * 251, 126, False),
        ({"b", "a", "ccc"}, ValueOrder.LEXICOGRAPHIC, "a", "ccc", 5 / 3, False),
        ({"9", "10", "x"}, ValueOrder.MIXED, "x", "10", 4 / 3, False),
    ],
)
def test_a_profile_is_completed_by_its_values(
    values: set[str], order: ValueOrder, least: str, greatest: str, length: float, whole: bool
) -> None:
    ends = (least, greatest, pytest.approx(length), whole, False)
    expected = ColumnProfile("s", "t", "c", 0, "text", 500, 3, len(values), order, *ends)  # type: ignore[arg-type]
    assert with_values(BARE, values) == expected


def test_long_whole_numbers_are_measured_as_any() -> None:
    values = [{"1" * 5000, "2"}, {"1" * 5000, "2", "3"}]
    columns = [with_values(BARE, of) for of in values]
    assert [of.density for of in columns] == [0, 0]
    assert measure(columns, values, {1}).keys() == {Candidate((0,), (1,))}


def test_a_column_without_values_has_no_ends() -> None:
    assert with_values(BARE, set()) == ColumnProfile("s", "t", "c", 0, "text", 500, 3, 0, ValueOrder.LEXICOGRAPHIC)


VALUES = [
    [str(number) for number in range(200)],
    [str(number) for number in range(0, 200, 3)],
    [str(number) for number in range(150, 210)],
    [*map(str, range(0, 200, 7)), "x"],
    [*map(str, range(30)), "a", "b"],
    [f"v{number}" for number in range(40)],
]


@pytest.mark.parametrize("cells", [4, 16])
def test_candidates_are_measured_as_each_by_itself(cells: int) -> None:
    columns = [with_values(BARE, values) for values in VALUES]
    found = measure(columns, VALUES, {0, 4, 5}, theta=0.4, cells=cells)
    expected = {}
    for b in (0, 4, 5):
        of_key = KeyHistogram.of([(value,) for value in VALUES[b]], [columns[b].order], cells)
        for a, values in enumerate(VALUES):
            shared = len(set(values) & set(VALUES[b]))
            if a != b and shared >= 0.4 * len(values):
                histogram = histogram_over(of_key.grids, [(value,) for value in values])
                distance = randomness(histogram, of_key).distance
                of = Measured(shared / len(values), shared / len(VALUES[b]), distance, outside(histogram, of_key))
                expected[Candidate((a,), (b,))] = of
    assert found == expected
    assert len(found) > 3


def test_numbers_are_no_sample_of_strings() -> None:
    texts = ["a", "b", "c"]
    columns = [with_values(BARE, ["1", "2"]), with_values(BARE, texts)]
    numbers = {0: ["1", "2"], 1: [*texts, "1"]}
    columns[1] = ColumnProfile("s", "u", "k", 0, "text", 4, 0, 4, ValueOrder.LEXICOGRAPHIC)
    found = measure(columns, [numbers[0], numbers[1]], [1], theta=0.5)
    assert found == {Candidate((0,), (1,)): Measured(0.5, 0.25, 1.0, 1.0)}


def test_overlaps_of_no_keys_and_of_columns_without_values() -> None:
    assert overlaps(VALUES, []) == {}
    found = overlaps([[], ["a"], ["a", "b"]], [0, 2])
    assert found == {(1, 2): 1}
    assert {type(count) for count in found.values()} == {int}
