"""Postgres' snapshots: what is visible in one, also when transactions are named by 32 bits."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.core.errors import StateError
from service.core.snapshot import Snapshot, widen


@pytest.mark.parametrize(
    ("transaction", "is_visible"), [(9, True), (10, False), (11, True), (12, False), (19, True), (20, False)]
)
def test_a_transaction_is_visible_when_it_had_ended(transaction: int, is_visible: bool) -> None:
    assert Snapshot.parse("10:20:10,12").is_visible(transaction) is is_visible


def test_a_snapshot_without_running_transactions() -> None:
    assert Snapshot.parse("10:10:") == Snapshot(10, 10, frozenset())


@pytest.mark.parametrize("text", ["", "10:20", "20:10:", "a:b:c", "1:2:3,"])
def test_what_is_no_snapshot_is_refused(text: str) -> None:
    with pytest.raises(StateError, match="pg_current_snapshot"):
        Snapshot.parse(text)


@given(st.integers(0, 2**40), st.integers(-(2**31) + 1, 2**31 - 1))
def test_a_transaction_is_found_by_its_last_32_bits_near_a_known_one(near: int, distance: int) -> None:
    transaction = max(near + distance, 0)
    assert widen(transaction % 2**32, near) == transaction


def test_a_transaction_that_is_near_behind_the_wrap_or_in_front_of_it_is_found() -> None:
    assert widen(2**32 - 1, 2**33 + 5) == 2**33 - 1
    assert widen(5, 2**33 - 1) == 2**33 + 5


@given(st.integers(2**32, 2**40), st.integers(0, 2**40))
@example(2**32, 2**40)
def test_an_id_of_64_bits_stays_as_it_is_however_far_away(transaction: int, near: int) -> None:
    assert widen(transaction, near) == transaction


def test_a_transaction_behind_the_wrap_is_not_taken_for_an_old_one() -> None:
    snapshot = Snapshot.parse(f"{2**32 - 5}:{2**32 - 2}:")
    assert not snapshot.is_visible(widen(3, snapshot.xmax))
    assert snapshot.is_visible(widen(2**32 - 9, snapshot.xmax))
