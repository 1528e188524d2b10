"""Own the bare baseline of the live rows: COPY and MERGE of the same netted records, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from io import StringIO
from time import perf_counter
from uuid import UUID

import psycopg2.extensions

from benchmarks.feeds import Deltas

STAGING = (
    "CREATE TEMP TABLE IF NOT EXISTS bare_staging (value_key uuid, value text, cluster_id bigint,"
    " attribute_ids integer[], frequencies bigint[]) ON COMMIT DELETE ROWS"
)
MERGE = """
MERGE INTO gen_rec USING bare_staging AS new ON gen_rec.value_key = new.value_key
WHEN MATCHED AND new.attribute_ids IS NULL THEN DELETE
WHEN MATCHED THEN UPDATE SET cluster_id = new.cluster_id, attribute_ids = new.attribute_ids,
    frequencies = new.frequencies
WHEN NOT MATCHED THEN INSERT (value_key, value, cluster_id, attribute_ids, frequencies)
    VALUES (new.value_key, new.value, new.cluster_id, new.attribute_ids, new.frequencies)
"""
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@dataclass(slots=True)
class Records:
    """Hold the records of the values that a feed touches, and the clusters: enough to know each batch's outcome."""

    frequencies: dict[str, dict[int, int]]
    cluster_ids: dict[frozenset[int], int]


def value_key(value: str) -> UUID:
    """Return a value's key by the standard library alone."""
    return UUID(bytes=sha256(value.encode()).digest()[:16])


def read_records(connection: psycopg2.extensions.connection, values: Iterable[str]) -> Records:
    """Read the records of `values` that the state has."""
    by_key = {str(value_key(value)): value for value in values}
    frequencies: dict[str, dict[int, int]] = {}
    with connection.cursor() as cursor:
        cursor.execute("SET enable_seqscan = off")
        keys = sorted(by_key)
        for start in range(0, len(keys), 20_000):
            cursor.execute(
                "SELECT value_key::text, attribute_ids, frequencies FROM gen_rec WHERE value_key = ANY(%s::uuid[])",
                (keys[start : start + 20_000],),
            )
            for key, attributes, counts in cursor:
                frequencies[by_key[key]] = dict(zip(attributes, counts, strict=True))
        cursor.execute("SELECT attribute_ids, cluster_id FROM cluster")
        return Records(frequencies, {frozenset(attributes): cluster_id for attributes, cluster_id in cursor})


def record_batches(records: Records, netted: Sequence[Deltas]) -> list[str]:
    """Return each batch as the COPY lines of its changed records, sorted by key; changes `records`."""
    return ["".join(sorted(_line(records, value, deltas) for value, deltas in batch.items())) for batch in netted]


def _line(records: Records, value: str, deltas: Mapping[int, int]) -> str:
    held = records.frequencies.get(value, {})
    changed = {a: held.get(a, 0) + deltas.get(a, 0) for a in sorted({*held, *deltas})}
    if any(frequency < 0 for frequency in changed.values()):
        raise ValueError(f"the feed deletes {value!r} where it is not: its changes do not fit this state")
    held = records.frequencies[value] = {a: frequency for a, frequency in changed.items() if frequency}
    start = f"{value_key(value)}\t{value.encode()[:256].decode(errors='ignore').translate(_ESCAPES)}\t"
    if not held:
        return start + "\\N\t\\N\t\\N\n"
    cluster = frozenset(held)
    if cluster not in records.cluster_ids:
        records.cluster_ids[cluster] = max(records.cluster_ids.values(), default=0) + 1
    cluster_id = records.cluster_ids[cluster]
    attributes, counts = ",".join(map(str, held)), ",".join(map(str, held.values()))
    return f"{start}{cluster_id}\t{{{attributes}}}\t{{{counts}}}\n"


def apply_bare(connection: psycopg2.extensions.connection, copies: Sequence[str]) -> float:
    """Apply the batches, each in one durable transaction, and return the seconds of it all."""
    with connection.cursor() as cursor:
        # The staging table has no statistics: without these the planner would scan gen_rec whole for each batch.
        cursor.execute("SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off")
        cursor.execute(STAGING)
        connection.commit()
        started = perf_counter()
        for lines in copies:
            cursor.copy_expert("COPY bare_staging FROM STDIN", StringIO(lines))
            cursor.execute(MERGE)
            connection.commit()
        return perf_counter() - started
