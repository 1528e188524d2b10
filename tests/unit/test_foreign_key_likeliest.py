"""Which references of a column are looked at where it has more than can be."""

from __future__ import annotations

import pytest

from service.core.foreign_keys.likeliest import (
    LEAST_REFERENCES,
    MOST_CANDIDATES,
    Reference,
    likeliest,
    most_references,
)

REFERENCES = [
    Reference("regions", "id", 0.9),
    Reference("customers", "id", 0.1),
    Reference("orders", "customer_no", 0.2),
    Reference("years", "id", 0.95),
    Reference("old_customer_orders", "key", 0.3),
]


@pytest.mark.parametrize(
    ("name", "most", "places"),
    [
        ("customer_id", 5, [0, 1, 2, 3, 4]),
        ("customer_id", 4, [1, 2, 3, 4]),
        ("customer_id", 2, [2, 4]),
        ("OldOrderCustomer", 1, [4]),
        ("id", 2, [0, 3]),
        ("", 1, [3]),
    ],
)
def test_words_come_first_then_coverage(name: str, most: int, places: list[int]) -> None:
    assert likeliest(name, REFERENCES, most) == places


def test_columns_share_what_may_be_ranked_down_to_a_least_number() -> None:
    assert most_references(0) == most_references(1) == MOST_CANDIDATES
    assert most_references(1000) == MOST_CANDIDATES // 1000
    assert most_references(10**6) == LEAST_REFERENCES
