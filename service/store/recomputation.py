"""Own the comparison of the served state with a generation that was recomputed from a source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.store.bulk import KeyRange, partition_name
from service.store.copy_stream import copy_between
from service.store.database import connect, make_engine
from service.store.generation import DRIVER_NAME, NewAttribute
from service.store.shard_servers import ShardServer, reaching
from service.store.sketch_generation import read_whole
from service.store.sketch_reading import read_sketches
from service.usecases.verify import EXAMPLES

RECORDS = """
SELECT coalesce(nullif(coalesce(served.value, fresh.value), ''), 'key ' || value_key),
    served.value_key IS NULL, fresh.value_key IS NULL,
    served.attribute_ids, served.frequencies, fresh.attribute_ids, fresh.frequencies, count(*) OVER ()
FROM (SELECT * FROM gen_rec WHERE {condition} UNION ALL SELECT * FROM elsewhere_rec) AS served
    FULL JOIN {fresh} AS fresh USING (value_key)
WHERE served.attribute_ids IS DISTINCT FROM fresh.attribute_ids
    OR served.frequencies IS DISTINCT FROM fresh.frequencies OR served.value IS DISTINCT FROM fresh.value
LIMIT {examples}
"""

# What servers of shards have of a range lies beside it while it is compared.
ELSEWHERE = "CREATE TEMPORARY TABLE elsewhere_rec (LIKE gen_rec) ON COMMIT DROP"

ATTRIBUTES = """
SELECT attribute_id, schema_name || '.' || table_name || '.' || column_name,
    row_count, null_count, distinct_count, repeated_count
FROM attribute JOIN source USING (source_id)
WHERE source.name = %s AND dropped_version IS NULL AND stale_version IS NULL
"""


def differences(
    connection: Any,
    source_name: str,
    generation: int,
    bits: int,
    attributes: Sequence[NewAttribute],
    inds: NDArray[np.int32],
    servers: Sequence[ShardServer] = (),
) -> list[str]:
    """Say where the served state differs from a recomputed generation, whose partitions are stored and not attached.

    Compares generator records (all but their cluster ids, which each generation numbers anew), the counters of the
    source's attributes, and the INDs; attributes that are stale are in both as they are served. `servers` have the
    records of shards that are not in the state's own database. Returns one line a kind of difference, with examples;
    none when all is equal. `connection` keeps writers off.
    """
    with connection.cursor() as cursor:
        found = [
            *_of_attributes(cursor, source_name, attributes),
            *_of_records(cursor, generation, bits, servers),
            *_of_inds(cursor, inds),
        ]
    connection.commit()
    return found


def sketch_differences(url: str, connection: Any, generation: int) -> list[str]:
    """Say which sketches of a sketch-only source are not those that were recomputed; `connection` keeps writers off.

    Returns one line with examples; none when all are equal.
    """
    with connection.cursor() as cursor:
        fresh = read_whole(cursor, generation)
        cursor.execute("SELECT attribute_id, concat_ws('.', schema_name, table_name, column_name) FROM attribute")
        names = dict(cursor.fetchall())
    connection.commit()
    engine = make_engine(url, DRIVER_NAME).execution_options(isolation_level="REPEATABLE READ")
    try:
        with engine.connect() as reading:
            served = read_sketches(reading, list(fresh))
    finally:
        engine.dispose()
    wrong = sorted(
        names[attribute_id]
        for attribute_id, sketch in fresh.items()
        if attribute_id not in served.by_id or not sketch.agrees_with(served.by_id[attribute_id])
    )
    return [f"{len(wrong):,} sketches: {'; '.join(wrong[:EXAMPLES])}"] if wrong else []


def _of_records(cursor: Any, generation: int, bits: int, servers: Sequence[ShardServer]) -> list[str]:
    total, examples = 0, []
    cursor.execute(ELSEWHERE)
    for number in range(1 << bits):
        condition = KeyRange(number, bits).condition()
        cursor.execute("TRUNCATE elsewhere_rec")
        for server in servers:
            with reaching(server), connect(server.address, DRIVER_NAME) as other, other.cursor() as reading:
                copy_between(reading, f"SELECT * FROM gen_rec WHERE {condition}", cursor, "elsewhere_rec")
        fresh = partition_name(generation, number)
        cursor.execute(RECORDS.format(condition=condition, fresh=fresh, examples=EXAMPLES))
        rows = cursor.fetchall()
        total += rows[0][-1] if rows else 0
        examples += [_in_words(*row[:-1]) for row in rows]
    shown = "; ".join(examples[:EXAMPLES])
    return [f"{total:,} values (frequencies by attribute id): {shown}"] if total else []


def _in_words(value: str, not_served: bool, not_fresh: bool, *found: list[int] | None) -> str:
    if not_served:
        return f"{value!r} is in the source alone"
    if not_fresh:
        return f"{value!r} is in the state alone"
    ids, counts, fresh_ids, fresh_counts = ([] if numbers is None else numbers for numbers in found)
    served = dict(zip(ids, counts or ids, strict=True))
    fresh = dict(zip(fresh_ids, fresh_counts or fresh_ids, strict=True))
    return f"{value!r} has {served} in the state, {fresh} in the source"


def _of_attributes(cursor: Any, source_name: str, attributes: Sequence[NewAttribute]) -> list[str]:
    cursor.execute(ATTRIBUTES, (source_name,))
    served = {attribute_id: (name, counters) for attribute_id, name, *counters in cursor.fetchall()}
    fresh = {
        a.attribute_id: (str(a.name), [a.row_count, a.null_count, a.distinct_count, a.repeated_count])
        for a in attributes
    }
    found = []
    for attribute_id in sorted(served.keys() | fresh.keys()):
        name, counters = served.get(attribute_id, (None, None))
        fresh_name, fresh_counters = fresh.get(attribute_id, (None, None))
        if counters != fresh_counters:
            found.append(
                f"{name or fresh_name}: rows, nulls, distinct, repeated are {counters or 'not there'} in the state, "
                f"{fresh_counters or 'not there'} in the source"
            )
    return found[:EXAMPLES]


def _of_inds(cursor: Any, inds: NDArray[np.int32]) -> list[str]:
    cursor.execute("SELECT attribute_id, schema_name || '.' || table_name || '.' || column_name FROM attribute")
    names = dict(cursor.fetchall())
    cursor.execute("SELECT dependent_id, referenced_id FROM uind WHERE until_version IS NULL")
    served, fresh = set(cursor.fetchall()), {(int(a), int(b)) for a, b in inds}
    wrong = [(pair, "in the source alone") for pair in fresh - served]
    wrong += [(pair, "in the state alone") for pair in served - fresh]
    shown = "; ".join(f"{names.get(a, a)} ⊆ {names.get(b, b)} {where}" for (a, b), where in sorted(wrong)[:EXAMPLES])
    return [f"{len(wrong):,} INDs: {shown}"] if wrong else []
