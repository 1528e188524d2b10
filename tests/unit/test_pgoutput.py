"""pgoutput's messages become row changes, whatever the bytes are; the real server's are in the integration tests."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.errors import RecordError
from service.core.model import (
    UNAVAILABLE,
    Attribute,
    AttributeName,
    FeedPosition,
    Operation,
    RawRecord,
    RowChange,
    SchemaDrift,
    Skipped,
    Table,
)
from service.stream import pgoutput_cells
from service.stream.pgoutput import (
    PgoutputDecoder,
    Relation,
    RelationColumn,
    parse_begin,
    parse_commit,
    parse_relation,
    parse_truncate,
    relation_oid,
    renamed_relation,
)
from service.stream.pgoutput_cells import parse_array, text_decoder
from service.stream.postgres_catalog import describe_relation
from tests.canonical_cases import texts
from tests.decoding import decode_all

UNSENT = object()


def relation(*columns: str, key: Sequence[str] = ("id",), identity: str = "f", name: str = "orders") -> bytes:
    body = b"".join(bytes([c in key]) + c.encode() + b"\0" + struct.pack(">Ii", 25, -1) for c in columns)
    head = b"R" + struct.pack(">I", 7) + b"public\0" + name.encode() + b"\0" + identity.encode()
    return head + struct.pack(">H", len(columns)) + body


def row(*cells: object) -> bytes:
    written = b""
    for cell in cells:
        if cell is None:
            written += b"n"
        elif cell is UNSENT:
            written += b"u"
        else:
            text = str(cell).encode()
            written += b"t" + struct.pack(">I", len(text)) + text
    return struct.pack(">H", len(cells)) + written


def message(letter: str, *tuples: tuple[str, bytes]) -> bytes:
    return letter.encode() + struct.pack(">I", 7) + b"".join(mark.encode() + cells for mark, cells in tuples)


def record(value: bytes | None, described: bytes, types: Sequence[str] = ("text", "text")) -> RawRecord:
    transaction = orjson.dumps({"txn_lsn": 99, "first": 5, "ts_ms": 1000, "txId": 42})
    headers = (("relation", described), ("types", orjson.dumps(types)), ("transaction", transaction))
    return RawRecord("slot", 0, 5, None, value, 1000, headers)


def table(row_images: bool = False, insert_only: bool = False, columns: Sequence[str] = ("id", "note")) -> Table:
    attributes = [
        Attribute(i, AttributeName("shop", "orders", column), i, "text", insert_only)
        for i, column in enumerate(columns)
    ]
    wire = (None, "public", "orders")
    key = (0,) if row_images else ()
    return Table("shop", "orders", tuple(attributes), insert_only, 1, "shop", wire, key, row_images)


def decode(value: bytes, *, described: bytes | None = None, of: Table | None = None) -> RowChange | Skipped:
    return PgoutputDecoder([of or table()], "shop").decode(record(value, described or relation("id", "note")))


def test_an_insert_has_its_row_and_its_place() -> None:
    change = decode(message("I", ("N", row("1", None))))
    assert isinstance(change, RowChange)
    assert (change.operation, change.before, change.after) == (Operation.CREATE, None, ("1", None))
    assert change.position == FeedPosition("slot", 0, 5)
    assert change.source_position == {"txn_lsn": 99, "first": 5, "ts_ms": 1000, "txId": 42}


def test_an_update_with_the_whole_old_row_takes_from_it_what_was_not_sent() -> None:
    change = decode(message("U", ("O", row("1", "long")), ("N", row("2", UNSENT))))
    assert isinstance(change, RowChange)
    assert (change.before, change.after) == (("1", "long"), ("2", "long"))


def test_a_delete_with_the_whole_old_row() -> None:
    change = decode(message("D", ("O", row("1", "x"))))
    assert isinstance(change, RowChange)
    assert (change.operation, change.before, change.after) == (Operation.DELETE, ("1", "x"), None)


@pytest.mark.parametrize(
    "value",
    [
        message("U", ("N", row("1", "x"))),
        message("U", ("K", row("1", None)), ("N", row("2", "x"))),
        message("D", ("K", row("1", None))),
    ],
    ids=["update", "key change", "delete"],
)
def test_without_the_old_row_the_statement_is_told_that_mends_it(value: bytes) -> None:
    with pytest.raises(RecordError, match=r"topic slot, partition 0, offset 5: .*REPLICA IDENTITY FULL"):
        decode(value, described=relation("id", "note", identity="d"))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (message("I", ("N", row("1", "x"))), (Operation.CREATE, None, ("1", "x"), ("1",))),
        (message("U", ("N", row("1", UNSENT))), (Operation.UPDATE, None, ("1", UNAVAILABLE), ("1",))),
        (message("U", ("K", row("1", None)), ("N", row("2", "x"))), (Operation.UPDATE, None, ("2", "x"), ("1",))),
        (message("D", ("K", row("1", None))), (Operation.DELETE, None, None, ("1",))),
        (b"T", (Operation.TRUNCATE, None, None, None)),
    ],
    ids=["insert", "unchanged TOAST", "key change", "delete", "truncate"],
)
def test_a_table_whose_rows_are_kept_needs_the_key_alone(value: bytes, expected: object) -> None:
    change = decode(value, described=relation("id", "note", identity="d"), of=table(row_images=True))
    assert isinstance(change, RowChange)
    assert (change.operation, change.before, change.after, change.key) == expected


@pytest.mark.parametrize("value", [message("D", ("K", row(None, "x"))), message("U", ("N", row("1", "x")))])
def test_rows_that_are_kept_by_another_key_than_the_source_tells_are_refused(value: bytes) -> None:
    """An update that leaves the replica identity alone says nothing of the row before."""
    with pytest.raises(RecordError, match=r"tells the old row of shop\.orders by note, but its rows are kept by id"):
        decode(
            value,
            described=relation("id", "note", key=["note"], identity="i"),
            of=table(row_images=True),
        )


def test_columns_are_found_by_name_in_any_order() -> None:
    change = decode(message("I", ("N", row("x", "1"))), described=relation("note", "id"))
    assert isinstance(change, RowChange)
    assert change.after == ("1", "x")


def test_a_change_of_columns_is_told_as_such() -> None:
    with pytest.raises(SchemaDrift, match="has the new column 'extra' and no column 'note' now") as told:
        decode(message("I", ("N", row("1", "x"))), described=relation("id", "extra"))
    assert told.value.added == (("extra", "text"),)
    assert told.value.missing == ("note",)
    assert told.value.source_position["txId"] == 42


def test_a_column_of_another_type_is_told_as_such_unless_its_type_was_never_known() -> None:
    value, described = message("I", ("N", row("1", "x"))), relation("id", "note")
    with pytest.raises(SchemaDrift, match="has another type: 'id' is bigint now") as told:
        PgoutputDecoder([table()]).decode(record(value, described, ["bigint", "text"]))
    assert told.value.retyped == (("id", "bigint"),)
    untyped = replace(table(), attributes=tuple(replace(a, data_type="string") for a in table().attributes))
    decoded = PgoutputDecoder([untyped]).decode(record(value, described, ["bigint", "s.mood"]))
    assert isinstance(decoded, RowChange)


def test_a_column_whose_type_was_dropped_since_is_of_the_type_that_is_known() -> None:
    id_column, note = table().attributes
    of = replace(table(), attributes=(id_column, replace(note, data_type="double precision")))
    value, described = message("I", ("N", row("1", "1e3"))), relation("id", "note")
    change = PgoutputDecoder([of]).decode(record(value, described, ["text", "???"]))
    assert isinstance(change, RowChange)
    assert change.after == ("1", "1000")


def test_drift_has_the_table_and_which_new_columns_are_filled() -> None:
    given_record = record(message("I", ("N", row("1", "x", "y"))), relation("id", "note", "more"), ["text"] * 3)
    followed = table()
    with pytest.raises(SchemaDrift) as told:
        PgoutputDecoder([followed]).decode(given_record)
    assert (told.value.table, told.value.filled) == (followed, None)
    told_filled = given_record._replace(headers=(*given_record.headers, ("filled", b'["more"]')))
    with pytest.raises(SchemaDrift) as told:
        PgoutputDecoder([followed]).decode(told_filled)
    assert (told.value.added, told.value.filled) == ((("more", "text"),), {"more"})


@pytest.mark.parametrize("header", [b"", b"{", b"5", b"null"])
def test_a_transaction_that_cannot_be_read_has_no_place(header: bytes) -> None:
    value = record(message("I", ("N", row("1", "x"))), relation("id", "note"))
    decoder = PgoutputDecoder([table()])
    changed = [("transaction", header) if name == "transaction" else (name, told) for name, told in value.headers]
    for given_record, place in ((value._replace(headers=changed), {}), (value, {"txId": 42})):
        change = decoder.decode(given_record)
        assert isinstance(change, RowChange)
        assert place.items() <= change.source_position.items()
        assert bool(change.source_position) == bool(place)


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (message("I", ("N", row("1"))), "a row of 1 cells for 2 columns"),
        (message("I", ("N", row("1", "x", "y"))), "a row of 3 cells for 2 columns"),
        (message("I", ("N", b"\0\2t\0\0\0\1" + b"1" + b"b")), "a cell of the unknown kind 98"),
        (message("I", ("N", row("1", "xyz")))[:-1], "the message ends inside a cell"),
        (message("X", ("N", row("1", "x"))), "is the message b'X', which is no change of a row"),
        (
            message("U", ("O", row(UNSENT, UNSENT)), ("N", row("1", UNSENT))),
            "not have the value of 'id', 'note', which",
        ),
        (
            message("I", ("N", row(UNSENT, UNSENT))),
            r"'id', 'note', which did not change; .*ALTER TABLE public\.orders",
        ),
    ],
)
def test_a_message_of_another_shape_is_told_with_its_fault(value: bytes, fault: str) -> None:
    with pytest.raises(RecordError, match=fault) as told:
        decode(value)
    assert str(FeedPosition("slot", 0, 5)) in str(told.value)


def test_columns_of_the_identity_and_of_the_key_are_named() -> None:
    of = replace(table(row_images=True, columns=("id", "part", "note", "more")), key=(0, 1))
    described = relation("id", "part", "note", "more", key=["note", "more"], identity="i")
    with pytest.raises(
        RecordError, match=r"by more, note, but its rows are kept by id, part; .*ALTER TABLE public\.orders"
    ):
        PgoutputDecoder([of]).decode(record(message("D", ("K", row(None, None, "x", "y"))), described, ["text"] * 4))


def test_rows_of_more_than_255_columns_are_read() -> None:
    columns = [f"c{number:03}" for number in range(300)]
    value, types = message("I", ("N", row(*columns))), ["text"] * 300
    change = PgoutputDecoder([table(columns=columns)]).decode(record(value, relation(*columns), types))
    assert isinstance(change, RowChange)
    assert (change.after, change.key) == (tuple(columns), None)


def test_what_is_no_change_is_skipped() -> None:
    beat = PgoutputDecoder([table()]).decode(RawRecord("slot", 0, 5, None, None, 0))
    assert beat == Skipped(FeedPosition("slot", 0, 5), "heartbeat")
    other = decode(message("I", ("N", row("1"))), described=relation("id", name="others"))
    assert isinstance(other, Skipped)
    assert other.reason == "table not followed"


def test_tables_of_other_sources_are_not_this_feeds() -> None:
    decoder = PgoutputDecoder([table()], "another")
    assert isinstance(decoder.decode(record(message("I", ("N", row("1", "x"))), relation("id", "note"))), Skipped)


def test_an_insert_only_table_takes_inserts_alone() -> None:
    of = table(insert_only=True)
    assert isinstance(decode(message("I", ("N", row("1", "x"))), of=of), RowChange)
    for value, word in ((message("D", ("O", row("1", "x"))), "a delete"), (b"T", "a truncate"), (b"?", "a change")):
        with pytest.raises(RecordError, match=f"has {word}, but .* declared insert-only"):
            decode(value, of=of)


def test_null_tokens_are_null_in_both_images_and_in_the_key() -> None:
    of = replace(table(), null_tokens=frozenset({"NA"}))
    change = decode(message("U", ("O", row("NA", "x")), ("N", row("1", "NA"))), of=of)
    assert isinstance(change, RowChange)
    assert (change.before, change.after) == ((None, "x"), ("1", None))


def test_a_table_that_is_not_followed_is_refused_where_that_is_asked_for() -> None:
    decoder = PgoutputDecoder([table()], "shop", "refuse")
    with pytest.raises(RecordError, match=r"`subsetd attribute rename OLD public\.others`, else follow without"):
        decoder.decode(record(message("I", ("N", row("1"))), relation("id", name="others"), ["text"]))


@pytest.mark.parametrize(
    ("sent", "stale", "is_refused"),
    [
        (("id", "note"), (), True),
        (("id", "note", "more"), (), True),
        (("id", "left"), ("left",), True),
        (("id",), (), True),
        (("id", "other"), (), False),
    ],
)
def test_a_table_with_the_columns_of_one_that_is_followed_may_have_been_its_partition(
    sent: tuple[str, ...], stale: tuple[str, ...], is_refused: bool
) -> None:
    decoder = PgoutputDecoder([replace(table(), stale=stale)], "shop")
    gone_from = orjson.dumps([["public", "orders"], ["public", "unknown"]])
    one = record(message("I", ("N", row(*sent))), relation(*sent, name="orders_1"), ["text"] * len(sent))
    one = one._replace(headers=(*one.headers, ("gone_from", gone_from)))
    if is_refused:
        with pytest.raises(RecordError, match=r"may have been a partition of shop\.orders until"):
            decoder.decode(one)
    else:
        assert isinstance(decoder.decode(one), Skipped)


def test_the_truncate_of_one_partition_is_refused() -> None:
    with pytest.raises(RecordError, match=r"empties the partition public\.orders_1 of shop\.orders"):
        decode(b"Ppublic.orders_1")


def test_a_cell_that_is_none_of_its_type_is_told_with_its_column() -> None:
    of = table()
    id_column, note = of.attributes
    decoder = PgoutputDecoder([replace(of, attributes=(id_column, replace(note, data_type="double precision")))])
    with pytest.raises(RecordError, match=r"column shop\.orders\.note: .*'wide'"):
        decoder.decode(
            record(message("I", ("N", row("1", "wide"))), relation("id", "note"), ["text", "double precision"])
        )


@given(st.binary(max_size=80), st.sampled_from([b"I", b"U", b"D", b"T", b"P", b""]))
def test_no_bytes_make_it_fail_in_another_way(noise: bytes, letter: bytes) -> None:
    for described in (relation("id", "note"), noise):
        with suppress(RecordError):
            PgoutputDecoder([table()]).decode(record(letter + noise, described))


@given(st.data())
def test_a_message_that_was_cut_or_changed_is_a_record_error_or_a_change(data: st.DataObject) -> None:
    whole = message("U", ("O", row("1", "long")), ("N", row("2", UNSENT)))
    cut = data.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole[: data.draw(st.sampled_from([cut, len(whole)]))])
    if changed:
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    given_record = record(bytes(changed), relation("id", "note"))
    changes, skipped, bad = decode_all(PgoutputDecoder([table()]), [given_record])
    assert len(changes) + len(skipped) + len(bad) == 1
    assert all(change.after is None or len(change.after) == 2 for change in changes)
    assert all("offset 5" in str(one.error) for one in bad)


def test_a_relation_goes_by_another_name() -> None:
    described = parse_relation(renamed_relation(relation("id", "note", name="orders_2026"), "sales", "ord-ers"))
    assert (described.schema, described.name) == ("sales", "ord-ers")
    assert [(c.name, c.is_key) for c in described.columns] == [("id", True), ("note", False)]
    in_catalog = b"R" + struct.pack(">I", 7) + b"\0pg_type\0d\0\0"
    assert parse_relation(renamed_relation(in_catalog, "a", "b")) == Relation(7, "a", "b", "d", ())


def test_messages_are_laid_out_as_the_protocol_says() -> None:
    """Chapter "Logical Replication Message Formats" of Postgres' manual."""
    moment = datetime(2026, 11, 21, 12, 30, 0, 250_999, tzinfo=UTC)
    since = (moment - datetime(2000, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    begun = parse_begin(b"B" + struct.pack(">QqI", 0x16B374D848, since, 0xFFFFFFFE))
    assert begun == (0x16B374D848, int(moment.timestamp() * 1000), 0xFFFFFFFE)
    assert parse_commit(b"C" + struct.pack(">BQQq", 0, 1 << 40, (1 << 40) + 48, since)) == (1 << 40, (1 << 40) + 48)
    assert parse_truncate(b"T" + struct.pack(">IBIII", 3, 2, 16_384, 5, 0xFFFFFFFF)) == (16_384, 5, 0xFFFFFFFF)
    assert relation_oid(message("I", ("N", row("1")))) == 7


def test_a_relation_message_has_names_key_types_and_modifiers() -> None:
    """Only the lowest bit of a column's flags says that it is of the key; no schema stands for pg_catalog."""
    head = b"R" + struct.pack(">I", 65_536) + b"\0orders\0i" + struct.pack(">H", 2)
    columns = b"\x03id\0" + struct.pack(">Ii", 23, -1) + b"\x02n\xc3\xb6te\0" + struct.pack(">Ii", 1043, 14)
    told = (RelationColumn("id", True, 23, -1), RelationColumn("nöte", False, 1043, 14))
    assert parse_relation(head + columns) == Relation(65_536, "pg_catalog", "orders", "i", told)


@pytest.mark.parametrize("texts", [("1", "x" * 300, ""), ("ü", "", "日本"), ("", None, "é" * 200)])
def test_texts_of_all_lengths_and_alphabets_follow_each_other(texts: tuple[str | None, ...]) -> None:
    columns = ("id", "note", "more")
    value = message("U", ("O", row(*texts)), ("N", row(*texts)))
    change = PgoutputDecoder([table(columns=columns)]).decode(record(value, relation(*columns), ["text"] * 3))
    assert isinstance(change, RowChange)
    assert (change.before, change.after) == (texts, texts)


elements = st.none() | texts
nested = st.recursive(
    st.lists(elements, min_size=1, max_size=3), lambda inner: st.lists(inner, min_size=1, max_size=3), max_leaves=9
)


def array_text(value: object) -> str:
    if isinstance(value, list):
        return "{" + ",".join(map(array_text, value)) + "}"
    return "NULL" if value is None else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(nested)
def test_arrays_of_any_texts_are_read_as_they_were_written(value: list[object]) -> None:
    assert parse_array(array_text(value)) == value
    assert parse_array("[0:5]=" + array_text(value)) == value


@pytest.mark.parametrize("text", ["", "{", "{1", "1}", "{1}}", '{"a}', "{1}x", '{a"b"}{'])
def test_what_is_no_array_is_told(text: str) -> None:
    with pytest.raises(RecordError, match="no array"):
        parse_array(text)


@pytest.mark.parametrize(
    ("data_type", "text", "canonical"),
    [
        ("numeric", "1.500", "1.5"),
        ("numeric(10,2)", "-0.00", "0"),
        ("numeric", "100", "100"),
        ("numeric", "0.00", "0"),
        ("numeric", "NaN", "NaN"),
        ("boolean", "t", "true"),
        ("date", "0044-03-15 BC", "-0043-03-15"),
        ("date", "10000-01-01", "+10000-01-01"),
        ("character(3)", "a  ", "a"),
        ("character(4)", "1.50", "1.50"),
        ("boolean", "f", "false"),
        ("bytea", "\\x00ff", "00ff"),
        ("bytea[]", r'{"\\x00ff",NULL}', '["00ff",null]'),
        ("boolean[]", "{t,f,NULL}", "[true,false,null]"),
        ("numeric(5,2)[]", "{1.50,-0.00}", "[1.5,0]"),
        ("text[]", '{a;b,"c,d","NULL"}', '["a;b","c,d","NULL"]'),
        ("numeric(8,0)[]", "{1234}", "[1234]"),
        ("integer[]", "[0:1][1:1]={{1},{NULL}}", "[[1],[null]]"),
        ("box[]", "{(1,1),(0,0);(2,2),(1,1)}", '["(1,1),(0,0)","(2,2),(1,1)"]'),
    ],
)
def test_texts_of_types_that_are_more_than_their_text(data_type: str, text: str, canonical: str) -> None:
    decode_text = text_decoder(data_type)
    assert decode_text is not None
    assert decode_text(text) == canonical


@pytest.mark.parametrize(
    ("data_type", "written"),
    [
        ("date", {"2026-11-22": "2026-11-22"}),
        ("numeric(10,2)", {"7": "7", "100": "100", "1.50": "1.5", "-1.00": "-1", "0.00": "0", "-0.10": "-0.1"}),
        ("boolean", {"t": "true", "f": "false"}),
    ],
)
def test_the_plain_texts_of_a_type_are_read_without_the_decoder_of_all_texts(
    monkeypatch: pytest.MonkeyPatch, data_type: str, written: dict[str, str]
) -> None:
    def asked(text: object) -> str:
        raise AssertionError(f"{text!r} took the long way")

    monkeypatch.setattr(pgoutput_cells, "cell_decoder", lambda *_: asked)
    decode_text = text_decoder(data_type)
    assert decode_text is not None
    assert {text: decode_text(text) for text in written} == written


@pytest.mark.parametrize("data_type", ["integer", "character varying(20)", "uuid", "bit(3)", "bit varying(5)", "TEXT"])
def test_texts_of_other_types_stay_as_they_are(data_type: str) -> None:
    assert text_decoder(data_type) is None


def test_a_backslash_stands_before_any_character() -> None:
    assert parse_array('{"a\\\nb","\\"c\\\\",d\ne}') == ["a\nb", '"c\\', "d\ne"]


def test_a_long_text_that_is_no_array_is_told_by_its_beginning() -> None:
    with pytest.raises(RecordError, match=f"^'{'x' * 80}' is no array"):
        parse_array("x" * 200)


class Catalog:
    """Answer what a feed asks of a catalog in which the table has these columns without a default."""

    def __init__(self, *unfilled: str) -> None:
        self._unfilled = unfilled
        self._rows: list[tuple[object, ...]] = []

    def execute(self, statement: str, values: object = ()) -> None:
        told = {"resolved": [("text",)] * 3, "pg_attribute": [(name,) for name in self._unfilled]}
        self._rows = next((rows for word, rows in told.items() if word in statement), [])

    def fetchall(self) -> list[tuple[object, ...]]:
        return self._rows

    def fetchone(self) -> tuple[object, ...] | None:
        return next(iter(self._rows), None)


@pytest.mark.parametrize(
    ("unfilled", "filled"),
    [(("id", "note", "more"), []), (("id", "note"), ["more"]), (("id", "note", "new_name"), ["more"]), ((), None)],
)
def test_older_rows_may_have_a_value_of_a_column_unless_the_catalog_knows_that_it_has_none(
    unfilled: Sequence[str], filled: list[str] | None
) -> None:
    """The catalog is of now: a column that was dropped or renamed behind the change may have had a default."""
    described = describe_relation(Catalog(*unfilled), relation("id", "note", "more"), "subsetd_s", {})
    told = orjson.loads(dict(described.headers)["filled"])
    assert told == (["id", "note", "more"] if filled is None else filled)
