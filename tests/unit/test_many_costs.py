"""What chooses between the two algorithms of a corpus, worked out by hand for three nested columns."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from service.core import corpus_inds, rarest_first, signatures
from service.core.column_sets import ColumnSets, Groups, group_columns
from service.core.corpus_choices import Algorithm
from service.core.corpus_inds import Choice, choose, choose_wanted
from service.core.partitioned_inds import Scope
from service.core.records import Keys, starts_of

RAREST, SIGNED = Algorithm.RAREST_FIRST, Algorithm.SIGNATURES


def nested(columns: int = 3, threshold: Fraction = Fraction(1)) -> Groups:
    """Group {1}, {1, 2}, {1, 2, 3}, ...: each is in all that follow."""
    sets = [range(1, size + 1) for size in range(1, columns + 1)]
    values = np.array([value for one in sets for value in one], np.uint64)
    starts = starts_of(np.array([len(one) for one in sets], np.int64))
    every = np.ones(columns, np.bool_)
    return group_columns(ColumnSets.of_keys(starts, Keys(values, values)), every, every, threshold=threshold)


def test_candidates_are_the_larger_columns_with_the_rarest_value() -> None:
    assert rarest_first.candidate_counts(nested()).tolist() == [2, 1, 0]
    # With half of the values missing: {1, 2} asks for both of its values, in two and three columns of any size.
    assert rarest_first.candidate_counts(nested(threshold=Fraction(1, 2))).tolist() == [2, 5, 3]
    # Eight words a column, and one for each 32 of its candidates: the first of 70 columns has 69.
    assert signatures.ands(nested(70), signatures.DEFAULT)[[0, 37, 38, 69]].tolist() == [10, 9, 8, 8]


def test_a_column_may_be_as_large_as_the_coverage_allows() -> None:
    every, asked = np.ones(3, np.bool_), np.array([2, 0], np.int32)
    sizes = np.array([5, 1, 7])
    assert Scope(sizes, every, every).largest(asked).tolist() == [2**63 - 1] * 2
    assert Scope(sizes, every, every, coverage=Fraction(2, 3)).largest(asked).tolist() == [10, 7]
    assert Scope(sizes, every, every, threshold=Fraction(3, 5)).allowance(asked).tolist() == [2, 2]


def test_the_cheaper_algorithm_is_chosen() -> None:
    """Three looked at (300 ns), three candidates (40 ns); six values hashed 24 times (8 ns), 24 words ANDed (8 ns)."""
    found = choose(nested())
    assert found == Choice(
        RAREST, pytest.approx(1020e-9, rel=1e-12, abs=0), pytest.approx((8 * 144 + 8 * 24) * 1e-9, rel=1e-12, abs=0)
    )
    few = signatures.Parameters(64, 1, 1)
    found = choose(nested(), few)
    assert found == Choice(
        SIGNED, pytest.approx(1020e-9, rel=1e-12, abs=0), pytest.approx((8 * 12 + 8 * 24) * 1e-9, rel=1e-12, abs=0)
    )


def test_signatures_are_not_chosen_where_they_show_nothing_or_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    few = signatures.Parameters(64, 1, 2)
    assert choose(nested(threshold=Fraction(1, 2)), few).signatures is None
    assert signatures.matrix_bytes(nested(65), few) == 64 * 2 * 2 * 8
    monkeypatch.setattr(corpus_inds, "MATRIX_BYTES", 64 * 2 * 8)
    assert choose(nested(64), few).signatures is not None
    # 65 groups looked at, 64 + 63 + ... candidates.
    assert choose(nested(65), few) == Choice(
        RAREST, pytest.approx((300 * 65 + 40 * 2080) * 1e-9, rel=1e-12, abs=0), None
    )


def test_the_wanted_algorithm_is_taken_where_it_can_run() -> None:
    groups, able = nested(), choose(nested())
    assert choose_wanted(groups, None) == choose_wanted(groups, RAREST) == able
    assert choose_wanted(groups, SIGNED) == Choice(SIGNED, able.rarest_first, able.signatures)
    missing = nested(threshold=Fraction(1, 2))
    assert choose_wanted(missing, SIGNED) == choose_wanted(missing, None) == choose(missing)
