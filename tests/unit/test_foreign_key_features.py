"""Features of foreign-key candidates: margins, and a shop's candidates worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest

from service.core.foreign_keys.features import FALLING, RISING, pair_features
from service.core.foreign_keys.margins import lead
from service.core.foreign_keys.profiles import ColumnProfile, Measured
from service.core.value_order import ValueOrder


def column(table: str, name: str, ordinal: int, rows: int, distinct: int, greatest: int) -> ColumnProfile:
    return ColumnProfile(
        "", table, name, ordinal, "integer", rows, 0, distinct, ValueOrder.NUMERIC, "1", str(greatest), 2.0, True, False
    )


COLUMNS = {
    0: column("customers", "id", 0, 100, 100, 100),
    1: column("orders", "id", 0, 400, 400, 800),
    2: column("orders", "customer_id", 3, 400, 50, 100),
    3: column("orders", "note", 4, 400, 0, 0),
}
MEASURED = {(2, 0): Measured(1.0, 0.5, 0.01, 0.0), (2, 1): Measured(0.9, 0.1, 0.4, None)}


@pytest.fixture(scope="module")
def features() -> dict[str, list[float]]:
    return {name: of.tolist() for name, of in pair_features(MEASURED, COLUMNS, [0, 1]).items()}


@pytest.mark.parametrize(
    ("name", "of_customer", "of_order"),
    [
        ("phi", 1.0, 0.9),
        ("coverage", 0.5, 0.1),
        ("distance", 0.01, 0.4),
        ("dep_distinct", log(50), log(50)),
        ("ref_distinct", log(100), log(400)),
        ("dep_unique", 0, 0),
        ("dep_primary", 0, 0),
        ("dep_key", 0, 0),
        ("dep_ordinal", 3, 3),
        ("dep_density", 0.5, 0.5),
        ("ref_density", 1.0, 0.5),
        ("ref_counts", 1, 0),
        ("same_type", 1, 1),
        ("same_table", 0, 1),
        ("row_ratio", log(4), 0),
        ("greatest_ratio", 1.0, 0.125),
        ("repetition", log(8), log(8)),
        ("references", 2, 2),
        ("dependents", 1, 1),
        ("ref_references", 0, 0),
        ("equal_sets", 0, 0),
        ("lead_randomness", 0.39, -0.39),
        ("lead_coverage", 0.4, -0.4),
        ("lead_distinct", log(4), -log(4)),
        ("identifier", 1, 1),
        ("better_named", 0, 1),
        ("ref_place", 0, 0),
        ("ref_position", 0, 0),
        ("table_said", 0, 1),
        ("lead_table_said", -1, 1),
    ],
)
def test_a_feature_by_hand(features: dict[str, list[float]], name: str, of_customer: float, of_order: float) -> None:
    assert features[name] == pytest.approx([of_customer, of_order])


def test_a_column_that_says_table_and_key_is_fully_named(features: dict[str, list[float]]) -> None:
    assert features["name_full"][0] == pytest.approx(1.0)
    assert features["name_full"][1] < 0.5


def test_of_a_tables_keys_the_primary_one_is_first() -> None:
    columns = {
        0: column("country", "name", 0, 200, 200, 200),
        1: column("country", "code", 1, 200, 200, 200),
        2: column("population", "country", 3, 200, 200, 200),
        3: column("city", "country", 2, 900, 200, 200),
    }
    pairs = {(3, key): Measured(1.0, 1.0, 0.0, 0.0) for key in (0, 1, 2)}
    assert pair_features(pairs, columns, [0, 1, 2])["ref_place"].tolist() == [0, 1, 0]
    declared = columns | {1: replace(columns[1], is_primary=True)}
    found = pair_features({**pairs, (1, 2): Measured(1.0, 1.0)}, declared, [0, 1, 2])
    assert found["ref_place"].tolist() == [1, 0, 0, 0]
    assert found["ref_primary"].tolist() == [0, 1, 0, 0]
    assert found["dep_primary"].tolist() == [0, 0, 0, 1]


def test_a_key_may_stand_anywhere_where_it_identifies_and_its_table_has_no_other_for_the_column() -> None:
    columns = {
        0: column("country", "name", 0, 200, 200, 200),
        1: column("country", "code", 1, 200, 200, 200),
        2: column("country", "capital", 2, 200, 200, 200),
        3: column("city", "country", 2, 900, 150, 200),
        4: column("river", "country", 3, 900, 150, 200),
    }
    pairs = dict.fromkeys([(3, 1), (3, 2), (4, 0), (4, 1), (0, 1)], Measured(1.0, 1.0, 0.0, 0.0))
    assert pair_features(pairs, columns, [0, 1, 2])["ref_position"].tolist() == [0, 2, 0, 1, 1]
    columns[5] = column("country", "founded", 0, 200, 150, 200)  # before the key in its table, and no key itself
    of_own = {**pairs, (5, 1): Measured(1.0, 1.0, 0.0, 0.0)}
    assert pair_features(of_own, columns, [0, 1, 2])["ref_position"].tolist() == [0, 2, 0, 1, 1, 0]


def test_what_was_not_measured_is_nan(features: dict[str, list[float]]) -> None:
    assert features["outside"][0] == 0
    assert np.isnan(features["outside"][1])


def test_what_is_said_of_features_is_said_of_some(features: dict[str, list[float]]) -> None:
    assert set(features) >= RISING | FALLING
    assert not RISING & FALLING


def test_a_lead_is_over_the_best_other_one() -> None:
    found = lead(np.array([0.9, 0.5, 0.7, 0.2, 0.3, 0.3]), [1, 1, 1, 2, 3, 3])
    assert found == pytest.approx([0.2, -0.4, -0.2, 1.0, 0.0, 0.0])
