"""Own how clusters are read, block by block, and how a batch writes them.

New ones by COPY, counts of the others by COPY into staging and one update.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg2.errors
from numpy.typing import NDArray

from service.core.clustering import ClusterCounts, ClusterSets
from service.core.compiled import kernel
from service.core.errors import DamagedStateError
from service.store.bulk import INT4_OID, get4, get8, put4, put8, put_array_header
from service.store.copy_stream import copy_blocks, for_each_block

STAGING = """
create temporary table if not exists staged_cluster (
    cluster_id bigint not null, value_count bigint not null
) on commit delete rows;
"""

BLOCK_CLUSTERS = 65_536
"""Clusters that are turned into one block of the COPY stream: a few MB."""

_COUNT_ROW = np.dtype([("fields", ">u2"), ("id_bytes", ">u4"), ("id", ">i8"), ("count_bytes", ">u4"), ("count", ">i8")])

Bytes = NDArray[np.uint8]
Int64s = NDArray[np.int64]


def read(cursor: Any, table: str, condition: str = "") -> ClusterSets:
    """Read the clusters of a table, those of a condition or all."""
    parts = [ClusterSets.of()]
    where = f" where {condition}" if condition else ""
    query = f"select cluster_id, value_count, attribute_ids from {table}{where}"
    for_each_block(cursor, query, lambda rows: parts.append(ClusterSets(*_decode(rows))))
    return ClusterSets.joined(parts)


def write(cursor: Any, clusters: ClusterCounts, table: str = "cluster") -> None:
    """Delete the clusters that are gone, and write those that are new and the counts of the others.

    Raises DamagedStateError when the clusters are not as they were last seen.
    """
    if len(clusters.gone):
        cursor.execute(f"delete from {table} where cluster_id = any (%s)", (clusters.gone.tolist(),))
        _require(cursor.rowcount, len(clusters.gone), "deleted")
    new, known = np.flatnonzero(clusters.is_new), np.flatnonzero(~clusters.is_new)
    if len(new):
        try:
            copy_blocks(cursor, table, cluster_blocks(clusters, new))
        except psycopg2.errors.UniqueViolation as error:
            raise DamagedStateError(
                "The state was changed by another hand: a cluster that was to be new is there already "
                f"({error.diag.message_detail}). Nothing of this batch was stored; run `subsetd verify`."
            ) from error
    if len(known):
        copy_blocks(cursor, "staged_cluster", [_count_rows(clusters.cluster_id[known], clusters.values[known])])
        cursor.execute(
            f"update {table} as stored set value_count = staged.value_count from staged_cluster as staged "
            "where stored.cluster_id = staged.cluster_id"
        )
        _require(cursor.rowcount, len(known), "changed")


def cluster_blocks(clusters: ClusterCounts, chosen: Int64s) -> Iterator[Any]:
    """Give the chosen clusters (their places) as rows of a binary COPY, block by block."""
    for start in range(0, len(chosen), BLOCK_CLUSTERS):
        places = chosen[start : start + BLOCK_CLUSTERS]
        cells = int((clusters.starts[places + 1] - clusters.starts[places]).sum())
        block = np.empty(len(places) * (2 + 12 + 24 + 12) + cells * 8, np.uint8)
        _encode(block, places, clusters.cluster_id, clusters.starts, clusters.attribute_ids, clusters.values)
        yield block.data


def _require(found: int, wanted: int, done: str) -> None:
    if found != wanted:
        raise DamagedStateError(
            f"The state was changed by another hand: {wanted} clusters were to be {done}, {found} were. "
            "Nothing of this batch was stored; run `subsetd verify`."
        )


def _count_rows(cluster_ids: Int64s, counts: Int64s) -> Any:
    rows = np.empty(len(cluster_ids), _COUNT_ROW)
    rows["fields"], rows["id_bytes"], rows["count_bytes"] = 2, 8, 8
    rows["id"], rows["count"] = cluster_ids, counts
    return rows.view(np.uint8).data


@kernel
def _encode(
    block: Bytes, places: Int64s, cluster_id: Int64s, starts: Int64s, attribute_ids: Int64s, values: Int64s
) -> None:
    at = 0
    for place in places:
        block[at] = 0
        block[at + 1] = 3
        at = put4(block, at + 2, 8)
        at = put8(block, at, np.uint64(cluster_id[place]))
        at = put_array_header(block, at, starts[place + 1] - starts[place], 4, INT4_OID)
        for i in range(starts[place], starts[place + 1]):
            at = put4(block, at, 4)
            at = put4(block, at, attribute_ids[i])
        at = put4(block, at, 8)
        at = put8(block, at, np.uint64(values[place]))


@kernel
def _decode(rows: Bytes) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """Read ids, starts, attribute ids and counts; a row takes 50 bytes, and 8 for each attribute."""
    clusters = cells = at = 0
    while at < len(rows) and rows[at] != 0xFF:
        width = get4(rows, at + 42)
        cells += width
        at += 50 + 8 * width
        clusters += 1
    cluster_id, values = np.empty(clusters, np.int64), np.empty(clusters, np.int64)
    starts, attribute_ids = np.zeros(clusters + 1, np.int64), np.empty(cells, np.int64)
    at = done = 0
    for cluster in range(clusters):
        cluster_id[cluster] = np.int64(get8(rows, at + 6))
        values[cluster] = np.int64(get8(rows, at + 18))
        width = get4(rows, at + 42)
        for i in range(width):
            attribute_ids[done] = get4(rows, at + 54 + 8 * i)
            done += 1
        starts[cluster + 1] = done
        at += 50 + 8 * width
    return cluster_id, starts, attribute_ids, values
