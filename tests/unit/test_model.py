"""What the core's records say of themselves."""

from __future__ import annotations

import pytest

from service.core.model import FeedPosition, RawRecord, SchemaDrift, Since, Table, is_place, told_anew


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
    assert SchemaDrift("differs", table).position is None
    assert SchemaDrift("differs", table).without_values == "differs"


@pytest.mark.parametrize(
    ("position", "ts_ms", "is_behind"),
    [
        (FeedPosition("t", 1, 9), 0, False),
        (FeedPosition("t", 1, 9), 1, True),
        (FeedPosition("t", 1, 9), 99, True),
        (FeedPosition("t", 1, 9), 100, False),
        (FeedPosition("t", 2, 9), 100, True),
        (FeedPosition("u", 1, 9), 100, True),
        (FeedPosition("u", 1, 9), 101, False),
    ],
)
def test_a_change_is_behind_by_its_time_and_in_another_partition_at_the_same_time(
    position: FeedPosition, ts_ms: int, is_behind: bool
) -> None:
    assert Since(100, "t", 1).is_behind(position, ts_ms) == is_behind


@pytest.mark.parametrize(
    ("partition", "offset", "is_one"),
    [
        ("0", "0", True),
        (str(2**31 - 1), str(2**63 - 1), True),
        (str(2**31), "0", False),
        ("0", str(2**63), False),
        ("0", "0" * 19, True),
        ("0", "0" * 20, False),
        ("-1", "0", False),
        ("0", "x", False),
        ("0", "9" * 5000, False),
    ],
)
def test_a_place_is_what_can_be_stored(partition: str, offset: str, is_one: bool) -> None:
    assert is_place(partition, offset) == is_one


def test_a_feed_is_begun_anew_by_a_command_that_can_be_typed() -> None:
    assert "`subsetd unfollow 'a feed' --gone`" in told_anew("a feed")
