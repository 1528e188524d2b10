"""A table of which every column is stale gets no new ones: nobody counts its rows any more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.core.errors import RecordError
from service.core.model import RowChange, SchemaDrift
from service.stream.envelope import Decoder
from service.usecases.schema_changes import KnownColumn, plan_change
from tests.events import envelope, record, tracked_table

TABLE = tracked_table("s", "orders", {"id": "integer"})


def known(*, is_stale: bool) -> KnownColumn:
    return KnownColumn(1, "s", "orders", "id", "integer", is_stale, None)


def test_a_column_that_takes_the_place_of_all_others_is_new() -> None:
    change = plan_change([known(is_stale=False)], SchemaDrift("changed", TABLE, [("other", "text")], ["id"]))
    assert (change.added, change.stale) == ((("other", "text"),), (1,))


def test_a_new_column_beside_stale_ones_alone_is_refused_with_the_way_out() -> None:
    """Else the record would change the columns again and again, and never be passed."""
    with pytest.raises(RecordError, match=r"all its columns are stale.*bootstrap the source again with --replace"):
        plan_change([known(is_stale=True)], SchemaDrift("changed", TABLE, [("other", "text")]))


def test_its_changes_are_passed_over_as_long_as_they_show_stale_columns_alone() -> None:
    decoder = Decoder([replace(TABLE, attributes=(), stale=("id",))])
    images = ("c", None, {"id": 1}), ("u", {"id": 1}, {"id": 2}), ("d", {"id": 2}, None)
    changes = [decoder.decode(record(envelope(letter, "s", "orders", *rows))) for letter, *rows in images]
    assert [(one.before, one.after) for one in changes if isinstance(one, RowChange)] == [
        (None, ()),
        ((), ()),
        ((), None),
    ]
    for row in ({"id": 1, "other": "x"}, {"other": "x"}):
        with pytest.raises(SchemaDrift, match="unknown column 'other'"):
            decoder.decode(record(envelope("c", "s", "orders", None, row)))
    with pytest.raises(SchemaDrift):
        Decoder([replace(TABLE, stale=("gone",))]).decode(record(envelope("c", "s", "orders", None, {"gone": 1})))
