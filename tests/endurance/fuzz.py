"""Own the fuzzing of the decoder: real events, damaged at random, of which each is applied, skipped or set aside.

`python -m tests.endurance.fuzz 100000 1` decodes that many with that seed and prints what became of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

import orjson

from service.core.errors import RecordError
from service.core.model import UNAVAILABLE, RawRecord, RowChange, Table
from service.stream.envelope import Decoder
from tests.decoding import decode_all
from tests.recorded_events import ALLT, CONNECTORS, PLAIN, recorded
from tests.registry import avro_record

KEPT = replace(PLAIN, key=(0,), row_images=True)
TABLES = (ALLT, KEPT)

AVRO_ID = 1
_VALUE = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}]
    + [{"name": name, "type": ["null", "string"]} for name in ("small", "big")],
}
AVRO_SCHEMA = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", _VALUE]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}

_CELLS: tuple[Any, ...] = (None, True, 0, -1, 2**63, 2**200, 1e308, 0.1, "", "\0", "x" * 300, "NaN", "AAAA", "1e999")
_CELLS += ("2026-13-45", "infinity", "-", "\ud7ff", "__debezium_unavailable_value", [], {}, [None], {"a": []}, "[]")
_CELLS += ({"scale": 2, "value": "AAAA"}, {"scale": "x"}, {"scale": 10**9, "value": "AQ=="}, "c", "u", "d", "t", "r")
_BYTES = (b"", b"\0", b"\xff", b'"', b"}", b"{", b",", b"\\u0000", b"\xed\xa0\x80", b"1e9", b"null", b"[" * 2000)


class OneSchema:
    """Stand for a registry that holds one schema."""

    def schema(self, schema_id: int) -> str:
        """Give the schema, RecordError for all ids but one."""
        if schema_id != AVRO_ID:
            raise RecordError(f"has schema id {schema_id}, which is not known")
        return json.dumps(AVRO_SCHEMA)


def make_decoder(tables: tuple[Table, ...] = TABLES) -> Decoder:
    """Make a decoder of the tables that the samples are of."""
    return Decoder(tables, registry=OneSchema())


def samples() -> list[RawRecord]:
    """Give whole records to damage: recorded ones, some of them flattened, some in Avro."""
    real = [record for connector in CONNECTORS for record in recorded(connector)]
    flat, avro = [], []
    for record in real:
        document = orjson.loads(record.value or b"null")
        row = isinstance(document, dict) and (document.get("after") or document.get("before"))
        if not row or not record.topic.endswith("plain"):
            continue
        op = document["op"]
        deleted = "true" if op == "d" else "false"
        flat.append(record._replace(value=orjson.dumps({**row, "__op": op, "__deleted": deleted})))
        images = {"before": document["before"], "after": document["after"], "op": op}
        avro.append(record._replace(value=avro_record(AVRO_ID, AVRO_SCHEMA, images)))
    return real + flat + avro


def mutations(count: int, seed: int) -> Iterator[RawRecord]:
    """Give damaged records, at the offsets 0, 1, 2, ... of each sample's topic partition; the same for a seed."""
    random, whole = Random(seed), samples()
    offsets: Counter[tuple[str, int]] = Counter()
    for _ in range(count):
        record = random.choice(whole)
        place = record.topic, record.partition
        value, key = record.value, record.key
        kind = random.random()
        if kind < 0.3 or (value and value[0] == 0):
            value = _bytes(random, value or b"")
        elif kind < 0.9 and value:
            value = mutated_document(random, value)
        if random.random() < 0.2:
            key = random.choice((None, b"", b"{}", b"\0\0\0\0\2x", _bytes(random, key or b"{}")))
        yield record._replace(value=value, key=key, offset=offsets[place])
        offsets[place] += 1


def _bytes(random: Random, value: bytes) -> bytes:
    for _ in range(random.randint(1, 4)):
        at = random.randint(0, len(value))
        value = value[:at] + random.choice((*_BYTES, random.randbytes(3))) + value[at + random.choice((0, 1, 1, 40)) :]
    return value[: random.randint(0, len(value))] if random.random() < 0.2 else value


def mutated_document(random: Random, value: bytes) -> bytes:
    """Damage a JSON document; raises ValueError where there is none."""
    holder: dict[str, Any] = {"": orjson.loads(value)}
    for _ in range(random.randint(1, 3)):
        places = list(_places(holder))
        if not places:
            break
        parent, name = random.choice(places)
        kind = random.random()
        if kind < 0.2:
            del parent[name]
        elif kind < 0.3:
            parent[name] = random.choice((value.decode(), {}, [value.decode()] * 3))
        elif kind < 0.4 and isinstance(parent, dict):
            parent[random.choice(("added", "__op", "schema", "payload", "\0"))] = deepcopy(parent.get(name))
        else:
            parent[name] = deepcopy(random.choice(_CELLS))
    return json.dumps(holder.get(""), ensure_ascii=random.random() < 0.5).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Walk over all (container, name) of a document."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in list(inner):
        yield value, name
        yield from _places(part)


def fuzz(count: int, seed: int) -> Counter[str]:
    """Decode damaged records; count those applied, skipped and set aside, whose sum is `count`.

    Raises AssertionError for a change that the state could not take, and lets through whatever else the decoder
    should not raise.
    """
    decoder, outcomes = make_decoder(), Counter[str]()
    for record in mutations(count, seed):
        outcomes[decode_one(decoder, record)] += 1
    assert outcomes.total() == count
    return outcomes


def decode_one(decoder: Decoder, record: RawRecord) -> str:
    """Decode a record and say what became of it: applied, skipped or set aside; raises as `fuzz` does."""
    changes, skipped, bad = decode_all(decoder, [record])
    for change in changes:
        _check(change)
    for damaged, error in bad:
        message = str(error)
        assert message.startswith(f"topic {damaged.topic}, partition {damaged.partition}, offset {damaged.offset}: ")
        assert "\0" not in message
    (outcome,) = ["applied"] * len(changes) + ["skipped"] * len(skipped) + ["set aside"] * len(bad)
    return outcome


def _check(change: RowChange) -> None:
    for row in (change.before, change.after):
        assert row is None or len(row) == len(change.table.attributes)
        for text in row or ():
            assert text is None or "\0" not in text or (text == UNAVAILABLE and change.table.row_images)
            assert text is None or isinstance(text.encode(), bytes)  # no lone surrogate
    if change.table.row_images:
        assert change.before is None
        assert (change.key is None) == (change.operation == "t")
        assert change.key is None or (len(change.key) == 1 and "\0" not in (change.key[0] or ""))
    orjson.dumps(change.source_position)


if __name__ == "__main__":
    print(dict(fuzz(int(sys.argv[1]), int(sys.argv[2]))))
