"""Changes of tables with row images: whatever comes as what operation, the last row of each key is what stands."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from hashlib import sha256

from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import RecordError
from service.core.model import NULL_IN_DOUBT, UNAVAILABLE, FeedPosition, Operation, Row, RowChange, Table
from service.core.row_key import row_key
from service.usecases.row_images import Image, complete, wanted_rows
from tests.events import tracked_table

TABLE = replace(
    tracked_table("shop", "orders", {"id": "string", "note": "string", "text": "string"}), key=(0,), row_images=True
)
OTHER = tracked_table("shop", "customers", {"id": "string"})


def change(
    op: str, key: str | None, after: Row | None, offset: int = 0, *, table: Table = TABLE, before: Row | None = None
) -> RowChange:
    at = FeedPosition("orders", 0, offset)
    return RowChange(table, Operation(op), before, after, at, key=None if key is None else (key,))


def kept(*rows: Row) -> dict[Table, dict[bytes, Image]]:
    return {TABLE: {row_key(row[:1]): Image(row) for row in rows}}


def test_a_row_key_is_the_hash_of_the_compact_json_of_its_texts() -> None:
    texts = ['a"b', None, "é", "\n"]
    document = json.dumps(texts, ensure_ascii=False, separators=(",", ":"))
    assert row_key(texts) == sha256(document.encode()).digest()[:16]
    assert document == '["a\\"b",null,"é","\\n"]'


def test_an_update_of_a_kept_row_gets_it_as_its_before_image() -> None:
    done = complete([change("u", "1", ("1", "new", "t"))], kept(("1", "old", "t")), 7)
    (only,) = done.changes
    assert (only.operation, only.before, only.after) == (Operation.UPDATE, ("1", "old", "t"), ("1", "new", "t"))
    assert done.images == {TABLE: {row_key(["1"]): Image(("1", "new", "t"), 7, 0)}}


def test_an_insert_or_a_read_of_a_kept_row_is_an_update() -> None:
    for op in "cr":
        (only,) = complete([change(op, None, ("1", "new", "t"))], kept(("1", "old", "t")), 1).changes
        assert (only.operation, only.before) == (Operation.UPDATE, ("1", "old", "t"))


def test_an_update_of_an_unknown_row_is_an_insert() -> None:
    (only,) = complete([change("u", "1", ("1", "new", "t"))], {}, 1).changes
    assert (only.operation, only.before) == (Operation.CREATE, None)


def test_a_cell_that_was_not_sent_is_that_of_the_kept_row() -> None:
    (only,) = complete([change("u", "1", ("1", "new", UNAVAILABLE))], kept(("1", "old", "long")), 1).changes
    assert only.after == ("1", "new", "long")


def test_a_cell_that_was_not_sent_of_an_unknown_row_is_an_error_with_the_way_out() -> None:
    done = complete([change("u", "1", ("1", "new", UNAVAILABLE), 5)], {}, 1)
    (error,) = done.errors.values()
    assert isinstance(error, RecordError)
    assert "offset 5" in str(error)
    assert "text" in str(error)
    assert "REPLICA IDENTITY FULL" in str(error)
    assert not done.changes
    assert done.images == {TABLE: {}}


def test_a_delete_of_a_row_that_is_not_kept_is_skipped() -> None:
    done = complete([change("d", "1", None)], {}, 1)
    assert not done.changes
    assert not done.errors
    assert [one.reason for one in done.skipped] == ["deletes a row that is not there"]


def test_a_row_moves_when_its_key_changes() -> None:
    done = complete([change("u", "1", ("2", "a", "t"))], kept(("1", "a", "t")), 3)
    (only,) = done.changes
    assert (only.before, only.after) == (("1", "a", "t"), ("2", "a", "t"))
    assert done.images[TABLE] == {
        row_key(["1"]): Image(None, 3, 0),
        row_key(["2"]): Image(("2", "a", "t"), 3, 0),
    }


def test_a_row_that_moves_onto_another_takes_its_place() -> None:
    done = complete([change("u", "1", ("2", "a", "t"))], kept(("1", "a", "t"), ("2", "b", "t")), 3)
    assert [(c.operation, c.before, c.after) for c in done.changes] == [
        (Operation.DELETE, ("2", "b", "t"), None),
        (Operation.UPDATE, ("1", "a", "t"), ("2", "a", "t")),
    ]
    assert done.displaced == 1, "two changes of one record"


def test_the_kept_row_counts_also_where_a_change_brings_a_whole_row_before() -> None:
    sent = change("u", None, ("1", "new", "t"), before=("1", "what the source says", "t"))
    (only,) = complete([sent], kept(("1", "what was counted", "t")), 1).changes
    assert only.before == ("1", "what was counted", "t")


def test_changes_of_tables_without_images_stay_as_they_are() -> None:
    sent = change("u", None, ("2",), table=OTHER, before=("1",))
    done = complete([sent, change("c", None, ("1", "a", "t"))], {}, 1)
    assert done.changes[0] is sent
    assert OTHER not in done.images
    assert wanted_rows([sent]) == {}


def test_a_record_set_aside_is_refused_when_its_row_was_changed_since() -> None:
    at = FeedPosition("orders", 0, 8)
    retried = change("u", "1", ("1", "older", "t"), 8)
    for image in (Image(("1", "a", "t"), 5, 2), Image(None, 5, 2), Image(("1", "a", "t"), 4, 9)):
        done = complete([retried], {TABLE: {row_key(["1"]): image}}, 6, {at: 4})
        assert "overtaken" in str(done.errors[at])
        assert not done.changes


def test_a_record_set_aside_takes_its_own_place_among_the_versions() -> None:
    first, second = change("u", "1", ("1", "x", "t"), 8), change("u", "1", ("1", "y", "t"), 9)
    done = complete([first, second], kept(("1", "a", "t")), 6, {first.position: 4, second.position: 4})
    assert [c.after for c in done.changes] == [("1", "x", "t"), ("1", "y", "t")]
    assert done.images[TABLE][row_key(["1"])] == Image(("1", "y", "t"), 4, 9)


keys = st.sampled_from(["1", "2", "3"])
rows = st.tuples(keys, st.sampled_from(["a", "b"]), st.sampled_from(["t", "u", None]))
steps = st.one_of(
    st.tuples(st.sampled_from("cr"), st.none(), rows),
    st.tuples(st.just("u"), keys, rows),
    st.tuples(st.just("d"), keys, st.none()),
)


@given(st.dictionaries(keys, rows), st.lists(steps, max_size=12), st.integers(0, 12))
def test_the_changes_add_up_to_the_difference_of_the_rows(
    first: dict[str, Row], sent: list[tuple[str, str | None, Row | None]], cut: int
) -> None:
    stands = {row[0]: row for row in first.values()}
    images = kept(*stands.values())
    counted = Counter(stands.values())
    for batch in (sent[:cut], sent[cut:]):
        changes = [change(op, key, after, offset) for offset, (op, key, after) in enumerate(batch)]
        assert {key for table in wanted_rows(changes).values() for key in table} <= {row_key([k]) for k in "123"}
        done = complete(changes, images, 1)
        for one in done.changes:
            counted.update([] if one.after is None else [one.after])
            counted.subtract([] if one.before is None else [one.before])
            assert one.key is None
        images[TABLE].update(done.images.get(TABLE, {}))
    for op, key, after in sent:
        if op in "ud":
            stands.pop(key, None)
        if after is not None:
            stands[after[0]] = after
    assert +counted == Counter(stands.values())
    assert min(counted.values(), default=0) >= 0
    assert {image.cells for image in images[TABLE].values() if image.cells} == set(stands.values())


def test_a_null_in_doubt_is_null_unless_it_would_take_a_kept_value() -> None:
    in_doubt = change("u", "1", ("1", "new", NULL_IN_DOUBT), 5)
    for images in (kept(("1", "old", None)), {}):
        (only,) = complete([in_doubt], images, 1).changes
        assert only.after == ("1", "new", None)
    done = complete([in_doubt], kept(("1", "old", "long")), 1)
    (error,) = done.errors.values()
    assert re.search(r"offset 5: has NULL in text, .* shop.orders REPLICA IDENTITY FULL`.*--replace", str(error))
    assert (done.changes, done.images) == ([], {TABLE: {}})
