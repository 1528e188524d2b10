"""A feed whose changes do not name their database is said to be of a source, where several have a table of one name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.config import load_settings
from service.core.errors import FeedError
from service.feed_wiring import decoding, wanted_sources
from tests.decoding import decode_all
from tests.events import envelope, record, tracked_table

CHANGE = [record(envelope("c", "public", "items", None, {"id": "1"}))]
NORTH = replace(tracked_table("public", "items", {"id": "text"}), source="north", wire=("n", "public", "items"))
SOUTH = replace(tracked_table("south.public", "items", {"id": "text"}), source="south", wire=("s", "public", "items"))


def test_a_change_that_could_be_of_two_sources_is_refused_with_the_option_that_decides() -> None:
    changes, _, bad = decode_all(decoding(load_settings())([NORTH, SOUTH]), CHANGE)
    assert changes == []
    assert "--source NAME" in str(bad[0].error)


@pytest.mark.parametrize("wanted", [NORTH, SOUTH])
def test_the_source_that_is_named_has_the_change(wanted) -> None:
    settings = load_settings(feed_sources=f" {wanted.source}")
    changes, _, bad = decode_all(decoding(settings)([NORTH, SOUTH]), CHANGE)
    assert [change.table for change in changes] == [wanted]
    assert bad == []


def test_a_source_that_the_state_does_not_have_is_told_at_once() -> None:
    with pytest.raises(FeedError, match=r"no table of a source 'east'.*it has north, south"):
        decoding(load_settings(feed_sources="north,east"))([NORTH, SOUTH])


def test_the_sources_of_the_settings_are_those_of_executors() -> None:
    assert wanted_sources(load_settings(feed_sources="north, east")) == {"north", "east"}
    assert wanted_sources(load_settings()) is None
