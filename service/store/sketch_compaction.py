"""Own the compaction of the sketches' log: folding it into the sketches, and reading smallest hashes again.

Each step is a transaction of its own beside the consumer's, after which the sketches are of the same values: it sees
one version and writes what is true of it. How many smallest hashes there are may differ (`read_upkeep_tag`). Where
somebody else wrote a sketch meanwhile (a truncate, a bootstrap), Postgres lets it fail (REPEATABLE READ), and it is
taken again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

import numpy as np
from sqlalchemy import Connection, text

from service.core.errors import SketchError
from service.core.records import distinct_of
from service.core.sketch_changes import SketchChanges
from service.core.sketch_upkeep import SketchForm, apply_changes
from service.core.sketches.column import ColumnSketch
from service.store.database import OthersInTheWayError, make_engine
from service.store.locks import COMPACTION_LOCK
from service.store.shard_reading import Elsewhere, lock_records
from service.store.sketch_reading import read_changes, stream_hashes, told_fault
from service.store.versions import NEWEST

Result = TypeVar("Result")

COMPACTOR_NAME = "subsetd sketches"

BACKLOG = "select version, octet_length(changes) as size from sketch_change order by version"
SKETCH = """
select version, sketch, concat_ws('.', schema_name, table_name, column_name), sketch_only and not needs_rescan
from sketch join attribute using (attribute_id) join source using (source_id)
where attribute_id = :attribute_id and fault is null
"""
FOLDED = """
update sketch set version = :version, sketch = :sketch, needs_rescan = :needs_rescan where attribute_id = :attribute_id
"""
FAULTY = "update sketch set fault = :fault where attribute_id = :attribute_id"
IS_SHORT = """
sketch join attribute using (attribute_id) join source using (source_id)
where needs_rescan and not sketch_only and fault is null
"""
SHORT = f"select attribute_id from {IS_SHORT} order by attribute_id limit 1"
RESCANNED = f"""
select array[bucket_bits, k, spares], distinct_count, {NEWEST}
from sketch_form, {IS_SHORT} and attribute_id = :attribute_id
"""


class PostgresSketchLog:
    """Implement ports.SketchLog on a connection of its own."""

    def __init__(self, url: str) -> None:
        engine = make_engine(url, COMPACTOR_NAME, pool_size=1, max_overflow=0)
        self._engine = engine.execution_options(isolation_level="REPEATABLE READ")

    def backlog(self) -> tuple[int, int]:
        with self._engine.connect() as connection:
            sizes = [row.size for row in connection.execute(text(BACKLOG))]
        return len(sizes), sum(sizes)

    def fold(self, most_bytes: int) -> list[str] | None:
        return self._take(lambda connection, _: _fold_oldest(connection, most_bytes))

    def rescan(self) -> bool:
        with self._engine.connect() as connection:
            attribute_id = connection.scalar(text(SHORT))
        if attribute_id is None:
            return False
        return self._take(lambda *places: _rescan(attribute_id, *places), first=lock_records) is not None

    def close(self) -> None:
        self._engine.dispose()

    def _take(
        self, step: Callable[[Connection, Elsewhere], Result], first: Callable[[Connection], Elsewhere] | None = None
    ) -> Result | None:
        """Take a step in a transaction as the one compactor; None when there is another, or others were in the way."""
        with self._engine.connect() as connection, ExitStack() as closing:
            elsewhere = Elsewhere()
            try:
                if first is not None:
                    elsewhere = closing.enter_context(first(connection))
                if not connection.scalar(text("select pg_try_advisory_xact_lock(:lock)"), {"lock": COMPACTION_LOCK}):
                    return None
                result = step(connection, elsewhere)
                connection.commit()
            except OthersInTheWayError:
                return None
        return result


def _fold_oldest(connection: Connection, most_bytes: int) -> list[str]:
    """Fold the oldest versions of the log, as many as so many bytes hold; give what is to be told of sketches."""
    versions = connection.execute(text(BACKLOG)).all()
    if not versions:
        return []
    behind = int(np.searchsorted(np.cumsum([row.size for row in versions]), most_bytes, side="right"))
    until = versions[max(behind - 1, 0)].version
    log = read_changes(connection, 0, until)
    touched = distinct_of(np.concatenate([changes.attribute_ids for _, changes in log]))
    told = [_fold(connection, attribute_id, until, log) for attribute_id in touched.tolist()]
    connection.execute(text("delete from sketch_change where version <= :until"), {"until": until})
    return [one for one in told if one is not None]


def _fold(connection: Connection, attribute_id: int, until: int, log: list[tuple[int, SketchChanges]]) -> str | None:
    """Fold the log into an attribute's sketch; give what is to be told of it.

    A sketch that cannot be true gets a fault. One whose smallest hashes run short is built anew (`_rescan`), but of a
    sketch-only source there are no values to build it from.
    """
    row = connection.execute(text(SKETCH), {"attribute_id": attribute_id}).one_or_none()
    if row is None:
        return None
    version, data, name, is_to_be_told = row
    try:
        sketch = ColumnSketch.from_bytes(bytes(data))
        apply_changes(sketch, [changes for at, changes in log if at > version], attribute_id)
    except SketchError as error:
        connection.execute(text(FAULTY), {"attribute_id": attribute_id, "fault": str(error)})
        return told_fault(name, error)
    _write(connection, attribute_id, max(until, version), sketch)
    return told_short(name, sketch) if is_to_be_told and sketch.needs_rescan else None


def told_short(name: str, sketch: ColumnSketch) -> str:
    """Say whose smallest hashes have run short, and what to do."""
    return (
        f"{name}: {len(sketch.bottom.hashes)} of its {sketch.bottom.k} smallest hashes are left, and its source is "
        "sketch-only: coefficients are estimated from fewer; bootstrap its source again with --replace to have all"
    )


def _write(connection: Connection, attribute_id: int, version: int, sketch: ColumnSketch) -> None:
    connection.execute(
        text(FOLDED),
        {
            "attribute_id": attribute_id,
            "version": version,
            "sketch": sketch.to_bytes(),
            "needs_rescan": sketch.needs_rescan,
        },
    )


def _rescan(attribute_id: int, connection: Connection, elsewhere: Elsewhere) -> bool:
    """Build an attribute's sketch anew from the values that have it, range by range of the keys."""
    row = connection.execute(text(RESCANNED), {"attribute_id": attribute_id}).one_or_none()
    if row is None:
        return True  # a bootstrap was published while this waited for the records, and made the sketch anew
    form, count, version = row
    sketch = SketchForm(*form).empty()
    for place in (connection, *elsewhere.connections):
        for hashes in stream_hashes(place, attribute_id, count):
            sketch.update(hashes)
    _write(connection, attribute_id, version, sketch)
    return True
