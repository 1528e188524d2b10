"""The place of a client in the stream: the rest of a version is sent whole, or it is said that it is gone."""

from __future__ import annotations

from typing import Any, cast

import pytest

from service.api.transition_stream import WHOLE, Place, read_events
from service.core.model import AttributeName, TransitionKind
from service.usecases.answers import AttributeRef, Key, StateHead, TransitionFilter, TransitionInfo
from service.usecases.ports import StateSnapshot
from service.usecases.queries import HistoryGoneError


def transition(version: int, dependent: int, referenced: int) -> TransitionInfo:
    """Make one of a pair."""
    one, other = (AttributeRef(number, AttributeName("s", "t", str(number))) for number in (dependent, referenced))
    return TransitionInfo(version, None, TransitionKind.BROKE, one, other, None, None, 1, None, None)


class History:
    """Hold transitions of a state whose history begins with a version; of older ones some are there still."""

    def __init__(self, first_version: int, *places: tuple[int, int, int]) -> None:
        self.head = StateHead(50, 1, first_version, "batch", None, None, None)
        self._places = places

    def transitions(self, chosen: TransitionFilter, after: Key | None, limit: int) -> list[TransitionInfo]:
        found = [one for one in self._places if one[0] > chosen.since and (after is None or one > tuple(after))]
        return [transition(*one) for one in found[:limit]]


def read(history: History, place: str) -> list[Place]:
    """Read the events behind a place; give the places that they end at."""
    return [one.last for one in read_events(cast(StateSnapshot, history), Place.parse(place))[0]]


def test_a_place_inside_a_version_is_gone_with_that_version() -> None:
    """Of a version before the history begins those transitions went behind which their pairs have others."""
    kept: tuple[Any, ...] = ((42, 1, 2), (42, 9, 9), (50, 1, 3))
    assert read(History(42, *kept), "42.1.2") == [Place(42), Place(50)]
    with pytest.raises(HistoryGoneError, match="begins with version 43"):
        read(History(43, *kept), "42.1.2")
    assert read(History(43, *kept), "42") == [Place(50)], "who has all of it lacks nothing"
    with pytest.raises(HistoryGoneError):
        read(History(2, (1, 1, 3), (50, 1, 3)), "1.1.2")


def test_a_place_is_written_as_it_is_read() -> None:
    assert [str(Place.parse(text)) for text in ("42", "42.3.17")] == ["42", "42.3.17"]
    assert Place.parse("42") == (42, WHOLE, WHOLE)
