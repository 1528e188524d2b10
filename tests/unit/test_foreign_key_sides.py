"""What can be the two sides of a foreign key, and what cannot; bounds that are no share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

import pytest

from service.core.foreign_keys.sides import ForeignKey, ForeignKeyError
from service.core.model import AttributeName
from service.usecases.foreign_key_decisions import check_bound

ID, CUSTOMER, NOTE = (AttributeName("s", "orders", column) for column in ("id", "customer", "note"))
KEY = AttributeName("s", "customers", "id")


def test_sides_say_their_names() -> None:
    assert str(ForeignKey.of([CUSTOMER], [KEY])) == "s.orders.customer → s.customers.id"
    both = ForeignKey.of([ID, CUSTOMER], [CUSTOMER, NOTE])
    assert str(both) == "s.orders(id, customer) → s.orders(customer, note)"
    assert both.dependent.names == [ID, CUSTOMER]


@pytest.mark.parametrize(
    ("dependent", "referenced", "reason"),
    [
        ([], [KEY], "A foreign key has a column at least on each side."),
        ([CUSTOMER, ID], [KEY], "s.orders(customer, id) and s.customers.id are not of as many columns."),
        ([CUSTOMER], [CUSTOMER], "s.orders.customer is on both sides; columns contain themselves. Name two."),
        ([ID, ID], [CUSTOMER, NOTE], "s.orders: a column comes twice among ['id', 'id']."),
        (
            [ID, CUSTOMER, KEY],
            [CUSTOMER, NOTE],
            "s.orders.id and s.customers.id are of two tables: the columns of a side are of one.",
        ),
    ],
)
def test_what_cannot_be_a_foreign_key(
    dependent: Sequence[AttributeName], referenced: Sequence[AttributeName], reason: str
) -> None:
    with pytest.raises(ForeignKeyError, match=f"^{re.escape(reason)}$"):
        ForeignKey.of(dependent, referenced)


@pytest.mark.parametrize("least", ["0", "-0.5", "1.0000000000000001", "NaN", "Infinity", "1E-20000"])
def test_a_bound_is_a_share(least: str) -> None:
    with pytest.raises(ForeignKeyError, match=f"The least coefficient {least} is no share"):
        check_bound(Decimal(least))
    check_bound(Decimal("1e-9"))
