"""Hold the decoder to events that Debezium really sent, and to RecordError for whatever becomes of them."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.core.model import BadRecord, RawRecord, RowChange, Skipped
from service.stream.envelope import Decoder
from tests.decoding import decode_all
from tests.recorded_events import ALLT, CONNECTORS, PLAIN, recorded

FULL = {
    "id": "1",
    "n": "12345.678",
    "nn": "98765432109876543210.123456789",
    "tstz": "2026-11-21T08:20:30.123456Z",
    "ts": "2026-11-21T10:20:30.123456",
    "d": "2026-11-21",
    "t": "10:20:30.500000",
    "b": "00ff10",
    "u": "6f9619ff-8b86-d011-b42d-00cf4fc964ff",
    "j": '{"a":[1,2.5,null],"b":"x"}',
    "bo": "true",
    "f8": "0.1",
    "f4": "0.25",
    "arr": '["x",null,"y,\\"z"]',
    "i8": "9007199254740993",
    "i2": "-3",
    "txt": "Grüße",
    "vc": "vc",
    "iv": "PT93600S",
}
CHANGED = {**FULL, "n": "-12345.678", "j": "{}", "bo": "false"}


def row(**cells: str | None) -> tuple[str | None, ...]:
    return tuple(cells.get(attribute.name.column) for attribute in ALLT.attributes)


def decoded(connector: str) -> tuple[list[RowChange], list[Skipped], list[BadRecord]]:
    return decode_all(Decoder([ALLT, PLAIN]), recorded(connector))


@pytest.mark.parametrize("connector", CONNECTORS)
def test_every_encoding_gives_the_same_rows(connector: str) -> None:
    changes, _, _ = decoded(connector)
    assert [(c.operation.value, c.before, c.after) for c in changes if c.table is ALLT] == [
        ("r", None, row(id="1000", n="1.5", txt="snapshot row")),
        ("c", None, row(**FULL)),
        ("c", None, row(id="2")),
        ("u", row(**FULL), row(**CHANGED)),
        ("d", row(**CHANGED), None),
        ("c", None, row(**{**CHANGED, "id": "11"})),
        ("d", row(**{**CHANGED, "id": "11"}), None),
        ("u", row(id="2"), row(id="2", f8="NaN", f4="-Infinity")),
        ("t", None, None),
    ]


@pytest.mark.parametrize("connector", CONNECTORS)
def test_rows_removed_are_rows_inserted_before(connector: str) -> None:
    """Every before-image is exactly a row that the table held: what an update or a delete takes out was put in."""
    held: list[tuple[str | None, ...]] = []
    for change in decoded(connector)[0]:
        if change.table is ALLT:
            if change.operation == "t":
                held.clear()
            if change.before is not None:
                held.remove(change.before)
            if change.after is not None:
                held.append(change.after)
    assert held == []


@pytest.mark.parametrize("connector", CONNECTORS)
def test_what_replica_identity_default_does_not_send_is_refused(connector: str) -> None:
    changes, _, bad = decoded(connector)
    assert [c.operation.value for c in changes if c.table is PLAIN] == ["c", "t"]
    assert [(b.record.topic, b.record.offset) for b in bad] == [(f"{connector}.public.plain", o) for o in (1, 2, 4, 5)]
    for _, error in bad:
        assert str(error).endswith("ALTER TABLE public.plain REPLICA IDENTITY FULL")


@pytest.mark.parametrize("connector", CONNECTORS)
def test_messages_transactions_and_tombstones_are_skipped(connector: str) -> None:
    reasons = [skipped.reason for skipped in decoded(connector)[1]]
    assert {reason: reasons.count(reason) for reason in reasons} == {
        "logical message": 1,
        "tombstone": 4,
        "transaction BEGIN": 10,
        "transaction END": 10,
    }


@pytest.mark.parametrize("connector", CONNECTORS)
def test_the_source_position_tells_transaction_and_place(connector: str) -> None:
    change = next(c for c in decoded(connector)[0] if c.operation == "u")
    assert change.source_position == {
        "ts_ms": 1795250941948,
        "lsn": 24399368,
        "txId": 761,
        "sequence": '["24399368","24399368"]',
        "snapshot": "false",
        "transaction_id": "761:24399368",
        "total_order": 1,
        "mark": [24399368, 24399368, 1],
        "marked_by": connector,
    }


SAMPLES = [r for connector in CONNECTORS for r in recorded(connector) if r.value is not None]

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(["\0", "__debezium_unavailable_value", "NaN", "AAAA", "2026-13-45", "infinity", "1e999", "-"]),
)
JSON = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, ...]] = []
    if isinstance(value, dict):
        inner = [place for name, part in value.items() for place in _places(part, (*path, name))]
    elif isinstance(value, list):
        inner = [place for i, part in enumerate(value) for place in _places(part, (*path, i))]
    return [path, *inner]


@st.composite
def mutated(draw: st.DrawFn) -> RawRecord:
    """Draw a real record of which some parts are replaced or taken away, or whose bytes are cut or changed."""
    sample = draw(st.sampled_from(SAMPLES))
    value = sample.value or b""
    if draw(st.booleans()):
        at = draw(st.integers(0, len(value)))
        return sample._replace(value=value[:at] + draw(st.binary(max_size=4)) + value[at + draw(st.integers(0, 40)) :])
    holder = [orjson.loads(value)]
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(_places(holder)[1:]))
        parent: Any = holder
        for step in path[:-1]:
            parent = parent[step]
        if isinstance(parent, dict) and draw(st.booleans()):
            del parent[path[-1]]
        else:
            parent[path[-1]] = draw(JSON)
    return sample._replace(
        value=orjson.dumps(holder[0]), key=draw(st.none() | st.binary(max_size=4) | st.just(sample.key))
    )


@settings(max_examples=600, deadline=None)
@given(st.lists(mutated(), min_size=1, max_size=4))
def test_nothing_but_a_record_error_comes_of_damaged_records(records: list[RawRecord]) -> None:
    changes, _, bad = decode_all(Decoder([ALLT, PLAIN]), records)
    for damaged, error in bad:
        assert str(error).startswith(f"topic {damaged.topic}, partition 0, offset {damaged.offset}: ")
        assert "\0" not in str(error)
    for change in changes:
        for image in (change.before, change.after):
            assert image is None or len(image) == len(change.table.attributes)
            assert all(text is None or (type(text) is str and "\0" not in text) for text in image or ())
        orjson.dumps(change.source_position)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60) | JSON.map(orjson.dumps))
def test_nothing_but_a_record_error_comes_of_any_bytes(value: bytes) -> None:
    _, _, bad = decode_all(Decoder([ALLT]), [RawRecord("a.public.allt", 0, 0, None, value, 0)])
    assert all(str(error).startswith("topic a.public.allt, partition 0, offset 0: ") for _, error in bad)
