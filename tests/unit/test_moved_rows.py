"""A change of a row's key comes as a delete and a create; the create need not send what did not change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import orjson
import pytest

from service.core.model import Operation, RawRecord, RowChange
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


def in_batches(changes: list[RowChange], images: dict[bytes, Image]) -> tuple[list[RowChange], dict[bytes, Image]]:
    """Complete each change in a batch of its own; give what they became, and the rows that are kept in the end."""
    kept, done = dict(images), []
    for version, change in enumerate(changes, 7):
        wanted = wanted_rows([change])[TABLE]
        now = complete([change], {TABLE: {key: image for key, image in kept.items() if key in wanted}}, version)
        assert not now.errors
        done += now.changes
        kept |= now.images[TABLE]
    return done, {key: image for key, image in kept.items() if image.cells is not None}


def update(key: str, letter: str, offset: int) -> RowChange:
    """Change the letter of a row, as it was not when the key was changed."""
    _, come = halves()
    return replace(
        come, operation=Operation.UPDATE, after=(key, letter), key=(key,), moves=None,
        position=come.position._replace(offset=offset),
    )  # fmt: skip


def test_a_batch_may_end_between_the_halves() -> None:
    cells, key = OLD
    for order in (halves(), halves()[::-1]):
        changes, kept = in_batches(order, {key: Image(cells)})
        assert sorted((one.operation, one.before, one.after) for one in changes) == [
            (Operation.CREATE, None, ("2", "long")),
            (Operation.DELETE, cells, None),
        ]
        assert [image.cells for image in kept.values()] == [("2", "long")]


def test_the_create_may_come_before_the_delete_from_another_partition() -> None:
    cells, key = OLD
    done = complete(halves()[::-1], {TABLE: {key: Image(cells)}}, 7)
    come, gone = done.changes
    assert come.after == ("2", "long")
    assert gone.before == cells
    assert [image.cells for image in done.images[TABLE].values() if image.cells] == [("2", "long")]


@pytest.mark.parametrize("is_known", [True, False], ids=["an older row", "no row"])
@pytest.mark.parametrize("then", [None, "new", "gone"])
def test_what_the_create_did_not_send_is_that_of_the_row_when_it_was_deleted(is_known: bool, then: str | None) -> None:
    """The create is read before what the old key's partition has of the row, its insert maybe; "1" then moves again."""
    gone, come = halves()
    after = [] if then is None else [update("2", then, 9)] if then == "new" else [deleted("2", 9)]
    changes, kept = in_batches(
        [come, *after, update("1", "longer", 1), gone], {OLD[1]: Image(OLD[0])} if is_known else {}
    )
    end = {None: "longer", "new": "new", "gone": None}[then]
    assert [image.cells for image in kept.values()] == ([] if end is None else [("2", end)])
    rows = rows_of(changes, [OLD[0]] if is_known else [])
    assert rows == ([] if end is None else [("2", end)])
    again, still = in_batches([update("1", "other", 20), come, update("1", "last", 21), gone], kept)
    assert [image.cells for image in still.values()] == rows_of(again, rows) == [("2", "last")]


def rows_of(changes: list[RowChange], rows: list[tuple[str | None, ...]]) -> list[tuple[str | None, ...]]:
    """Apply whole images to rows."""
    left = list(rows)
    for change in changes:
        if change.before is not None:
            left.remove(change.before)
        if change.after is not None:
            left.append(change.after)
    return left


def deleted(key: str, offset: int) -> RowChange:
    """Delete a row by its key."""
    gone, _ = halves()
    return replace(gone, key=(key,), moves=None, position=gone.position._replace(offset=offset))


def test_a_create_that_was_set_aside_is_not_overtaken_by_what_has_its_old_key() -> None:
    gone, come = halves()
    kept = complete([update("1", "other", 30)], {TABLE: {OLD[1]: Image(OLD[0])}}, 9).images[TABLE]
    assert not complete([come], {TABLE: kept}, 10, {come.position: 7}).errors
    assert complete([gone], {TABLE: kept}, 10, {gone.position: 7}).errors


def test_a_delete_that_comes_again_takes_nothing_from_the_create() -> None:
    cells, key = OLD
    gone, come = halves()
    done = complete([gone, gone, come], {TABLE: {key: Image(cells)}}, 7)
    assert done.changes[-1].after == ("2", "long")


def test_a_create_that_sends_all_needs_no_row_before() -> None:
    _, come = halves()
    (only,) = complete([replace(come, after=("2", "short"))], {}, 7).changes
    assert (only.operation, only.before, only.after) == (Operation.CREATE, None, ("2", "short"))


def test_what_nobody_has_is_an_error_of_the_half_that_comes_last() -> None:
    for order in (halves(), halves()[::-1]):
        assert [*complete(order, {}, 7).errors] == [order[1].position]


@pytest.mark.parametrize("comes_first", [False, True])
def test_a_row_moved_to_a_key_with_a_text_that_stands_for_null_is_found_again(comes_first: bool) -> None:
    table = replace(
        tracked_table("s", "stock", {"sku": "text", "region": "text", "n": "text"}),
        key=(0, 1),
        row_images=True,
        null_tokens=frozenset({""}),
    )
    old, new = {"sku": "a", "region": "EU"}, {"sku": "a", "region": ""}

    def of(offset: int, letter: str, row: dict[str, str], **headers: dict[str, str]) -> RawRecord:
        key = orjson.dumps({name: row[name] for name in ("sku", "region")})
        images = (row, None) if letter == "d" else (None, row)
        told = [(f"__debezium.{name}", orjson.dumps(one)) for name, one in headers.items()]
        return RawRecord("s.stock", 0, offset, key, envelope(letter, "s", "stock", *images), 0, told)

    gone, come = of(1, "d", {**old, "n": "1"}, newkey=new), of(2, "c", {**new, "n": "1"}, oldkey=old)
    moved = [come, gone] if comes_first else [gone, come]
    behind = [of(3, "u", {**new, "n": "2"}), of(4, "d", {**new, "n": "2"})]
    changes, skipped, bad = decode_all(Decoder([table]), [*moved, *behind])
    assert (skipped, bad) == ([], [])
    kept: dict[bytes, Image] = {row_key(["a", "EU"]): Image(("a", "EU", "1"))}
    counted = Counter([("a", "EU", "1")])
    for version, change in enumerate(changes, 7):
        done = complete([change], {table: kept}, version)
        kept.update(done.images[table])
        counted.update(one.after for one in done.changes if one.after is not None)
        counted.subtract(one.before for one in done.changes if one.before is not None)
    assert not +counted
    assert not -counted
