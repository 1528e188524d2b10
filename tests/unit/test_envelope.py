"""Say what the decoder makes of change envelopes: rows in canonical texts, records to skip, records to refuse."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from service.core.errors import RecordError
from service.core.model import FeedPosition, Operation, RowChange, Skipped
from service.stream.envelope import Decoder
from tests.decoding import decode_all
from tests.events import envelope, record, tracked_table

ORDERS = tracked_table("shop", "orders", {"id": "integer", "customer": "string", "note": "string"})
TEXTS = tracked_table("shop", "texts", {"a": "string", "b": "string"})
ONE_COLUMN = tracked_table("shop", "codes", {"code": "string"})
EVENTS = tracked_table("shop", "events", {"id": "integer"}, insert_only=True)

ROW = {"id": 7, "customer": "Ann", "note": None}
LATER = {"id": 7, "customer": "Ann", "note": "paid"}


def decoder() -> Decoder:
    return Decoder([ORDERS, TEXTS, ONE_COLUMN, EVENTS])


def decode(value: bytes | None, topic: str = "shop", key: bytes | None = None) -> RowChange | Skipped:
    return decoder().decode(record(value, offset=41, topic=topic, key=key))


def change(value: bytes | None, topic: str = "shop", key: bytes | None = None) -> RowChange:
    decoded = decode(value, topic, key)
    assert isinstance(decoded, RowChange)
    return decoded


def refusal(value: bytes | None, topic: str = "shop", key: bytes | None = None) -> str:
    with pytest.raises(RecordError) as caught:
        decode(value, topic, key)
    message = str(caught.value)
    place = f"topic {topic}, partition 0, offset 41: "
    assert message.startswith(place)
    return message.removeprefix(place)


# Rows


def test_an_insert_has_a_row_after() -> None:
    assert change(envelope("c", "shop", "orders", after=ROW, ts_ms=5, lsn=9, txId=3)) == RowChange(
        ORDERS,
        Operation.CREATE,
        None,
        ("7", "Ann", None),
        FeedPosition("shop", 0, 41),
        {"ts_ms": 5, "lsn": 9, "txId": 3},
    )


def test_an_update_has_both_rows_and_a_delete_the_row_before() -> None:
    updated = change(envelope("u", "shop", "orders", ROW, LATER))
    assert (updated.before, updated.after) == (("7", "Ann", None), ("7", "Ann", "paid"))
    deleted = change(envelope("d", "shop", "orders", LATER))
    assert (deleted.before, deleted.after) == (("7", "Ann", "paid"), None)


def test_null_tokens_of_a_source_are_compared_with_canonical_texts() -> None:
    tokens = replace(ORDERS, null_tokens=frozenset({"7", "N/A", ""}))
    before, after = {**ROW, "customer": "N/A"}, {"id": 77, "customer": "Ann", "note": ""}
    records = [record(envelope("u", "shop", "orders", before, after)), record(envelope("d", "shop", "orders", LATER))]
    (updated, deleted), _, _ = decode_all(Decoder([tokens]), records)
    assert (updated.before, updated.after) == ((None, None, None), ("77", "Ann", None))
    assert (deleted.before, deleted.after) == ((None, "Ann", "paid"), None)


def test_a_snapshot_row_is_read_and_a_truncate_has_no_rows() -> None:
    assert change(envelope("r", "shop", "orders", after=ROW)).operation is Operation.READ
    truncated = change(envelope("t", "shop", "orders"))
    assert (truncated.operation, truncated.before, truncated.after) == (Operation.TRUNCATE, None, None)


def test_cells_come_in_the_order_of_the_attributes_whatever_the_order_in_the_record() -> None:
    assert change(envelope("c", "shop", "texts", after={"b": "2", "a": "1"})).after == ("1", "2")


def test_a_table_of_texts_takes_numbers_by_the_number_rule() -> None:
    assert change(envelope("c", "shop", "texts", after={"a": 1.50, "b": True})).after == ("1.5", "true")


def test_a_table_may_have_one_column() -> None:
    assert change(envelope("c", "shop", "codes", after={"code": "x"})).after == ("x",)


def test_an_empty_text_is_a_value() -> None:
    assert change(envelope("c", "shop", "codes", after={"code": ""})).after == ("",)


def test_the_transaction_is_part_of_the_source_position() -> None:
    document = orjson.loads(envelope("c", "shop", "codes", after={"code": "x"}))
    document["transaction"] = {"id": "760:243", "total_order": 2, "data_collection_order": 1}
    position = change(orjson.dumps(document)).source_position
    assert position == {"ts_ms": 0, "transaction_id": "760:243", "total_order": 2}


# Names of tables


def test_a_database_without_schemas_names_its_table_by_the_database() -> None:
    document = orjson.loads(envelope("c", "shop", "codes", after={"code": "x"}))
    document["source"] = {"db": "shop", "table": "codes"}
    assert change(orjson.dumps(document)).table is ONE_COLUMN


@pytest.mark.parametrize("source", [None, {}, {"table": "codes"}, {"schema": "shop"}, {"schema": "", "table": ""}])
def test_what_the_source_does_not_name_the_topic_names(source: dict[str, str] | None) -> None:
    document = {"op": "c", "before": None, "after": {"code": "x"}, "source": source}
    assert change(orjson.dumps(document), topic="server1.shop.codes").table is ONE_COLUMN


@pytest.mark.parametrize("topic", ["changes", "/data/shop.codes"])
def test_a_record_that_names_no_table_is_refused(topic: str) -> None:
    document = {"op": "c", "before": None, "after": {"code": "x"}}
    assert "does not name its table" in refusal(orjson.dumps(document), topic)


def test_an_unknown_table_is_refused() -> None:
    assert refusal(envelope("c", "shop", "nope", after={})) == (
        "changes table 'shop.nope', which is not tracked; bootstrap it, or leave its topic out of the feed"
    )


# Records that change nothing


@pytest.mark.parametrize(
    ("value", "topic", "reason"),
    [
        (None, "shop", "tombstone"),
        (b'{"schema":{"type":"struct"},"payload":null}', "shop", "tombstone"),
        (b'{"op":"m","message":{"prefix":"app","content":"aGVsbG8="}}', "shop", "logical message"),
        (b'{"ts_ms":1795250942046}', "shop", "heartbeat"),
        (b'{"ts_ms":1,"more":2}', "__debezium-heartbeat.shop", "heartbeat"),
        (b'{"status":"BEGIN","id":"760:1","event_count":null,"data_collections":null}', "shop", "transaction BEGIN"),
        (b'{"status":"END","id":"760:1","event_count":3,"data_collections":[]}', "shop", "transaction END"),
        (b'{"source":{},"databaseName":"shop","ddl":"ALTER TABLE x","tableChanges":[]}', "shop", "schema change"),
    ],
)
def test_what_comes_beside_changes_is_skipped_with_a_reason(value: bytes | None, topic: str, reason: str) -> None:
    skipped = decode(value, topic)
    assert isinstance(skipped, Skipped)
    assert (skipped.position, skipped.reason) == (FeedPosition(topic, 0, 41), reason)


# Records that are refused


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{", "is not JSON"),
        (b'{"op":"c","after":{"code":"\\ud800"}}', "is not JSON"),
        (b'{"op":"c","after":NaN}', "is not JSON"),
        (b"[1]", "is no change envelope but [1]"),
        (b'"c"', "is no change envelope but 'c'"),
        (b"{}", "has no op"),
        (b'{"id":7,"customer":"Ann","note":null}', "ExtractNewRecordState"),
        (b'{"op":"x"}', "has the unknown op 'x'"),
        (b'{"op":null}', "has the unknown op None"),
        (b'{"op":["c"]}', "has the unknown op ['c']"),
        (b'{"op":"c","source":"shop"}', "its source is no object but 'shop'"),
        (b'{"op":"c","source":{"schema":1,"table":"codes"}}', "which are no texts"),
    ],
)
def test_what_is_no_envelope_is_refused(value: bytes, fault: str) -> None:
    assert fault in refusal(value)


@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_an_image_after_is_needed(op: str) -> None:
    assert f"has op {op} without an after-image" in refusal(envelope(op, "shop", "orders", ROW if op == "u" else None))


@pytest.mark.parametrize(
    ("op", "before", "after", "fault"),
    [
        ("c", ROW, ROW, "has op c with before: {'id': 7, 'customer': 'Ann', 'note': None}; expected null"),
        ("d", ROW, ROW, "has op d with after"),
        ("t", None, ROW, "has op t with after"),
    ],
)
def test_an_image_too_many_is_refused(op: str, before: dict[str, object], after: dict[str, object], fault: str) -> None:
    assert fault in refusal(envelope(op, "shop", "orders", before, after))


def test_images_must_be_rows() -> None:
    assert "has op c with after: [1]; expected a row" in refusal(
        b'{"op":"c","source":{"schema":"shop","table":"codes"},"after":[1]}'
    )


def test_an_unknown_column_is_refused() -> None:
    assert refusal(envelope("c", "shop", "texts", after={"a": "1", "b": "2", "c": "3"})) == (
        "its after-image of shop.texts has the unknown column 'c'; if columns were added, dropped or renamed, "
        "bootstrap again with --replace"
    )


def test_a_missing_column_is_refused() -> None:
    assert "its after-image of shop.texts lacks 'b' (send all columns)" in refusal(
        envelope("c", "shop", "texts", after={"a": "1"})
    )


def test_a_cell_that_is_not_of_its_type_is_refused_by_its_column() -> None:
    message = refusal(envelope("c", "shop", "orders", after={**ROW, "id": "seven"}))
    assert "its after-image of shop.orders, column 'id' of type integer: " in message
    assert "seven" in message


def test_a_nul_character_is_refused_by_its_column() -> None:
    assert "has a NUL character in column 'b'" in refusal(envelope("c", "shop", "texts", after={"a": "1", "b": "x\0"}))


@pytest.mark.parametrize("source", [{"ts_ms": -1}, {"ts_ms": 2**63}, {"ts_ms": "now"}, {"lsn": [1]}, {"file": "a\0b"}])
def test_a_source_position_that_the_state_cannot_hold_is_refused(source: dict[str, object]) -> None:
    assert f"its source says {next(iter(source))}" in refusal(
        envelope("c", "shop", "codes", after={"code": "x"}, **source)
    )


@pytest.mark.parametrize("op", ["u", "d", "t"])
def test_an_insert_only_source_takes_inserts_alone(op: str) -> None:
    assert isinstance(decode(envelope("c", "shop", "events", after={"id": 1})), RowChange)
    assert f"has op {op}, but the source of shop.events was declared insert-only" in refusal(
        envelope(op, "shop", "events", {"id": 1} if op in "ud" else None, {"id": 2} if op == "u" else None)
    )


def test_a_message_never_holds_a_nul_character_and_never_grows_without_bound() -> None:
    with pytest.raises(RecordError) as caught:
        decode(envelope("c", "shop", "codes", after={"x" * 10_000: 1, "\0": 2}), topic="shop")
    assert "\0" not in str(caught.value)
    assert len(str(caught.value)) < 2_200


# Replica identity


@pytest.mark.parametrize(("op", "before"), [("u", None), ("d", None), ("u", {"id": 7}), ("d", {"id": 7})])
def test_without_the_row_before_the_statement_that_mends_it_is_named(op: str, before: dict[str, object] | None) -> None:
    message = refusal(envelope(op, "shop", "orders", before, LATER if op == "u" else None))
    assert f"has op {op} without the row before" in message
    assert message.endswith("ALTER TABLE shop.orders REPLICA IDENTITY FULL")


def test_what_shows_no_value_may_be_told_of_a_table_whose_values_are_not_kept() -> None:
    with pytest.raises(RecordError) as caught:
        decode(envelope("u", "shop", "orders", after=ROW))
    assert str(caught.value.without_values).startswith("has op u without the row before; ")
    with pytest.raises(RecordError) as caught:
        decode(envelope("c", "shop", "orders", after={**ROW, "id": "seven"}))
    of_cell = "its after-image of shop.orders, column 'id': a value is no integer"
    assert caught.value.without_values == of_cell


def test_names_in_the_statement_are_quoted_where_postgres_needs_it() -> None:
    table = tracked_table("Shop", 'or"ders', {"id": "integer"})
    with pytest.raises(RecordError, match=r'ALTER TABLE "Shop"\."or""ders" REPLICA IDENTITY FULL'):
        Decoder([table]).decode(record(envelope("d", "Shop", 'or"ders')))


def test_a_table_of_a_qualified_source_is_named_in_the_statement_as_it_is_called_there() -> None:
    table = replace(tracked_table("south.public", "items", {"id": "integer"}), wire=(None, "public", "items"))
    with pytest.raises(RecordError, match=r"ALTER TABLE public\.items REPLICA IDENTITY FULL"):
        Decoder([table]).decode(record(envelope("d", "public", "items")))


KEY = b'{"id":7}'
KEY_ALONE = envelope("d", "shop", "orders", {"id": 7, "customer": None, "note": None}, connector="postgresql")


def test_a_postgres_delete_of_nothing_but_its_key_is_refused() -> None:
    assert "of which only the key is known (id)" in refusal(KEY_ALONE, key=KEY)
    wrapped = b'{"schema":{"type":"struct"},"payload":{"id":7}}'
    assert "of which only the key is known (id)" in refusal(KEY_ALONE, key=wrapped)


def test_such_a_delete_is_whole_where_the_table_is_known_to_send_whole_rows() -> None:
    whole = Decoder([replace(ORDERS, has_full_identity=True)])
    assert isinstance(whole.decode(record(KEY_ALONE, key=KEY)), RowChange)


def test_such_a_delete_is_whole_after_a_whole_row_was_seen() -> None:
    seen = decoder()
    seen.decode(record(envelope("d", "shop", "orders", LATER, connector="postgresql"), key=KEY))
    assert isinstance(seen.decode(record(KEY_ALONE, key=KEY)), RowChange)


@pytest.mark.parametrize(
    ("cell", "field", "is_whole"),
    [
        *((cell, None, False) for cell in ("", 0, 0.0, False, [], {}, {"x": 0.0, "y": 0.0}, "0.00", "AA==", "{}")),
        *((cell, None, False) for cell in ("1970-01-01T00:00:00Z", "00:00:00Z", "P0Y0M0DT0H0M0S")),
        *((cell, None, True) for cell in ("a", 1, True, [0], "1", "10:00:00Z")),
        ("", {"optional": True}, True),
        (0, {"optional": False}, False),
        ("x", {"optional": False}, True),
        ("new", {"optional": False, "default": "new"}, False),
        ("new", {"optional": True, "default": "new"}, False),
    ],
)
def test_what_debezium_fills_into_columns_that_are_not_null_shows_no_whole_row(
    cell: object, field: dict[str, object] | None, is_whole: bool
) -> None:
    table = tracked_table("shop", "orders", {"id": "integer", "customer": "string", "note": "string"})
    sent = envelope("d", "shop", "orders", {"id": 7, "customer": cell, "note": None}, connector="postgresql")
    if field is not None:
        columns = [{"field": "id"}, {"field": "customer", **field}, {"field": "note", "optional": True}]
        schema = {"type": "struct", "fields": [{"field": "before", "type": "struct", "fields": columns}]}
        sent = orjson.dumps({"schema": schema, "payload": orjson.loads(sent)})
    if is_whole:
        assert isinstance(Decoder([table]).decode(record(sent, key=KEY)), RowChange)
    else:
        with pytest.raises(RecordError, match=r"only the key is known \(id\), or all else was NULL, a default"):
            Decoder([table]).decode(record(sent, key=KEY))


@pytest.mark.parametrize("key", [None, b"null", b"not json", b'{"id":7,"customer":"a","note":"b"}'])
def test_a_delete_is_taken_as_it_is_where_its_key_tells_nothing(key: bytes | None) -> None:
    assert change(KEY_ALONE, key=key).before == ("7", None, None)


# Values that were not sent

UNAVAILABLE = "__debezium_unavailable_value"


def test_an_unchanged_large_value_is_the_value_before() -> None:
    updated = change(envelope("u", "shop", "orders", LATER, {**LATER, "customer": "Bob", "note": UNAVAILABLE}))
    assert (updated.before, updated.after) == (("7", "Ann", "paid"), ("7", "Bob", "paid"))


def test_a_value_that_neither_row_holds_makes_no_difference() -> None:
    updated = change(
        envelope("u", "shop", "orders", {**ROW, "note": UNAVAILABLE}, {**ROW, "customer": "Bob", "note": UNAVAILABLE})
    )
    assert (updated.before, updated.after) == (("7", "Ann", None), ("7", "Bob", None))


@pytest.mark.parametrize(
    ("op", "before", "after"),
    [
        ("c", None, {**ROW, "note": UNAVAILABLE}),
        ("d", {**ROW, "note": UNAVAILABLE}, None),
        ("u", {**ROW, "note": UNAVAILABLE}, LATER),
        ("c", None, {**ROW, "note": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}),
        ("c", None, {**ROW, "note": UNAVAILABLE.encode().hex()}),
        ("c", None, {**ROW, "note": [UNAVAILABLE]}),
    ],
)
def test_a_value_that_is_needed_and_was_not_sent_is_refused(
    op: str, before: dict[str, object] | None, after: dict[str, object] | None
) -> None:
    message = refusal(envelope(op, "shop", "orders", before, after))
    assert "does not hold the value of 'note'" in message
    assert message.endswith("ALTER TABLE shop.orders REPLICA IDENTITY FULL")


# Batches


def test_a_batch_is_sorted_into_changes_skipped_and_bad_records() -> None:
    good, bad = record(envelope("c", "shop", "codes", after={"code": "x"}), 0), record(b"{", 2)
    changes, skipped, refused = decode_all(decoder(), [good, record(None, 1), bad, good._replace(offset=3)])
    assert [c.position.offset for c in changes] == [0, 3]
    assert [s.position.offset for s in skipped] == [1]
    assert [(b.record, "offset 2" in str(b.error)) for b in refused] == [(bad, True)]


def test_a_name_that_no_column_can_have_is_no_new_column() -> None:
    value = envelope("c", "shop", "orders", None, {"id": 1, "customer": "", "note": "", "a\0b": 1})
    (bad,) = decode_all(decoder(), [record(value)])[2]
    assert type(bad.error) is RecordError
    assert "NUL character in the name of a column ('a\\x00b')" in str(bad.error)
