"""Rostin's features: computed by hand for a few columns of TPC-H."""

from __future__ import annotations

import pytest

from service.core.foreign_keys.candidates import Candidate
from service.core.foreign_keys.rostin import ColumnProfile, RostinFeatures, rostin_features

PROFILES = {
    0: ColumnProfile("nation", "nationkey", 25, 25, 1.6),
    1: ColumnProfile("region", "regionkey", 5, 5, 1.0),
    2: ColumnProfile("nation", "regionkey", 25, 5, 1.0),
    3: ColumnProfile("customer", "nation_of_birth", 150, 20, 1.5),
}
PAIRS = {(2, 1): 5, (2, 0): 5, (1, 0): 5, (3, 0): 20}
OUT = {(2, 1): 0.0, (2, 0): 0.8, (1, 0): 0.8, (3, 0): 0.0}


def features() -> dict[Candidate, RostinFeatures]:
    return rostin_features([Candidate((a,), (b,)) for a, b in PAIRS], PROFILES, PAIRS, OUT)


def test_a_foreign_key_by_its_own_name() -> None:
    assert features()[Candidate((2,), (1,))] == RostinFeatures(
        distinct_dependent_values=5,
        coverage=1,
        dependent_and_referenced=0,
        multi_dependent=2,
        multi_referenced=1,
        column_name=1,
        value_length_difference=0,
        out_of_range=0,
        typical_name_suffix=1,
        table_size_ratio=5,
    )


def test_a_short_key_in_a_longer_one() -> None:
    assert features()[Candidate((1,), (0,))] == RostinFeatures(
        distinct_dependent_values=5,
        coverage=0.2,
        dependent_and_referenced=1,
        multi_dependent=1,
        multi_referenced=3,
        column_name=0,
        value_length_difference=pytest.approx(0.6),
        out_of_range=0.8,
        typical_name_suffix=1,
        table_size_ratio=0.2,
    )


def test_a_name_that_holds_the_tables_says_half() -> None:
    assert features()[Candidate((3,), (0,))].column_name == 0.5


def test_names_without_words_say_nothing() -> None:
    profiles = {0: ColumnProfile("", "", 1, 1, 1), 1: ColumnProfile("_", "-", 1, 1, 1)}
    found = rostin_features([Candidate((0,), (1,))], profiles, {(0, 1): 1}, {(0, 1): 0})[Candidate((0,), (1,))]
    assert (found.column_name, found.typical_name_suffix) == (0, 0)


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("customer_id", 1), ("ArtistId", 1), ("idle", 0), ("OrderNo", 1), ("nationkey", 1), ("id_type", 0)],
)
def test_a_typical_suffix_ends_the_name(name: str, suffix: float) -> None:
    profiles = {0: ColumnProfile("t", name, 1, 1, 1), 1: ColumnProfile("u", "x", 1, 1, 1)}
    found = rostin_features([Candidate((0,), (1,))], profiles, {(0, 1): 1}, {(0, 1): 0})
    assert found[Candidate((0,), (1,))].row()[8] == suffix


def test_a_candidate_that_nothing_is_known_of_is_refused() -> None:
    with pytest.raises(KeyError):
        rostin_features([Candidate((0,), (3,))], PROFILES, PAIRS, OUT)
