"""What an audit says of columns, held against plain sets and against each filter's definition in words."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.audit import ValueFacts, account, compare
from service.core.column_filters import NULL_TOKENS, PAPER, Filters, Reason
from service.core.group_inds import Inds
from service.core.records import starts_of

TEXTS = st.sampled_from(["", "-", "N/A", "7", "-12", "+3", "1.0", "7a", "x", "٣", "12345"])
COLUMNS = st.lists(st.lists(TEXTS, max_size=7), min_size=2, max_size=6)
COVERAGES = st.sampled_from([Fraction(0), Fraction(1, 5), Fraction(2, 3)])
FILTERS = st.builds(Filters, st.booleans(), st.booleans(), st.booleans(), COVERAGES, st.integers(1, 3))


def facts_of(columns: list[set[str]], texts: list[str]) -> ValueFacts:
    members = [[number for number, column in enumerate(columns) if text in column] for text in texts]
    flat = np.array([number for each in members for number in each], np.int32)
    starts = starts_of(np.array([len(each) for each in members], np.int64))
    return ValueFacts.of(flat, starts, pa.array(texts, pa.large_string()), len(columns))


def is_integer(text: str) -> bool:
    digits = text[1:] if text[:1] in ("+", "-") else text
    return bool(digits) and all(digit in "0123456789" for digit in digits)


@given(COLUMNS, FILTERS, st.integers(0, 11))
def test_what_each_filter_leaves_out(columns: list[list[str]], filters: Filters, cut: int) -> None:
    sets = [set(column) for column in columns]
    texts = sorted(set().union(*sets))
    rows = np.array([len(column) for column in columns], np.int64)
    facts = facts_of(sets, texts[:cut]).merge(facts_of(sets, texts[cut:])).with_rows(rows)
    inds = [(a, b) for a, left in enumerate(sets) for b, right in enumerate(sets) if a != b and left and left <= right]

    def why(a: int, b: int) -> set[Reason]:
        reasons = set()
        both = (sets[a], sets[b])
        if filters.null_columns and any(values <= set(NULL_TOKENS) for values in both):
            reasons.add(Reason.NULL_COLUMN)
        if filters.integer_columns and any(all(map(is_integer, values)) for values in both):
            reasons.add(Reason.INTEGER_COLUMN)
        if filters.non_unique_referenced and len(columns[b]) != len(sets[b]):
            reasons.add(Reason.NOT_UNIQUE)
        if len(sets[a]) < filters.min_values:
            reasons.add(Reason.FEW_VALUES)
        if Fraction(len(sets[a]), len(sets[b])) < filters.coverage:
            reasons.add(Reason.LOW_COVERAGE)
        return reasons

    on = {Reason.FEW_VALUES} if filters.min_values > 1 else set()
    on |= {Reason.LOW_COVERAGE} if filters.coverage else set()
    for reason, is_on in (
        (Reason.NULL_COLUMN, filters.null_columns),
        (Reason.INTEGER_COLUMN, filters.integer_columns),
        (Reason.NOT_UNIQUE, filters.non_unique_referenced),
    ):
        on |= {reason} if is_on else set()
    expected = [why(a, b) for a, b in inds]
    pairs = np.array(inds, np.int32).reshape(-1, 2)
    found = Inds(pairs[:, 0], pairs[:, 1], np.array([len(sets[a]) for a, _ in inds], np.int32))
    told = account(found, facts, filters)
    assert told.inds_left == sum(1 for reasons in expected if not reasons)
    assert {reason: (one.inds, one.inds_alone) for reason, one in told.by_reason.items()} == {
        reason: (sum(reason in each for each in expected), sum({reason} == each for each in expected)) for reason in on
    }
    full = [number for number in range(len(sets)) if sets[number]]
    for reason, count in (
        (Reason.INTEGER_COLUMN, sum(all(map(is_integer, sets[number])) for number in full)),
        (Reason.NULL_COLUMN, sum(sets[number] <= set(NULL_TOKENS) for number in full)),
    ):
        if reason in on:
            assert (told.by_reason[reason].dependent_columns, told.by_reason[reason].referenced_columns) == (
                count,
                count,
            )
    if Reason.NOT_UNIQUE in on:
        one = told.by_reason[Reason.NOT_UNIQUE]
        not_unique = sum(len(columns[number]) != len(sets[number]) for number in full)
        assert (one.dependent_columns, one.referenced_columns) == (0, not_unique)


PAIRS = st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=6, unique=True)


@given(PAIRS, PAIRS, st.data())
def test_differences_are_those_of_sets(
    first: list[tuple[int, int]], second: list[tuple[int, int]], data: st.DataObject
):
    shared = data.draw(st.lists(st.sampled_from(first), unique=True)) if first else []
    served = list(dict.fromkeys([*shared, *second]))
    rows = np.array(first, np.int32).reshape(-1, 2)
    found = compare(Inds(rows[:, 0], rows[:, 1], rows[:, 0]), np.array(served, np.int32).reshape(-1, 2))
    assert [tuple(pair) for pair in found.not_served.tolist()] == sorted(set(first) - set(served))
    assert [tuple(pair) for pair in found.not_holding.tolist()] == sorted(set(served) - set(first))
    assert len(found) == len(set(first) ^ set(served))
    assert found.not_served.dtype == found.not_holding.dtype == np.int32


@pytest.mark.parametrize("filters", [Filters(), PAPER])
def test_no_columns(filters: Filters) -> None:
    none = np.zeros(0, np.int32)
    facts = ValueFacts.of(none, np.zeros(1, np.int64), pa.array([], pa.large_string()), 0).with_rows(
        np.zeros(0, np.int64)
    )
    assert account(Inds(none, none, none), facts, filters).inds_left == 0
