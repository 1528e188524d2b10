"""Rostin's features: computed by hand for a few columns of TPC-H."""

from __future__ import annotations

import numpy as np
import pytest

from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.foreign_keys.rostin import rostin_features
from service.core.value_order import ValueOrder


def profile(table: str, name: str, rows: int, distinct: int, mean_length: float | None) -> ColumnProfile:
    order = ValueOrder.NUMERIC
    return ColumnProfile("", table, name, 0, "integer", rows, 0, distinct, order, mean_length=mean_length)


PROFILES = {
    0: profile("nation", "nationkey", 25, 25, 1.6),
    1: profile("region", "regionkey", 5, 5, 1.0),
    2: profile("nation", "regionkey", 25, 5, 1.0),
    3: profile("customer", "nation_of_birth", 150, 20, 1.5),
}
MEASURED = {
    (2, 1): Measured(1.0, 1.0, 0.0, 0.0),
    (2, 0): Measured(1.0, 0.2, 0.4, 0.8),
    (1, 0): Measured(1.0, 0.2, 0.4, 0.8),
    (3, 0): Measured(1.0, 0.8, 0.1, None),
}


def features(pair: tuple[int, int]) -> dict[str, float]:
    place = list(MEASURED).index(pair)
    return {name: float(of[place]) for name, of in rostin_features(MEASURED, PROFILES).items()}


def test_a_foreign_key_by_its_own_name() -> None:
    assert features((2, 1)) == {
        "distinct_dependent_values": 5,
        "coverage": 1,
        "dependent_and_referenced": 0,
        "multi_dependent": 2,
        "multi_referenced": 1,
        "column_name": 1,
        "value_length_difference": 0,
        "out_of_range": 0,
        "typical_name_suffix": 1,
        "table_size_ratio": 5,
    }


def test_a_short_key_in_a_longer_one() -> None:
    assert features((1, 0)) == {
        "distinct_dependent_values": 5,
        "coverage": 0.2,
        "dependent_and_referenced": 1,
        "multi_dependent": 1,
        "multi_referenced": 3,
        "column_name": 0,
        "value_length_difference": pytest.approx(0.6),
        "out_of_range": 0.8,
        "typical_name_suffix": 1,
        "table_size_ratio": 0.2,
    }


def test_a_name_that_holds_the_tables_says_half() -> None:
    assert features((3, 0))["column_name"] == 0.5


def test_what_was_not_measured_is_nan() -> None:
    assert np.isnan(features((3, 0))["out_of_range"])
    lengths = {0: profile("t", "x", 1, 1, None), 1: profile("u", "y", 1, 1, 2.0)}
    (found,) = rostin_features({(0, 1): Measured(1.0, 1.0)}, lengths)["value_length_difference"]
    assert np.isnan(found)


def test_names_without_words_say_nothing() -> None:
    profiles = {0: profile("", "", 1, 1, 1), 1: profile("_", "-", 1, 1, 1)}
    found = rostin_features({(0, 1): Measured(1.0, 1.0)}, profiles)
    assert (found["column_name"].tolist(), found["typical_name_suffix"].tolist()) == ([0], [0])


@pytest.mark.parametrize(
    ("name", "suffix"),
    [("customer_id", 1), ("ArtistId", 1), ("idle", 0), ("OrderNo", 1), ("nationkey", 1), ("id_type", 0)],
)
def test_a_typical_suffix_ends_the_name(name: str, suffix: float) -> None:
    profiles = {0: profile("t", name, 1, 1, 1), 1: profile("u", "x", 1, 1, 1)}
    found = rostin_features({(0, 1): Measured(1.0, 1.0)}, profiles)
    assert found["typical_name_suffix"].tolist() == [suffix]


def test_a_candidate_that_nothing_is_known_of_is_refused() -> None:
    with pytest.raises(KeyError):
        rostin_features({(0, 7): Measured(1.0, 1.0)}, PROFILES)
