"""What the core's records say of themselves."""

from __future__ import annotations

import pytest

from service.core.model import FeedPosition, RawRecord, SchemaDrift, Table


def test_a_records_place_is_its_own() -> None:
    record = RawRecord("orders", 3, 77, None, None, 0)
    assert record.position == FeedPosition("orders", 3, 77)
    assert str(record.position) == "topic orders, partition 3, offset 77"


@pytest.mark.parametrize("filled", [None, frozenset({"a"})])
def test_a_drift_holds_what_differs(filled: frozenset[str] | None) -> None:
    table = Table("shop", "orders", ())
    drift = SchemaDrift("differs", table, [("a", "text")], ["b"], {"lsn": 4}, filled, [("c", "int8")])
    assert (str(drift), drift.table, drift.added, drift.missing) == ("differs", table, (("a", "text"),), ("b",))
    assert (drift.source_position, drift.filled, drift.retyped) == ({"lsn": 4}, filled, (("c", "int8"),))
    assert SchemaDrift("differs", table).source_position == {}
