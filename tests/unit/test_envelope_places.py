"""Say what an envelope tells besides its row: place in the source, drift with its types, what is no change, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from service.core.errors import LONGEST_MESSAGE, RecordError
from service.core.model import Operation, RowChange, SchemaDrift, Skipped, TransactionMark
from service.stream.envelope import Decoder
from tests.events import envelope, record, tracked_table

ORDERS = tracked_table("shop", "orders", {"id": "integer", "note": "text"})
KEPT = replace(ORDERS, key=(0,), row_images=True)
ROW = {"id": 7, "note": "x"}


def decode(value: object, table: Any = ORDERS, topic: str = "server.shop.orders") -> RowChange | Skipped:
    raw = value if isinstance(value, bytes) else orjson.dumps(value)
    return Decoder([table]).decode(record(raw, topic=topic))


def with_schema(value: bytes, **fields: dict[str, Any]) -> bytes:
    row = {"type": "struct", "fields": [{"field": name, **field} for name, field in fields.items()]}
    schema = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}]}
    return orjson.dumps({"schema": schema, "payload": orjson.loads(value)})


def test_drift_has_the_types_of_new_columns_which_of_them_are_filled_and_the_place() -> None:
    after = {**ROW, "a": 1, "b": 1.5, "c": None, "d": "x"}
    value = with_schema(
        envelope("c", "shop", "orders", None, after, lsn=5),
        id={"type": "int32", "optional": False},
        note={"type": "string", "optional": True},
        a={"type": "int64", "optional": False},
        b={"type": "double", "optional": True, "default": 1.5},
        c={"type": "boolean", "optional": True},
        d={"type": "string"},
    )
    for table in (ORDERS, KEPT):
        with pytest.raises(
            SchemaDrift, match=r"its after-image of shop\.orders has the unknown column 'a', 'b', 'c', 'd'"
        ) as told:
            decode(value, table)
        drift = told.value
        assert drift.added == (("a", "bigint"), ("b", "double precision"), ("c", "boolean"), ("d", "text"))
        assert drift.filled == {"a", "b", "d"}
        assert drift.missing == ()
        assert drift.source_position == {"ts_ms": 0, "lsn": 5}
        assert drift.table is table


def test_a_schema_that_shows_another_type_is_drift_but_for_a_truncate() -> None:
    fields = {"id": {"type": "int64"}, "note": {"type": "string"}}
    for op, before, after in (("c", None, ROW), ("u", ROW, ROW), ("d", ROW, None)):
        with pytest.raises(
            SchemaDrift, match=r"its schema shows another type in shop\.orders: 'id' is bigint$"
        ) as told:
            decode(with_schema(envelope(op, "shop", "orders", before, after), **fields))
        assert told.value.retyped == (("id", "bigint"),)
        assert told.value.added == told.value.missing == ()
    emptied = decode(with_schema(envelope("t", "shop", "orders"), **fields))
    assert isinstance(emptied, RowChange)
    assert (emptied.operation, emptied.before, emptied.after) == (Operation.TRUNCATE, None, None)


def test_a_deleted_row_with_a_renamed_key_is_drift_with_the_new_name_s_type() -> None:
    value = with_schema(
        envelope("d", "shop", "orders", {"number": 7, "note": "x"}, None),
        number={"type": "int64"},
        note={"type": "string"},
    )
    with pytest.raises(SchemaDrift, match=r"its before-image of shop\.orders lacks 'id' ") as told:
        decode(value, KEPT)
    assert (told.value.added, told.value.missing) == ((("number", "bigint"),), ("id",))
    with pytest.raises(SchemaDrift) as told:
        decode(envelope("d", "shop", "orders", {"number": 7, "note": "x"}, None), KEPT)
    assert told.value.added == (("number", "string"),)


def test_a_fault_in_an_image_is_told_with_its_side() -> None:
    wrong = {**ROW, "id": "x"}
    with pytest.raises(RecordError, match=r"its before-image of shop\.orders, column 'id' of type integer"):
        decode(envelope("u", "shop", "orders", wrong, ROW))
    with pytest.raises(RecordError, match=r"its after-image of shop\.orders, column 'id' of type integer"):
        decode(envelope("u", "shop", "orders", ROW, wrong))
    deleted = envelope("d", "shop", "orders", {"id": 7, "other": 1}, None, connector="mysql")
    with pytest.raises(SchemaDrift, match=r"its before-image of shop\.orders lacks 'note' "):
        decode(deleted)


def test_a_fault_beside_a_cell_that_was_not_sent_is_told_with_its_side() -> None:
    after = {"id": "x", "note": "__debezium_unavailable_value"}
    with pytest.raises(RecordError, match=r"its after-image of shop\.orders, column 'id' of type integer"):
        decode(envelope("u", "shop", "orders", ROW, after))


def test_ten_of_many_new_columns_are_named() -> None:
    more = {f"c{number:02}": number for number in range(12)}
    with pytest.raises(SchemaDrift, match="'c08', 'c09'; if columns were added"):
        decode(envelope("c", "shop", "orders", None, {**ROW, **more}))


def test_a_key_alone_does_not_make_a_table_one_whose_rows_are_kept() -> None:
    with pytest.raises(RecordError, match="has op u without the row before"):
        decode(envelope("u", "shop", "orders", None, ROW), replace(ORDERS, key=(0,)))


def test_a_delete_that_may_be_a_key_alone_names_the_key() -> None:
    table = tracked_table("shop", "orders", {"id": "integer", "part": "integer", "note": "text"})
    value = envelope("d", "shop", "orders", {"id": 1, "part": 2, "note": None}, None, connector="postgresql")
    with pytest.raises(RecordError, match=r"only the key is known \(id, part\)"):
        Decoder([table]).decode(record(value, key=orjson.dumps({"part": 2, "id": 1})))


def test_documents_that_python_calls_equal_are_read_each_for_itself() -> None:
    table = tracked_table("shop", "orders", {"id": "integer", "doc": "jsonb"})
    change = decode(envelope("u", "shop", "orders", {"id": 1, "doc": {"a": True}}, {"id": 1, "doc": {"a": 1}}), table)
    assert isinstance(change, RowChange)
    assert (change.before, change.after) == (("1", '{"a":true}'), ("1", '{"a":1}'))


def test_stale_columns_are_passed_over() -> None:
    stale = replace(ORDERS, stale=("old", "older"))
    change = decode(envelope("u", "shop", "orders", {**ROW, "old": 1}, {**ROW, "older": 2, "old": None}), stale)
    assert isinstance(change, RowChange)
    assert (change.before, change.after) == (("7", "x"), ("7", "x"))


def test_an_envelope_is_one_whatever_else_it_has() -> None:
    value = {**orjson.loads(envelope("c", "shop", "orders", None, ROW)), "__op": "d", "__deleted": "true"}
    change = decode(value)
    assert isinstance(change, RowChange)
    assert (change.operation, change.after) == (Operation.CREATE, ("7", "x"))


@pytest.mark.parametrize("topic", ["shop.orders", "server.shop.orders", "a.b.shop.orders"])
def test_a_topic_names_the_table_by_its_last_two_parts(topic: str) -> None:
    change = decode({"op": "c", "after": ROW, "before": None}, topic=topic)
    assert isinstance(change, RowChange)
    assert change.table is ORDERS
    for nameless in ("orders", "/shop.orders"):
        with pytest.raises(RecordError, match="does not name its table"):
            decode({"op": "c", "after": ROW, "before": None}, topic=nameless)


def test_the_two_halves_of_a_key_change_in_mysql_have_rising_marks() -> None:
    place = {"connector": "mysql", "file": "binlog.000012", "pos": 40, "row": 3}
    marks = []
    for op, before, after in (("d", ROW, None), ("c", None, ROW)):
        change = decode(envelope(op, "shop", "orders", before, after, **place))
        assert isinstance(change, RowChange)
        marks.append(change.source_position["mark"])
    assert marks == [[12, 40, 3, 0], [12, 40, 3, 1]]


def test_what_debezium_sends_beside_changes_says_what_it_is() -> None:
    ended = {"status": "END", "id": 5, "data_collections": [{"data_collection": "s.a", "event_count": 2}]}
    mark = decode(ended)
    assert isinstance(mark, TransactionMark)
    assert (mark.reason, mark.transaction_id, mark.counts) == ("transaction END", "5", {"s.a": 2})
    for value in ({"tableChanges": []}, {"ddl": "x"}):
        assert decode(value) == Skipped(mark.position, "schema change")
    for counts in ([{"event_count": "2"}], ["x"], None):
        told = decode({**ended, "data_collections": counts})
        assert isinstance(told, TransactionMark)
        assert told.counts is None
    with pytest.raises(RecordError, match="has no op"):
        decode({"status": "DONE", "id": 5})


def test_a_message_has_its_longest_length_and_no_more() -> None:
    fault = len("changes table 'shop.', which is not tracked; bootstrap it, or leave its topic out of the feed")
    at = len("topic shop, partition 0, offset 0: ")
    for more in (0, 1, 500):
        name = "n" * (LONGEST_MESSAGE - fault + more)
        with pytest.raises(RecordError) as told:
            decode(envelope("c", "shop", name, None, ROW), topic="shop")
        assert len(str(told.value)) == at + LONGEST_MESSAGE + (3 if more else 0)
        assert str(told.value).endswith("...") == bool(more)


def test_avro_without_a_registry_is_told_with_an_example() -> None:
    with pytest.raises(RecordError, match=r"by SUBSETD_SCHEMA_REGISTRY=http://host:port$"):
        decode(b"\0\0\0\0\1x")
