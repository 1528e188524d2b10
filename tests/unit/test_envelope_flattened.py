"""Say which flattened events (ExtractNewRecordState) are followed, and why the others are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from service.core.errors import RecordError
from service.core.model import Operation, RowChange, Skipped
from service.stream.discovery import Discovery
from service.stream.envelope import Decoder
from service.stream.flattened import FIELDS, FIELDS_OF, unflatten
from tests.events import record, tracked_table

KEPT = replace(tracked_table("shop", "orders", {"id": "integer", "note": "string"}), key=(0,), row_images=True)
PLAIN = tracked_table("shop", "plain", {"id": "integer"})
EVENTS = tracked_table("shop", "events", {"id": "integer"}, insert_only=True)


def decode(event: dict[str, object], topic: str = "server.shop.orders", key: bytes | None = None) -> RowChange:
    decoded = Decoder([KEPT, PLAIN, EVENTS]).decode(record(orjson.dumps(event), topic=topic, key=key))
    assert isinstance(decoded, RowChange)
    return decoded


def refusal(event: dict[str, object], topic: str = "server.shop.orders") -> str:
    with pytest.raises(RecordError) as caught:
        decode(event, topic)
    return str(caught.value)


def test_rows_of_a_table_with_row_images_are_followed() -> None:
    inserted = decode({"id": 7, "note": "x", "__op": "c", "__deleted": "false"})
    assert (inserted.operation, inserted.key, inserted.after) == (Operation.CREATE, ("7",), ("7", "x"))
    updated = decode({"id": 7, "note": None, "__op": "u", "__deleted": "false"})
    assert (updated.operation, updated.key, updated.after) == (Operation.UPDATE, ("7",), ("7", None))


@pytest.mark.parametrize("deleted", ["true", True])
def test_a_delete_is_a_row_that_says_so(deleted: object) -> None:
    change = decode({"id": 7, "note": None, "__op": "d", "__deleted": deleted})
    assert (change.operation, change.key, change.after) == (Operation.DELETE, ("7",), None)


def test_a_row_that_says_so_is_deleted_whatever_its_operation_is_called() -> None:
    assert decode({"id": 7, "note": "x", "__op": "u", "__deleted": "true"}).operation is Operation.DELETE


def test_a_truncate_has_no_row() -> None:
    change = decode({"__op": "t", "__deleted": "false"})
    assert (change.operation, change.before, change.after) == (Operation.TRUNCATE, None, None)


def test_fields_of_the_source_may_have_its_name_or_none() -> None:
    """`add.fields` names them `source.lsn` or, shorter, `lsn`; the longer one counts where both are there."""
    names = ("db", "schema", "table", "lsn", "txId", "sequence", "snapshot", "connector")
    event = {"id": 1, "__op": "c", **{f"__{name}": f"short {name}" for name in names}, "__source_lsn": 5, "__ts_ms": 1}
    assert unflatten(event)["source"] == {**{name: f"short {name}" for name in names}, "lsn": 5}


def test_its_fields_say_table_and_place_in_the_source() -> None:
    change = decode(
        {
            "id": 7,
            "note": "x",
            "__op": "u",
            "__deleted": "false",
            "__db": "any",
            "__schema": "shop",
            "__table": "orders",
            "__source_ts_ms": 5,
            "__source_connector": "postgresql",
            "__source_sequence": '["10","20"]',
            "__lsn": 20,
            "__source_txId": 3,
            "__transaction_id": "3:20",
            "__transaction_total_order": 2,
        },
        topic="all",
    )
    assert change.table is KEPT
    assert change.source_position == {
        "ts_ms": 5,
        "lsn": 20,
        "txId": 3,
        "sequence": '["10","20"]',
        "transaction_id": "3:20",
        "total_order": 2,
        "mark": [10, 20, 2],
    }


PLACES: dict[str, tuple[dict[str, object], list[int]]] = {
    "Postgres": (
        {"connector": "postgresql", "schema": "shop", "lsn": 20, "txId": 3, "sequence": '["10","20"]'},
        [10, 20, 2],
    ),
    "MySQL and MariaDB": ({"connector": "mysql", "file": "binlog.000003", "pos": 1234, "row": 2}, [3, 1234, 2, 1]),
    "SQL Server": (
        {"connector": "sqlserver", "schema": "shop", "commit_lsn": "00000027:00000758:0005"},
        [0x27, 0x758, 5, 2, 0],
    ),
}


@pytest.mark.parametrize("connector", FIELDS_OF)
def test_the_fields_that_are_documented_tell_the_place_in_the_source(connector: str) -> None:
    source, mark = PLACES[connector]
    own = {"op": "c", **source, "db": "shop", "table": "orders"}
    parts = {"": own, "source": {**own, "ts_ms": 5, "snapshot": None}, "transaction": {"id": "3:20", "total_order": 2}}
    event: dict[str, object] = {"id": 7, "note": "x", "__deleted": "false"}
    for field in f"{FIELDS},{FIELDS_OF[connector]}".split(","):
        struct, _, name = field.rpartition(".")
        event["__" + field.replace(".", "_")] = parts[struct][name]
    assert decode(event, topic="all").source_position["mark"] == mark
    page = (Path(__file__).parents[2] / "docs" / "feeds.md").read_text()
    assert f"`add.fields={FIELDS}`" in page
    assert f"`{FIELDS_OF[connector]}`" in page


def test_inserts_of_an_insert_only_table_need_no_more_than_their_operation() -> None:
    assert decode({"id": 1, "__op": "c"}, topic="server.shop.events").after == ("1",)
    assert "was declared insert-only" in refusal({"id": 1, "__op": "u"}, topic="server.shop.events")


def test_a_table_without_row_images_cannot_be_followed() -> None:
    message = refusal({"id": 1, "__op": "c", "__deleted": "false"}, topic="server.shop.plain")
    assert "keeps no row images of shop.plain" in message
    assert "--row-images always" in message


def test_without_deletes_as_rows_they_would_go_unseen() -> None:
    message = refusal({"id": 7, "note": "x", "__op": "c"})
    assert "without __deleted" in message
    assert "delete.tombstone.handling.mode=rewrite" in message


def test_without_the_operation_the_settings_of_the_transform_are_named() -> None:
    message = refusal({"id": 7, "note": "x"})
    assert "add.fields=op," in message
    assert "delete.tombstone.handling.mode=rewrite" in message


def test_a_column_may_begin_as_the_fields_do() -> None:
    table = replace(tracked_table("shop", "odd", {"id": "integer", "__x": "string"}), key=(0,), row_images=True)
    event = {"id": 1, "__x": "mine", "__op": "c", "__deleted": "false", "__y": "not mine"}
    change = Decoder([table]).decode(record(orjson.dumps(event), topic="a.shop.odd"))
    assert isinstance(change, RowChange)
    assert change.after == ("1", "mine")


def test_cells_are_read_by_the_schema_of_a_flat_row() -> None:
    fields = [
        {"field": "id", "type": "int32"},
        {"field": "note", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "__op", "type": "string"},
    ]
    payload = {"id": 7, "note": 20778, "__op": "u", "__deleted": "false"}
    change = decode({"schema": {"type": "struct", "fields": fields}, "payload": payload})
    assert change.after == ("7", "2026-11-21")


def test_a_tombstone_is_no_change() -> None:
    assert isinstance(Decoder([KEPT]).decode(record(None, key=b'{"id":7}')), Skipped)


def test_columns_may_be_called_as_parts_of_an_envelope() -> None:
    table = tracked_table("shop", "log", {"id": "integer", "op": "string", "after": "string", "day": "date"})
    event = {"id": 1, "op": "I", "after": "x", "day": 20778, "__op": "c", "__deleted": "false"}
    types = {"id": "int32", "op": "string", "after": "string", "__op": "string", "__deleted": "string"}
    fields = [{"field": name, "type": kind} for name, kind in types.items()]
    fields.append({"field": "day", "type": "int32", "name": "io.debezium.time.Date"})
    for value in (event, {"schema": {"type": "struct", "fields": fields}, "payload": event}):
        sent = record(orjson.dumps(value), topic="server.shop.log")
        change = Decoder([replace(table, insert_only=True)]).decode(sent)
        assert isinstance(change, RowChange)
        assert change.after == ("1", "I", "x", "2026-11-21")
        (seen,) = Discovery().look([sent]).values()
        assert dict(seen.columns)["day"] == ("date" if "schema" in value else "string")


@pytest.mark.parametrize("schema", [None, "1", {}])
@pytest.mark.parametrize("payload", [None, "1", {"id": 2}])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_columns_may_be_called_as_what_a_converter_wraps_its_events_in(
    schema: object, payload: object, is_wrapped: bool
) -> None:
    table = replace(
        tracked_table("shop", "box", {"id": "integer", "schema": "json", "payload": "json"}), insert_only=True
    )
    event = {"id": 1, "schema": schema, "payload": payload, "__op": "c", "__deleted": "false"}
    sent = record(orjson.dumps({"schema": None, "payload": event} if is_wrapped else event), topic="server.shop.box")
    change = Decoder([table]).decode(sent)
    assert isinstance(change, RowChange)
    assert change.after is not None
    assert change.after[0] == "1"
    assert [cell is None for cell in change.after[1:]] == [schema is None, payload is None]
