"""The best referenced columns of each dependent, against sorting all of them."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core import rarest_first
from service.core.column_sets import group_columns
from service.core.top_referenced import top_referenced
from tests.many import COLUMNS, brute_force, sets_of


@given(
    columns=COLUMNS, count=st.integers(1, 5), threshold=st.sampled_from([Fraction(1), Fraction(3, 4), Fraction(1, 3)])
)
def test_the_best_are_the_first_of_all_by_coverage_then_number(columns, count, threshold) -> None:
    everyone = np.ones(len(columns), bool)
    groups = group_columns(sets_of(columns), everyone, everyone, threshold=threshold)
    expected = defaultdict(list)
    for a, b, overlap in brute_force(columns, threshold=threshold):
        expected[a].append((-Fraction(overlap, len(columns[b])), b, overlap))
    found = defaultdict(list)
    for block in top_referenced(groups, rarest_first.find_inds(groups), count):
        for a, b, overlap in zip(*(side.tolist() for side in block), strict=True):
            found[a].append((b, overlap))
    assert found == {a: [one[1:] for one in sorted(all_of_it)[:count]] for a, all_of_it in expected.items()}


def test_equal_columns_by_the_thousand_are_not_paired_with_each_other() -> None:
    """A million pairs hold; three for each of a thousand columns are made."""
    everyone = np.ones(1_000, bool)
    groups = group_columns(sets_of([{1, 2}] * 1_000), everyone, everyone)
    (block,) = top_referenced(groups, rarest_first.find_inds(groups), 3)
    assert len(block.dependent) == 3_000
    assert block.referenced[:6].tolist() == [1, 2, 3, 0, 2, 3]


def test_none_of_them_is_no_question() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        list(top_referenced(group_columns(sets_of([]), np.ones(0, bool), np.ones(0, bool)), [], 0))


def test_more_than_there_are_take_no_more_room_than_all() -> None:
    everyone = np.ones(1_000, bool)
    groups = group_columns(sets_of([{1, 2}] * 500 + [{1}] * 500), everyone, everyone)
    blocks = list(top_referenced(groups, rarest_first.find_inds(groups), (1 << 31) - 1))
    assert sum(len(block.dependent) for block in blocks) == 500 * 499 + 500 * 999
