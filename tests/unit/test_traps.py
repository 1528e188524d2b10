"""Say of each trap of change data capture how it is stepped over; events are those that Debezium really sent.

The numbers are those of the project's conventions for change feeds. How the state follows is tested with it; here is
what comes out of decoding, screening and completing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import orjson
import pytest

from service.core.errors import RecordError
from service.core.model import UNAVAILABLE, Operation, Row, RowChange, SchemaDrift, Table
from service.stream.envelope import Decoder
from service.usecases.row_images import Image, complete
from service.usecases.screening import REPEATED, Screen
from tests.decoding import decode_all
from tests.events import envelope, record, tracked_table
from tests.recorded_events import ALLT, CONNECTORS, PLAIN, recorded

KEPT = replace(PLAIN, key=(0,), row_images=True)
KEPT_ALLT = replace(ALLT, key=(0,), row_images=True)
NOT_SENT = "__debezium_unavailable_value"


def changes(table: Table, connector: str = "src") -> list[RowChange]:
    found, _, bad = decode_all(Decoder([table], unknown_tables="ignore"), recorded(connector))
    assert bad == []
    return found


def held(changes: Iterable[RowChange]) -> list[Row]:
    """Give the rows that are left after changes with whole images."""
    rows: list[Row] = []
    for change in changes:
        if change.operation is Operation.TRUNCATE:
            rows.clear()
        if change.before is not None:
            rows.remove(change.before)
        if change.after is not None:
            rows.append(change.after)
    return rows


def completed(changes: list[RowChange]) -> list[RowChange]:
    """Complete changes from the rows of the changes before them, as the consumer does; a truncate drops all rows."""
    images: dict[Table, dict[bytes, Image]] = {}
    done: list[RowChange] = []
    for change in changes:
        if change.operation is Operation.TRUNCATE:
            images.pop(change.table, None)
            done.append(change)
            continue
        one = complete([change], images, 1)
        assert one.errors == {}
        for table, kept in one.images.items():
            images.setdefault(table, {}).update(kept)
        done += one.changes
    return done


def test_trap_1_truncate_empties_the_table() -> None:
    for table in (ALLT, KEPT):
        last = changes(table)[-1]
        assert (last.operation, last.table, last.before, last.after) == (Operation.TRUNCATE, table, None, None)


def test_trap_2_without_replica_identity_full_the_statement_is_named_or_the_state_keeps_the_rows() -> None:
    _, _, bad = decode_all(Decoder([PLAIN], unknown_tables="ignore"), recorded("src"))
    for _, error in bad:
        assert str(error).endswith("ALTER TABLE public.plain REPLICA IDENTITY FULL")
    assert (
        len(bad) == 4
    )  # an update without its row before, and three of which only the key is known, or a large value not
    assert [(c.operation.value, c.key) for c in changes(KEPT)] == [
        ("c", ("1",)),
        ("u", ("1",)),
        ("d", ("1",)),
        ("c", ("2",)),
        ("d", ("2",)),
        ("t", None),
    ]


def test_trap_3_a_value_that_did_not_change_is_as_before() -> None:
    whole = tracked_table("shop", "orders", {"id": "integer", "note": "string"})
    row = {"id": 1, "note": "long"}
    for table in (whole, replace(whole, key=(0,), row_images=True)):
        inserted = envelope("c", "shop", "orders", None, row)
        updated = envelope("u", "shop", "orders", row, {"id": 1, "note": NOT_SENT})
        found, _, bad = decode_all(Decoder([table]), [record(inserted, 0), record(updated, 1)])
        assert bad == []
        assert completed(found)[1].after == ("1", "long")
    sent = [c.after for c in changes(KEPT) if c.operation is Operation.UPDATE]
    assert sent == [("1", "s2", UNAVAILABLE)]
    big = changes(KEPT)[0].after
    assert big is not None
    assert completed(changes(KEPT)[:2])[1].after == ("1", "s2", big[2])


@pytest.mark.parametrize("table", [ALLT, KEPT_ALLT])
def test_trap_4_a_change_of_the_key_is_a_delete_a_tombstone_and_a_create(table: Table) -> None:
    records = [r for r in recorded("src") if r.topic.endswith("allt")]
    decoded, skipped, _ = decode_all(Decoder([table]), records)
    assert "tombstone" in {one.reason for one in skipped}
    found = completed(decoded)
    ids = [c.position.offset for c in found if c.operation is Operation.DELETE]
    key_change = next(i for i, c in enumerate(found) if c.position.offset == ids[0])
    before, after = held(found[:key_change]), held(found[: key_change + 2])
    assert sorted(row[0] or "" for row in before) == ["1", "1000", "2"]
    assert sorted(row[0] or "" for row in after) == ["1000", "11", "2"]
    assert {row[1:] for row in before} == {row[1:] for row in after}
    assert held(found) == []


@pytest.mark.parametrize("connector", CONNECTORS)
def test_trap_5_what_a_restarted_connector_repeats_is_recognised(connector: str) -> None:
    sent = [c for c in changes(ALLT, connector) if c.operation is not Operation.READ]
    for killed in range(1, len(sent) + 1):
        for back in range(killed):
            again = sent[:killed] + sent[back:]
            arriving = [replace(c, position=c.position._replace(offset=i)) for i, c in enumerate(again)]
            screened = Screen({}, {}).screen(arriving)
            assert [c.source_position for c in screened.changes] == [c.source_position for c in sent]
            assert {one.reason for one in screened.skipped} == {REPEATED}
            assert (screened.bad, screened.rewound) == ({}, {})


def test_trap_6_a_row_of_a_snapshot_can_come_again() -> None:
    table = tracked_table("shop", "orders", {"id": "integer", "note": "string"})
    records = [
        record(envelope("c", "shop", "orders", None, {"id": 1, "note": "a"}), 0),
        record(envelope("r", "shop", "orders", None, {"id": 1, "note": "b"}), 1),
    ]
    kept, _, _ = decode_all(Decoder([replace(table, key=(0,), row_images=True)]), records)
    assert held(completed(kept)) == [("1", "b")]
    plain, _, _ = decode_all(Decoder([table]), records)
    screened = Screen({}, {}).screen(plain)
    assert [c.position.offset for c in screened.changes] == [0]
    assert [at.offset for at in screened.bad] == [1]


def test_trap_7_columns_that_come_and_go_show_in_the_events_alone() -> None:
    table = tracked_table("shop", "orders", {"id": "integer", "note": "string"})
    decoder = Decoder([table])
    for op, before, after in (
        ("c", None, {"id": 1, "name": "x"}),
        ("u", {"id": 1, "name": "y"}, {"id": 1, "name": "x"}),
        ("d", {"id": 1, "name": "y"}, None),
    ):
        value = envelope(op, "shop", "orders", before, after, connector="postgresql", lsn=3)
        with pytest.raises(SchemaDrift) as caught:
            decoder.decode(record(value, 5))
        drift = caught.value
        assert (drift.table, drift.added, drift.missing) == (table, (("name", "string"),), ("note",))
        assert drift.source_position["lsn"] == 3
        assert "offset 5" in str(drift)


def test_trap_7_a_new_column_has_the_type_that_the_schema_says() -> None:
    without = replace(
        ALLT, attributes=tuple(a for a in ALLT.attributes if a.name.column not in ("n", "d", "i8", "arr"))
    )
    _, _, bad = decode_all(Decoder([without], unknown_tables="ignore"), recorded("srs"))
    added = {error.added for _, error in bad if isinstance(error, SchemaDrift)}
    assert added == {(("arr", "text[]"), ("d", "date"), ("i8", "bigint"), ("n", "numeric(12,3)"))}


def test_trap_7_the_key_alone_is_no_sign_of_dropped_columns() -> None:
    table = tracked_table("shop", "orders", {"id": "integer", "note": "string"})
    value = envelope("d", "shop", "orders", {"id": 1}, None, connector="postgresql")
    with pytest.raises(RecordError, match="REPLICA IDENTITY FULL") as caught:
        Decoder([table]).decode(record(value, key=b'{"id":1}'))
    assert not isinstance(caught.value, SchemaDrift)


def test_trap_8_all_encodings_give_one_text() -> None:
    images = [[(c.before, c.after) for c in changes(ALLT, connector)] for connector in CONNECTORS]
    assert images[0] == images[1] == images[2]


def test_trap_8_a_precise_decimal_without_its_scale_is_refused_with_the_setting() -> None:
    untold = replace(
        ALLT,
        attributes=tuple(replace(a, data_type="numeric") if a.name.column == "n" else a for a in ALLT.attributes),
    )
    _, _, bad = decode_all(Decoder([untold], unknown_tables="ignore"), recorded("src"))
    assert bad
    for damaged, error in bad:
        assert orjson.loads(damaged.value or b"")["op"] in "crud"
        assert re.search(r"column 'n'.*decimal\.handling\.mode=string", str(error))
