"""Own the histograms that are kept, in Postgres: what a version changes of their values, and how they are put and read.

A followed attribute's changes stand in a log, a row a version, from its `since_version` on. Kept histograms are of that
version or of a later one, so that whoever reads both, in any later version, can bring them up to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import orjson
from sqlalchemy import Connection, Engine, text

from service.core.histogram_changes import Histograms, Switched, switches_from_bytes, switches_to_bytes
from service.core.quantile_grids import GridHistogram, KeyHistogram, QuantileGrid
from service.core.value_order import ValueOrder
from service.store.contract_upkeep import IS_CURRENT
from service.store.versions import NEWEST
from service.usecases.foreign_key_ports import KeptStatistics, ValueStatistics
from service.usecases.live_state import BatchCommit

MOST_BYTES = 16 << 20
"""How long the log may be: beyond, to bring histograms up takes as long as to measure them, and they are forgotten."""

# Whoever follows more attributes takes share row exclusive: every batch behind his commit knows of them.
FOLLOWED = "lock table followed_attribute in row exclusive mode; select attribute_id from followed_attribute"
LOCK_OUT_BATCHES = "lock table followed_attribute in share row exclusive mode"

# The first statement waits for whoever keeps histograms, so that the second sees what he has kept.
REPLACED = """
update followed_attribute set since_version = %(version)s where attribute_id = any (%(ids)s);
delete from key_histogram where attribute_ids && %(ids)s
"""

# As in FORGET, the first statement waits for whoever keeps histograms.
HAS = """
lock table followed_attribute in row exclusive mode;
select exists (select from followed_attribute where attribute_id = any (%(ids)s))
    or exists (select from key_histogram where attribute_ids && %(ids)s)
"""

# The query for the first row does not see the new one: where that is the first itself, it finds none.
LOG = """
insert into value_change
select %(version)s, coalesce((select total_bytes from value_change order by version desc limit 1), 0) + %(size)s,
    %(changes)s
returning total_bytes
    - coalesce((select total_bytes - octet_length(changes) from value_change order by version limit 1), 0)
"""
FORGET = "delete from followed_attribute; delete from key_histogram; delete from value_change"

UNFOLLOW = "delete from followed_attribute where attribute_id <> all (:ids)"
FOLLOW = """
insert into followed_attribute select attribute_id, :newest from attribute
where attribute_id = any (cast(:ids as integer[])) and shown_characters is null on conflict (attribute_id) do nothing
"""
FOLLOW_ALL = f"""
insert into followed_attribute
select attribute_id, newest.version
from attribute join source using (source_id), (select {NEWEST} as version) newest
where newest.version is not null and {IS_CURRENT}
  and shown_characters is null
on conflict (attribute_id) do nothing
"""
FOLLOW_KEPT = """
delete from followed_attribute
where not exists (select from key_histogram where followed_attribute.attribute_id = any (attribute_ids));
delete from value_change where not exists (select from followed_attribute)
"""
SINCE = "select attribute_id from followed_attribute where since_version <= :version"
PUT = "insert into key_histogram values (:key_id, :version, :attribute_ids, :histograms)"
SHORTEN = """
update followed_attribute set since_version = :version where since_version < :version;
delete from value_change where version <= :version
"""

READ = "select version, histograms from key_histogram where key_id = :key_id"
LOOKS = "select version, convert_from(histograms, 'UTF8')::json -> 'looks' as looks from key_histogram"
CHANGES = "select version, changes from value_change order by version"


def write_changes(cursor: Any, commit: BatchCommit) -> None:
    """Log what a version changes in the values of followed attributes; forget them when nobody asked for long."""
    cursor.execute(FOLLOWED)
    followed = {attribute_id for (attribute_id,) in cursor}
    if not followed:
        return
    if commit.emptied is not None:
        forget_values(cursor, [attribute.attribute_id for attribute in commit.emptied.followed], commit.version)
    switches = commit.delta.values.of(followed)
    if not switches:
        return
    changes = switches_to_bytes(switches)
    cursor.execute(LOG, {"version": commit.version, "size": len(changes), "changes": changes})
    ((size,),) = cursor.fetchall()
    if size > MOST_BYTES:
        cursor.execute(FORGET)


def forget_values(cursor: Any, attribute_ids: Sequence[int], version: int) -> None:
    """Have attributes measured anew whose values are others at a version, and were not logged; commits nothing."""
    cursor.execute(REPLACED, {"version": version, "ids": list(attribute_ids)})


def forget_if_had(cursor: Any, attribute_ids: Sequence[int]) -> None:
    """Forget all histograms, and what was logged for them, where some of these attributes have a part in it."""
    cursor.execute(HAS, {"ids": list(attribute_ids)})
    if cursor.fetchone()[0]:
        cursor.execute(FORGET)


def follow_all(engine: Engine) -> None:
    """Have the changes of all attributes logged, until `keep_histograms` or `follow_kept` says of which."""
    with engine.begin() as connection:
        connection.execute(text(LOCK_OUT_BATCHES))
        connection.execute(text(FOLLOW_ALL))


def follow_kept(engine: Engine) -> None:
    """Have the changes logged of those attributes alone that kept histograms have."""
    with engine.begin() as connection:
        connection.execute(text(LOCK_OUT_BATCHES))
        for statement in FOLLOW_KEPT.split(";"):
            connection.execute(text(statement))


def keep_histograms(
    engine: Engine, version: int, histograms: Sequence[Histograms], statistics: Mapping[int, ValueStatistics]
) -> None:
    """Keep histograms of a version in the place of all others, and have the changes of their attributes logged.

    With each the statistics of its attributes are kept. Not kept are those of which an attribute was not followed at
    that version yet.
    """
    ids = sorted(set().union(*(one.attribute_ids for one in histograms)))
    with engine.begin() as connection:
        connection.execute(text(LOCK_OUT_BATCHES))
        newest = connection.scalar(text(f"select {NEWEST}"))
        connection.execute(text(UNFOLLOW), {"ids": ids})
        connection.execute(text(FOLLOW), {"ids": ids, "newest": newest})
        known = set(connection.scalars(text(SINCE), {"version": version}))
        connection.execute(text("delete from key_histogram"))
        for one in histograms:
            if one.attribute_ids <= known:
                row = {"key_id": one.key_id, "version": version, "attribute_ids": sorted(one.attribute_ids)}
                connection.execute(text(PUT), row | {"histograms": _to_bytes(one, statistics)})
        for statement in SHORTEN.split(";"):
            connection.execute(text(statement), {"version": version})


def read_histograms(connection: Connection, key_id: int) -> tuple[int, Histograms] | None:
    """Give the histograms of a key that are kept, and as of which version; None where there are none."""
    row = connection.execute(text(READ), {"key_id": key_id}).one_or_none()
    return None if row is None else (row.version, _from_json(key_id, orjson.loads(row.histograms)))


def read_kept_statistics(connection: Connection) -> dict[int, KeptStatistics]:
    """Give what is kept of attributes beside their histograms, by id."""
    return {
        int(i): KeptStatistics(row.version, distinct, ValueStatistics(ValueOrder(order), *looks))
        for row in connection.execute(text(LOOKS))
        for i, (distinct, order, *looks) in (row.looks or {}).items()
    }


def read_value_changes(connection: Connection) -> list[tuple[int, dict[int, Switched]]]:
    """Give what is logged of the values of followed attributes, by version."""
    return [(row.version, switches_from_bytes(bytes(row.changes))) for row in connection.execute(text(CHANGES))]


def _to_bytes(kept: Histograms, statistics: Mapping[int, ValueStatistics]) -> bytes:
    """Give histograms as JSON: of the key its columns and grids, and of all, by attribute id, cells and counts.

    `looks` has of each attribute the number of its distinct values and how they look.
    """
    grids = kept.of_key.grids
    distinct = {column: int(counts.sum()) for column, counts in zip(kept.columns, kept.of_key.columns, strict=True)}
    distinct |= {i: of.total for i, of in {kept.key_id: kept.of_key.tuples, **kept.others}.items()}
    whole = {
        "columns": kept.columns,
        "cells": kept.cells,
        "grids": [(grid.order, grid.bounds) for grid in grids],
        "counts": [counts.tolist() for counts in kept.of_key.columns],
        "by_id": {
            str(i): (of.cells.tolist(), of.counts.tolist())
            for i, of in {kept.key_id: kept.of_key.tuples, **kept.others}.items()
        },
        "looks": {str(i): [of, *astuple(statistics[i])] for i, of in distinct.items() if i in statistics},
    }
    return orjson.dumps(whole)


def _from_json(key_id: int, found: Mapping[str, Any]) -> Histograms:
    grids = tuple(QuantileGrid(ValueOrder(order), tuple(bounds)) for order, bounds in found["grids"])
    shape = tuple(map(len, grids))
    by_id = {
        int(i): GridHistogram(shape, np.array(cells, np.int64), np.array(counts, np.int64))
        for i, (cells, counts) in found["by_id"].items()
    }
    columns = tuple(np.array(counts, np.int64) for counts in found["counts"])
    of_key = KeyHistogram(grids, columns, by_id.pop(key_id))
    return Histograms(key_id, tuple(found["columns"]), found["cells"], of_key, by_id)
