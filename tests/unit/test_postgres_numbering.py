"""The numbers of a slot's changes: dense, and each change has one for good, however often the server sends it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.model import StoredPosition
from service.stream.pgoutput import Begin, Commit
from service.stream.postgres_numbering import CLOCKS_DIFFER_MS, Numbering, SetBackError

LENGTH = 16
"""Bytes of a commit in this log; the next transaction's may begin where it ends."""


def log_of(sizes: list[int]) -> list[tuple[Begin, int, Commit]]:
    """Make a log: transactions of so many changes, one behind the other."""
    log = []
    for number, size in enumerate(sizes):
        lsn = 1000 + LENGTH * number
        log.append((Begin(lsn, number, number), size, Commit(lsn, lsn + LENGTH)))
    return log


@given(st.lists(st.integers(0, 4), max_size=8), st.data())
def test_every_change_is_handed_over_once_whatever_breaks(sizes: list[int], data: st.DataObject) -> None:
    """The server begins behind what was confirmed; the feed is broken, or thrown away with all that was not stored."""
    log = log_of(sizes)
    true_numbers = {}
    for begin, size, _ in log:
        for place in range(size):
            true_numbers[begin.lsn, place] = len(true_numbers)
    stored = StoredPosition(0, {"txn_lsn": 999, "first": 0, "end_lsn": 1000})
    handed: dict[int, tuple[int, int]] = {}
    for _ in range(data.draw(st.integers(1, 4), "feeds")):
        numbers = Numbering(stored)
        handed = {number: change for number, change in handed.items() if number < stored.next_offset}
        for _ in range(data.draw(st.integers(1, 3), "breaks")):
            numbers.begin_again()
            confirmed = int(str(stored.source_position["end_lsn"]))
            steps = data.draw(st.integers(0, 30), "steps")
            for begin, size, commit in log:
                if begin.lsn < confirmed - 1:
                    continue
                if (steps := steps - 1) < 0:
                    break
                numbers.begin(begin)
                for place in range(size):
                    if (steps := steps - 1) < 0:
                        break
                    number = numbers.count()
                    if number is not None:
                        assert number not in handed
                        handed[number] = (begin.lsn, place)
                if (steps := steps - 1) < 0:
                    break
                numbers.end(commit)
            at = data.draw(st.integers(stored.next_offset, numbers.next), "stored")
            stored = StoredPosition(at, numbers.kept(at))
            whole = {lsn for lsn, _ in handed.values() if lsn + LENGTH <= numbers.stored_end}
            assert all(true_numbers[change] < at for change in true_numbers if change[0] in whole), (
                "confirmed too early"
            )
    assert handed == {true_numbers[change]: change for change in handed.values()}
    numbers = Numbering(stored)
    for begin, size, commit in log:
        numbers.begin(begin)
        given_now = [numbers.count() for _ in range(size)]
        expected = [true_numbers[begin.lsn, place] for place in range(size)]
        assert given_now == [number if number >= stored.next_offset else None for number in expected]
        numbers.end(commit)


@given(st.lists(st.integers(0, 4), max_size=8), st.integers(0, 30))
def test_a_position_is_whole_between_two_transactions(sizes: list[int], steps: int) -> None:
    """Steps are the beginnings, the changes and the ends that have come."""
    numbers = Numbering(StoredPosition(0, {"txn_lsn": 999, "first": 0, "end_lsn": 1000}))
    ends = {0}
    for begin, size, commit in log_of(sizes):
        for step in [lambda begin=begin: numbers.begin(begin), *[numbers.count] * size]:
            if (steps := steps - 1) >= 0:
                step()
        if (steps := steps - 1) >= 0:
            numbers.end(commit)
            ends.add(numbers.next)
    assert {at for at in range(numbers.next + 1) if numbers.is_whole(at)} == ends


def test_transactions_without_changes_move_the_end_alone() -> None:
    numbers = Numbering(StoredPosition(5, {"txn_lsn": 100, "first": 3, "end_lsn": 116}))
    for begin, _, commit in log_of([0] * 1000):
        numbers.begin(begin)
        numbers.end(commit)
    assert numbers.kept(5)["end_lsn"] == 1000 + 1000 * LENGTH
    assert numbers.next == 5


def test_a_commit_right_behind_a_beat_is_not_taken_for_what_came_before() -> None:
    numbers = Numbering(StoredPosition(0, {"txn_lsn": 1, "first": 0, "end_lsn": 2}))
    (begin, _, commit), (following, _, _) = log_of([0, 1])
    numbers.begin(begin)
    numbers.end(commit)
    assert numbers.beat() == 0
    again = Numbering(StoredPosition(1, numbers.kept(1)))
    assert following.lsn == commit.end_lsn == again.stored_end
    again.begin(begin)
    assert again.count() is None, "it came before the beat"
    again.end(commit)
    again.begin(following)
    assert again.count() == 1


def test_a_new_transaction_where_others_were_is_of_a_log_that_was_set_back() -> None:
    numbers = Numbering(StoredPosition(5, {"txn_lsn": 100, "first": 3, "end_lsn": 116, "ts_ms": 1000}))
    numbers.begin(Begin(92, 1000 + CLOCKS_DIFFER_MS, 1))
    assert numbers.count() is None, "clocks may differ"
    for lsn in (92, 100):
        with pytest.raises(SetBackError):
            numbers.begin(Begin(lsn, 1001 + CLOCKS_DIFFER_MS, 2))
    numbers.begin(Begin(116, 1_000_000, 2))
    assert numbers.count() == 5


def test_times_that_do_not_rise_with_the_log_are_those_of_a_healthy_source() -> None:
    """A source that is a subscriber itself sends its origin's times; a clock may have been set back."""
    numbers = Numbering(StoredPosition(0, {"txn_lsn": 100, "first": 0, "end_lsn": 101}))
    late, early = 1_000_000 + 5 * CLOCKS_DIFFER_MS, 1_000_000
    for lsn, committed_ms in ((190, late), (200, early)):
        numbers.begin(Begin(lsn, committed_ms, lsn))
        numbers.count()
        numbers.end(Commit(lsn, lsn + 5))
    restarted = Numbering(StoredPosition(2, numbers.kept(2)))
    for again in (numbers, restarted):
        again.begin_again()
        again.begin(Begin(190, late, 190))
        assert again.count() is None
        again.end(Commit(190, 195))
        with pytest.raises(SetBackError):
            again.begin(Begin(200, late + CLOCKS_DIFFER_MS + 1, 300))
