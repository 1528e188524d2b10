"""A change of a row's key comes as a delete and a create; the create need not send what did not change."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from service.core.model import UNAVAILABLE, Operation, RawRecord, RowChange
from service.core.row_key import row_key
from service.stream.envelope import Decoder
from service.usecases.row_images import Image, complete, wanted_rows
from tests.decoding import decode_all
from tests.events import envelope, tracked_table

TABLE = replace(tracked_table("s", "accounts", {"id": "integer", "letter": "text"}), key=(0,), row_images=True)
OLD = (("1", "long"), row_key(["1"]))


def halves(with_schema: bool = False) -> list[RowChange]:
    """Decode the two halves of a change of the key 1 to 2, as Debezium sends them."""
    key = {"id": 1}
    wrapped = {"schema": {"type": "struct", "fields": [{"type": "int32", "field": "id"}]}, "payload": key}
    gone = envelope("d", "s", "accounts", {"id": 1, "letter": None}, None)
    come = envelope("c", "s", "accounts", None, {"id": 2, "letter": "__debezium_unavailable_value"})
    records = [
        RawRecord(
            "s.accounts",
            0,
            0,
            orjson.dumps(wrapped if with_schema else key),
            gone,
            0,
            [("__debezium.newkey", b'{"id":2}')],
        ),
        RawRecord("s.accounts", 0, 2, b'{"id":2}', come, 0, [("__debezium.oldkey", orjson.dumps(key))]),
    ]
    changes, skipped, bad = decode_all(Decoder([TABLE]), records)
    assert (skipped, bad) == ([], [])
    return changes


@pytest.mark.parametrize("with_schema", [False, True])
def test_both_halves_name_the_keys_that_the_row_had_and_has(with_schema: bool) -> None:
    for change in halves(with_schema):
        assert (change.key, change.moves) == (("1",), ("2",))


def test_an_ordinary_create_or_delete_moves_nothing() -> None:
    records = [
        RawRecord("s.accounts", 0, 0, b'{"id":1}', envelope("d", "s", "accounts", {"id": 1, "letter": None}, None), 0),
        RawRecord("s.accounts", 0, 1, None, envelope("c", "s", "accounts", None, {"id": 2, "letter": ""}), 0),
    ]
    changes, _, _ = decode_all(Decoder([TABLE]), records)
    assert [change.moves for change in changes] == [None, None]


def test_the_create_takes_what_was_not_sent_from_the_row_that_the_delete_took_away() -> None:
    cells, key = OLD
    gone, come = complete(halves(), {TABLE: {key: Image(cells)}}, 7).changes
    assert (gone.operation, gone.before, gone.after) == (Operation.DELETE, cells, None)
    assert (come.operation, come.before, come.after) == (Operation.CREATE, None, ("2", "long"))


def test_a_batch_may_end_between_the_halves() -> None:
    cells, key = OLD
    first, second = halves()
    kept = complete([first], {TABLE: {key: Image(cells)}}, 7).images[TABLE]
    assert wanted_rows([second])[TABLE] <= kept.keys() | {row_key(["2"])}
    done = complete([second], {TABLE: kept}, 8)
    assert [change.after for change in done.changes] == [("2", "long")]
    assert {image.cells for image in ({**kept, **done.images[TABLE]}).values()} == {None, ("2", "long")}


def test_the_create_may_come_before_the_delete_from_another_partition() -> None:
    cells, key = OLD
    done = complete(halves()[::-1], {TABLE: {key: Image(cells)}}, 7)
    come, gone = done.changes
    assert come.after == ("2", "long")
    assert gone.before == cells
    assert [image.cells for image in done.images[TABLE].values() if image.cells] == [("2", "long")]


def test_a_delete_that_comes_again_takes_nothing_from_the_create() -> None:
    cells, key = OLD
    gone, come = halves()
    done = complete([gone, gone, come], {TABLE: {key: Image(cells)}}, 7)
    assert done.changes[-1].after == ("2", "long")


def test_a_create_that_sends_all_needs_no_row_before() -> None:
    _, come = halves()
    (only,) = complete([replace(come, after=("2", "short"))], {}, 7).changes
    assert (only.operation, only.before, only.after) == (Operation.CREATE, None, ("2", "short"))
    assert complete([come], {}, 7).errors, f"{UNAVAILABLE!r} of a row that nobody has"
