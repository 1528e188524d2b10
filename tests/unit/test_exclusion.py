"""Tables are left out by either of their names; a name that fits none is told, with those that do."""

from __future__ import annotations

import pytest

from service.core.errors import SourceError
from service.core.exclusion import not_excluded

TABLES = [("shop", "orders"), ("shop", "lines"), ("log", "orders")]


@pytest.mark.parametrize(
    ("excluded", "left"),
    [
        ((), TABLES),
        (("lines",), [("shop", "orders"), ("log", "orders")]),
        (("orders",), [("shop", "lines")]),
        (("log.orders", "lines"), [("shop", "orders")]),
        (("orders", "shop.lines"), []),
    ],
)
def test_a_table_is_left_out_by_either_name(excluded: tuple[str, ...], left: list[tuple[str, str]]) -> None:
    assert not_excluded(TABLES, excluded) == left


def test_an_exclusion_that_fits_no_table_names_those_there_are() -> None:
    with pytest.raises(SourceError, match=r"log\.lines: the source has no such table\. It has: orders, lines\."):
        not_excluded(TABLES, ["lines", "log.lines"])


def test_of_many_tables_the_first_twenty_are_named() -> None:
    tables = [("s", f"t{number}") for number in range(25)]
    with pytest.raises(SourceError, match=r"It has: t0, (t\d+, ){18}t19\.$"):
        not_excluded(tables, ["x"])


def test_of_no_tables_nothing_is_left_and_no_exclusion_is_to_blame() -> None:
    assert not_excluded([], ["orders"]) == []
