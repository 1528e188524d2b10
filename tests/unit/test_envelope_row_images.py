"""Say what the decoder makes of changes of tables whose rows the state keeps: a key, and what was sent of the row."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from service.core.cell_decoding import WireSettings
from service.core.errors import RecordError
from service.core.model import (
    NULL_IN_DOUBT,
    UNAVAILABLE,
    Attribute,
    AttributeName,
    DerivedAttribute,
    Operation,
    RowChange,
    Skipped,
    Table,
)
from service.stream.discovery import Discovery
from service.stream.envelope import Decoder
from service.stream.row_images import TableDecoder, may_be_filler, needs_care
from tests.events import envelope, record, tracked_table

ORDERS = replace(
    tracked_table("shop", "orders", {"id": "integer", "part": "integer", "note": "string"}),
    key=(0, 1),
    row_images=True,
)
NOT_SENT = "__debezium_unavailable_value"
ROW = {"id": 7, "part": 1, "note": "paid"}


def change(value: bytes | None, key: object = None) -> RowChange:
    raw = None if key is None else orjson.dumps(key)
    decoded = Decoder([ORDERS]).decode(record(value, key=raw))
    assert isinstance(decoded, RowChange)
    assert decoded.before is None
    return decoded


@pytest.mark.parametrize("op", ["c", "r"])
def test_an_insert_has_the_key_of_its_row(op: str) -> None:
    inserted = change(envelope(op, "shop", "orders", after=ROW))
    assert (inserted.key, inserted.after) == (("7", "1"), ("7", "1", "paid"))


def test_an_update_without_the_row_before_has_the_key_of_its_record() -> None:
    updated = change(envelope("u", "shop", "orders", None, ROW), key={"id": 7, "part": 1})
    assert (updated.key, updated.after) == (("7", "1"), ("7", "1", "paid"))


def test_an_update_that_changes_the_key_has_the_key_before() -> None:
    updated = change(envelope("u", "shop", "orders", {"id": 6, "part": 1, "note": None}, ROW), key={"id": 7, "part": 1})
    assert (updated.key, updated.after) == (("6", "1"), ("7", "1", "paid"))


def test_without_a_key_the_row_after_is_the_row_before() -> None:
    assert change(envelope("u", "shop", "orders", None, ROW)).key == ("7", "1")


def test_a_key_of_other_columns_hides_how_the_row_was_called_before() -> None:
    with pytest.raises(RecordError, match=r"which row of shop.orders.*id, part.*REPLICA IDENTITY FULL"):
        change(envelope("u", "shop", "orders", None, ROW), key={"note": "paid"})
    assert change(envelope("c", "shop", "orders", None, ROW), key={"note": "paid"}).key == ("7", "1")


@pytest.mark.parametrize(
    "before",
    [ROW, {"id": 7, "part": 1}, {"id": 7, "part": 1, "note": None}, {"id": 7, "part": 1, "note": "x", "gone": 2}],
)
def test_a_delete_needs_no_more_than_the_key(before: dict[str, object]) -> None:
    deleted = change(envelope("d", "shop", "orders", before))
    assert (deleted.operation, deleted.key, deleted.after) == (Operation.DELETE, ("7", "1"), None)


@pytest.mark.parametrize("before", [None, {"note": "x"}, {"id": None, "part": None, "note": None}])
def test_a_delete_whose_image_has_no_key_has_that_of_its_record(before: dict[str, object] | None) -> None:
    assert change(envelope("d", "shop", "orders", before), key={"id": 7, "part": 1}).key == ("7", "1")
    wrapped = {"schema": {"type": "struct", "fields": []}, "payload": {"id": 7, "part": 1}}
    assert change(envelope("d", "shop", "orders", before), key=wrapped).key == ("7", "1")


def test_the_key_of_a_record_is_read_by_its_schema() -> None:
    table = replace(tracked_table("shop", "days", {"day": "string"}), key=(0,), row_images=True)
    key = {
        "schema": {"type": "struct", "fields": [{"field": "day", "type": "int32", "name": "io.debezium.time.Date"}]},
        "payload": {"day": 20778},
    }
    deleted = Decoder([table]).decode(record(envelope("d", "shop", "days"), key=orjson.dumps(key)))
    assert isinstance(deleted, RowChange)
    assert deleted.key == ("2026-11-21",)


def test_a_key_of_one_column_may_be_its_cell_alone() -> None:
    table = replace(tracked_table("shop", "codes", {"code": "string"}), key=(0,), row_images=True)
    deleted = Decoder([table]).decode(record(envelope("d", "shop", "codes"), key=b'"x"'))
    assert isinstance(deleted, RowChange)
    assert deleted.key == ("x",)


@pytest.mark.parametrize("code", ["1.10", "1e5", "-0", " 7", "12345678901234567890123", "true", "[1.0]"])
@pytest.mark.parametrize("data_type", ["text", "character varying(30)", "character(30)"])
def test_a_text_that_looks_like_a_number_is_the_key_itself(code: str, data_type: str) -> None:
    """A StringConverter writes it as it is."""
    table = replace(tracked_table("shop", "codes", {"code": data_type, "note": "text"}), key=(0,), row_images=True)
    changed = envelope("u", "shop", "codes", None, {"code": code, "note": "y"})
    for value in (changed, envelope("d", "shop", "codes")):
        decoded = Decoder([table]).decode(record(value, key=code.encode()))
        assert isinstance(decoded, RowChange)
        assert decoded.key == (code,)


def test_a_number_of_more_digits_than_json_readers_keep_is_that_of_its_row() -> None:
    types = {"code": "numeric(30,0)", "note": "text"}
    table = replace(tracked_table("shop", "codes", types), key=(0,), row_images=True)
    code = "12345678901234567890123"
    value = envelope("u", "shop", "codes", None, {"code": code, "note": "y"})
    decoder = Decoder([table], WireSettings(decimal_handling="string"))
    updated = decoder.decode(record(value, key=code.encode()))
    assert isinstance(updated, RowChange)
    assert updated.key == (code,)


@pytest.mark.parametrize("key", [b"no JSON", b"\0\0\0\0\1Avro", b"null", b"[]", b""])
def test_a_key_of_another_kind_says_nothing(key: bytes) -> None:
    sent = record(envelope("u", "shop", "orders", None, ROW), key=key)
    updated = Decoder([ORDERS]).decode(sent)
    assert isinstance(updated, RowChange)
    assert updated.key == ("7", "1")
    (seen,) = Discovery().look([sent]).values()
    assert seen.key_columns == ()


@pytest.mark.parametrize("key", [b"Struct{code=x}", b"null"])
def test_a_key_that_is_not_to_be_read_hides_nothing(key: bytes) -> None:
    table = replace(tracked_table("shop", "codes", {"code": "string", "note": "string"}), key=(0,), row_images=True)
    value = envelope("u", "shop", "codes", None, {"code": "x", "note": "y"})
    updated = Decoder([table]).decode(record(value, key=key))
    assert isinstance(updated, RowChange)
    assert updated.key == ("x",)


def test_what_says_no_row_at_all_is_refused_with_the_way_out() -> None:
    with pytest.raises(RecordError, match=r"which row of shop.orders.*id, part.*REPLICA IDENTITY FULL"):
        change(envelope("d", "shop", "orders", None))
    with pytest.raises(RecordError, match="the key in its record key cannot be read"):
        change(envelope("d", "shop", "orders", None), key={"id": "seven", "part": 1})


def test_a_truncate_has_neither_row_nor_key() -> None:
    truncated = change(envelope("t", "shop", "orders"))
    assert (truncated.after, truncated.key) == (None, None)


def test_a_tombstone_alone_is_no_change() -> None:
    assert isinstance(Decoder([ORDERS]).decode(record(None, key=b'{"id":7,"part":1}')), Skipped)


PLACEHOLDERS = [
    NOT_SENT,
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ",
    NOT_SENT.encode().hex(),
    [NOT_SENT],
    ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="],
    list(NOT_SENT.encode()),
    {NOT_SENT: NOT_SENT},
    orjson.dumps({NOT_SENT: NOT_SENT}).decode(),
]


@pytest.mark.parametrize("placeholder", PLACEHOLDERS)
def test_a_cell_that_was_not_sent_is_unavailable(placeholder: object) -> None:
    updated = change(envelope("u", "shop", "orders", None, {**ROW, "note": placeholder}))
    assert updated.after == ("7", "1", UNAVAILABLE)


@pytest.mark.parametrize("sign", [b"__debezium_unavailable_value", b"\\u0000", b"X19kZWJleml1bV91bmF2"])
def test_one_sign_alone_makes_a_record_be_read_with_care(sign: bytes) -> None:
    assert needs_care(b'{"payload":{"a":"' + sign + b'"}}')
    assert not needs_care(b'{"payload":{"a":"' + sign[1:] + b'"}}')


def test_what_only_looks_like_a_placeholder_is_a_value() -> None:
    for value in (NOT_SENT + "!", [NOT_SENT, "x"], [], {NOT_SENT: "x"}, [95, 95]):
        after = change(envelope("u", "shop", "orders", None, {**ROW, "note": value})).after
        assert after is not None
        assert UNAVAILABLE not in after


@pytest.mark.parametrize(
    ("data_type", "in_doubt"),
    [
        *((kind, True) for kind in ("double precision[]", "numeric(12,3)[]", "timestamp(3) without time zone[]")),
        *((kind, True) for kind in ("vector(3)", "public.halfvec(2)", "geometry(Point,4326)", "mood[]")),
        *((kind, False) for kind in ("text[]", "character varying(10)[]", "bigint[]", "bytea", "jsonb", "integer")),
    ],
)
def test_null_may_be_a_value_that_was_not_sent_where_its_type_has_no_placeholder(
    data_type: str, in_doubt: bool
) -> None:
    table = replace(tracked_table("shop", "cells", {"id": "integer", "cell": data_type}), key=(0,), row_images=True)
    row: dict[str, object] = {"id": 1, "cell": None}

    def after(
        op: str, tracked: Table = table, before: dict[str, object] | None = None, of: str = "postgresql"
    ) -> object:
        decoded = Decoder([tracked]).decode(record(envelope(op, "shop", "cells", before, row, connector=of)))
        assert isinstance(decoded, RowChange)
        return decoded.after

    doubtful = ("1", NULL_IN_DOUBT if in_doubt else None)
    assert (after("u"), after("u", before=row)) == (doubtful, doubtful)
    sure = [after("c"), after("u", of="mysql"), after("u", replace(table, has_full_identity=True))]
    assert [*sure, after("u", before={"id": 1, "cell": "x"})] == [("1", None)] * 4


def test_null_of_a_row_whose_key_changes_may_be_a_value_that_was_not_sent() -> None:
    table = replace(tracked_table("shop", "cells", {"id": "integer", "cell": "real[]"}), key=(0,), row_images=True)
    value = envelope("c", "shop", "cells", None, {"id": 2, "cell": None}, connector="postgresql")
    sent = record(value)._replace(headers=[("__debezium.oldkey", b'{"id":1}')])
    come = Decoder([table]).decode(sent)
    assert isinstance(come, RowChange)
    assert (come.moves, come.after) == (("2",), ("2", NULL_IN_DOUBT))


def test_a_key_that_was_not_sent_is_that_of_the_record() -> None:
    table = replace(tracked_table("shop", "texts", {"name": "string"}), key=(0,), row_images=True)
    value = envelope("u", "shop", "texts", None, {"name": NOT_SENT})
    decoded = Decoder([table]).decode(record(value, key=b'{"name":"long"}'))
    assert isinstance(decoded, RowChange)
    assert decoded.key == ("long",)
    with pytest.raises(RecordError, match="does not say which row"):
        Decoder([table]).decode(record(value, key=orjson.dumps({"name": NOT_SENT})))


@pytest.mark.parametrize(
    ("value", "field", "may_be"),
    [
        (None, {"optional": True}, True),
        (7, {"optional": False}, False),
        (7, {"optional": False, "default": 7}, True),
        (0, {"optional": False}, True),
        (0, {}, True),
        (0, {"optional": True}, False),
        (0, {"optional": True, "default": 1}, True),
        ("", {}, True),
        ("1970-01-01T00:00:00Z", {}, True),
        ("0.00", {}, True),
        ("paid", {}, False),
        ({"scale": 0, "value": "AA=="}, {}, True),
        ({"scale": 0, "value": "AA=="}, {"optional": True}, False),
    ],
)
def test_what_debezium_may_have_filled_in_is_told_by_the_schema(
    value: object, field: dict[str, object], may_be: bool
) -> None:
    assert may_be_filler(value, field) is may_be


@pytest.mark.parametrize(
    ("before", "after", "is_refused"),
    [
        (("7", "1"), ("7", "2"), True),
        (("7", None), ("7", "1"), True),
        (("7", "1"), ("7", None), True),
        (("7", "1"), ("7", "1"), False),
        (("6", None), ("7", None), False),
    ],
    ids=["became another", "came", "went", "stayed", "was never there"],
)
def test_a_tuple_of_which_a_part_is_not_told_is_refused_where_it_changes(
    before: tuple[str, str | None], after: tuple[str, str | None], is_refused: bool
) -> None:
    tuples = Attribute(9, AttributeName("shop", "orders", "(id, part, note)"), 3, "tuple", False)
    decoder = TableDecoder(replace(ORDERS, derived=(DerivedAttribute(tuples, (0, 1, 2)),)))
    images = (*before, UNAVAILABLE), (*after, UNAVAILABLE)
    if is_refused:
        with pytest.raises(RecordError, match=r"'note'.*tuple .*id, part, note.* changes with another"):
            decoder.refuse_half_tuples({2}, *images)
    else:
        decoder.refuse_half_tuples({2}, *images)
