"""Own the reading of sketches as a version has them: stored bytes, and the log behind them; and building them anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import psycopg2
from sqlalchemy import Connection, text

from service.core.errors import SketchError
from service.core.records import UInt64s
from service.core.sketch_changes import SketchChanges
from service.core.sketch_upkeep import SketchBuilder, SketchForm, apply_changes
from service.core.sketches.column import ColumnSketch
from service.store.bulk import KeyRange, read_keys, read_range
from service.store.database import state_error
from service.store.shard_reading import RECORD_CLUSTERS

PORTION_RECORDS = 500_000
"""Records that are held at once while sketches are built from them."""

PORTION_SKETCHES = 100
"""Sketches that are fetched at once."""

SKETCHES = """
select attribute_id, version, sketch, fault, concat_ws('.', schema_name, table_name, column_name)
from sketch join attribute using (attribute_id) where dropped_version is null and {which} order by attribute_id
"""

CHANGES = """
select version, changes from sketch_change
where version > :after and (cast(:until as bigint) is null or version <= :until) order by version
"""


# The log from its beginning on, and how many sketches are to be read again. Without a new version a folding only takes
# away the beginning, and a rescan one of these: so no two are of different sketches.
UPKEEP = """
select concat_ws('-',
    (select 's' || min(version) from sketch_change),
    (select 'r' || count(*) from sketch where needs_rescan having count(*) > 0))
"""


# The index of each partition has both columns: no record is read.
KEYS = (
    """
select value_key from gen_rec where {condition}
and cluster_id = any (select cluster_id from """
    + RECORD_CLUSTERS
    + """ c where attribute_ids @> '{{{attribute_id}}}')
"""
)


@dataclass(frozen=True, slots=True)
class StoredSketches:
    """Hold the sketches of attributes at one version; `faults` says why an attribute's is not to be had."""

    by_id: dict[int, ColumnSketch]
    faults: dict[int, str]


def read_sketches(connection: Connection, attribute_ids: Sequence[int] | None = None) -> StoredSketches:
    """Read the sketches of these attributes (None: of all that have one) as the connection's transaction sees them.

    Give it a transaction that sees one version.
    """
    found = StoredSketches({}, {})
    for attribute_id, sketch in stream_sketches(connection, attribute_ids):
        if isinstance(sketch, str):
            found.faults[attribute_id] = sketch
        else:
            found.by_id[attribute_id] = sketch
    return found


def stream_sketches(
    connection: Connection, attribute_ids: Sequence[int] | None = None
) -> Iterator[tuple[int, ColumnSketch | str]]:
    """Give one sketch after the other as `read_sketches` reads them, or why an attribute's is not to be had."""
    which = "true" if attribute_ids is None else "attribute_id = any (:ids)"
    wanted = {} if attribute_ids is None else {"ids": list(attribute_ids)}
    oldest = connection.scalar(text(f"select min(version) from sketch where {which}"), wanted)
    changes = [] if oldest is None else read_changes(connection, oldest)
    query = text(SKETCHES.format(which=which)).execution_options(stream_results=True, yield_per=PORTION_SKETCHES)
    for attribute_id, version, data, fault, name in connection.execute(query, wanted):
        try:
            if fault is not None:
                raise SketchError(fault)
            sketch = ColumnSketch.from_bytes(bytes(data))
            apply_changes(sketch, [change for at, change in changes if at > version], attribute_id)
        except SketchError as error:
            yield attribute_id, told_fault(name, error)
        else:
            yield attribute_id, sketch


def read_changes(connection: Connection, after: int, until: int | None = None) -> list[tuple[int, SketchChanges]]:
    """Read what the versions behind one (and up to another) changed, by version."""
    rows = connection.execute(text(CHANGES), {"after": after, "until": until})
    return [(version, SketchChanges.from_bytes(bytes(changes))) for version, changes in rows]


def read_upkeep_tag(connection: Connection) -> str:
    """Name how far a compactor is; an empty text when nothing is left to it.

    Of one version it changes what smallest hashes tell: where they are read again there are more of them, and where
    parts of the log are folded fewer may be left than by all of it at once.
    """
    return str(connection.execute(text(UPKEEP)).scalar_one())


def build_sketches(
    connection: Any, form: SketchForm, attribute_ids: Sequence[int], elsewhere: Sequence[Any] = ()
) -> dict[int, ColumnSketch]:
    """Build the sketches of attributes from all their gen_recs, range by range of the keys, on a raw connection.

    `elsewhere` are those of shards' servers. The transaction must have locked gen_rec before it took its snapshot: a
    bootstrap swaps partitions.
    """
    builder = SketchBuilder(form, attribute_ids)
    with connection.cursor() as cursor:
        cursor.execute("select coalesce(sum(value_count), 0)::bigint from cluster")
        (records,) = cursor.fetchone()
    bits = (int(records) // PORTION_RECORDS).bit_length()
    for number in range(1 << bits):
        for place in (connection, *elsewhere):
            found = read_range(place, KeyRange(number, bits))
            builder.add(found.high, found.starts, found.attribute_ids.astype(np.int64))
    return builder.sketches


def stream_hashes(connection: Connection, attribute_id: int, count: int) -> Iterator[UInt64s]:
    """Give the hashes of an attribute's `count` values, range by range of the keys; to lock as `build_sketches` has it.

    In each range they are in no order. What fails because of the database, or of others in the way, is a StateError.
    """
    bits = (count // PORTION_RECORDS).bit_length()
    with cast(Any, connection.connection).cursor() as cursor:
        for number in range(1 << bits):
            condition = KeyRange(number, bits).condition()
            try:
                keys = read_keys(cursor, KEYS.format(condition=condition, attribute_id=attribute_id))
            except psycopg2.Error as error:
                raise state_error(error, connection.engine.url) or error from error
            yield keys.high


def told_fault(name: str, cause: object) -> str:
    """Say whose sketch cannot be used, and what to do."""
    return f"{name}: {cause}; bootstrap its source again with --replace, which makes its sketch anew"
