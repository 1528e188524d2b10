"""The filters of a corpus: what counts as what, and why something is absent."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pyarrow as pa

from service.core.column_filters import (
    NULL_TOKENS,
    ColumnFacts,
    Filters,
    Reason,
    all_of,
    are_integers,
    are_null_tokens,
    exclude,
)


def test_what_an_integer_is() -> None:
    integers = ["0", "-7", "+12", "007", "9" * 400]
    others = ["", "-", "1.0", "1,000", "1 000", " 1", "1\n", "1e3", "٣", "²", "0x1", "--1", "1-"]
    assert are_integers(pa.array([*integers, *others], pa.large_string())).tolist() == [True] * 5 + [False] * 13


def test_the_papers_null_tokens() -> None:
    assert len(set(NULL_TOKENS)) == 14
    texts = pa.array([*NULL_TOKENS, "-1", "N/a", "unknown", "—-", " "], pa.string())
    assert are_null_tokens(texts).tolist() == [True] * 14 + [False] * 5
    assert are_null_tokens(pa.array(["x", "-"]), ("x",)).tolist() == [True, False]


def test_a_list_is_all_of_something_when_it_has_any() -> None:
    starts = np.array([0, 0, 2, 4, 5], np.int64)
    assert all_of(starts, np.array([1, 1, 1, 0, 1], bool)).tolist() == [False, True, False, True]


def test_reasons_of_columns_and_pairs() -> None:
    facts = ColumnFacts(
        distinct=np.array([0, 1, 3, 5, 20]),
        rows=np.array([4, 4, 3, 9, 20]),
        null_only=np.array([False, True, False, False, False]),
        integers_only=np.array([False, False, True, False, False]),
    )
    excluded = exclude(facts, Filters(True, True, True, Fraction(1, 5), min_values=2))
    assert excluded.why_not(0, 4) == Reason.NO_VALUES | Reason.LOW_COVERAGE
    assert excluded.why_not(1, 2) == Reason.NULL_COLUMN | Reason.FEW_VALUES | Reason.INTEGER_COLUMN
    assert excluded.why_not(4, 3) == Reason.NOT_UNIQUE
    assert excluded.why_not(3, 4) == 0, "5 of 20 values cover enough"
    assert excluded.summary() == {
        "dependent": {Reason.NO_VALUES: 1, Reason.NULL_COLUMN: 1, Reason.INTEGER_COLUMN: 1, Reason.FEW_VALUES: 1},
        "referenced": {Reason.NO_VALUES: 1, Reason.NULL_COLUMN: 1, Reason.INTEGER_COLUMN: 1, Reason.NOT_UNIQUE: 2},
    }
    nothing = exclude(facts, Filters())
    assert nothing.summary() == {"dependent": {Reason.NO_VALUES: 1}, "referenced": {Reason.NO_VALUES: 1}}


def test_a_column_of_null_tokens_that_are_integers_is_left_out_for_both_reasons() -> None:
    """A corpus may name null tokens of its own, such as 0 or 999."""
    one, yes = np.array([1]), np.array([True])
    excluded = exclude(ColumnFacts(one, one, yes, yes), Filters(null_columns=True, integer_columns=True))
    assert excluded.why_not(0, 0) == Reason.NULL_COLUMN | Reason.INTEGER_COLUMN
