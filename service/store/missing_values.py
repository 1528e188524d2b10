"""Own which values of an attribute another lacks, wherever the shards are that have them, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, text

from service.store.canonical_sql import key_expression
from service.store.shard_reading import RECORD_CLUSTERS
from service.store.shown_values import shown_value
from service.usecases.answers import Key, MissingValue

LOWEST = "00000000-0000-0000-0000-000000000000"

OF_DEPENDENT = "select parts is not null, shown_characters from attribute where attribute_id = :dependent_id"

# As many clusters as a page can need, by their complete counts (none is empty; the first may be read already);
# then each one's records in the order of its index, compared by both of its columns: with `cluster_id =` the planner
# may walk the primary key instead, which is in the same order and has the records of all clusters.
MISSING_VALUES = f"""
with lacking as (
    select cluster_id, value_count from {RECORD_CLUSTERS} c
    where attribute_ids @> :dependent and not attribute_ids @> :referenced and cluster_id >= :cluster_id
    order by cluster_id limit :limit + 1
), needed as materialized (
    select cluster_id from (
        select cluster_id, coalesce(sum(value_count) filter (where cluster_id > :cluster_id)
            over (order by cluster_id rows between unbounded preceding and 1 preceding), 0) as before
        from lacking
    ) counted where before < :limit
)
select g.shown as value, g.value_key::text as value_key, n.cluster_id,
       g.shown is null or {key_expression("g.shown", ":is_tuple")} <> g.value_key as is_cut,
       nullif(g.frequencies[array_position(g.attribute_ids, :dependent_id)], 0) as frequency
from needed n cross join lateral (
    select {shown_value(characters=":shown_characters")} as shown, value_key, attribute_ids, frequencies from gen_rec
    where cluster_id <= n.cluster_id and (cluster_id, value_key) >= (n.cluster_id,
        case when n.cluster_id = :cluster_id then cast(:value_key as uuid) else cast(:lowest as uuid) end)
      and value_key is distinct from cast(:value_key as uuid)
    order by cluster_id, value_key limit :limit
) g
order by n.cluster_id, g.value_key limit :limit
"""


def read_missing(
    places: Sequence[Connection], dependent_id: int, referenced_id: int, after: Key | None, limit: int
) -> list[MissingValue]:
    """List them by (cluster_id, value_key); `places` are the state's own database and the servers of shards."""
    cluster_id, value_key = (after[0], after[1]) if after else (-1, None)
    ((is_tuple, shown_characters),) = places[0].execute(text(OF_DEPENDENT), {"dependent_id": dependent_id})
    asked = {
        "dependent": [dependent_id],
        "referenced": [referenced_id],
        "dependent_id": dependent_id,
        "cluster_id": cluster_id,
        "value_key": value_key,
        "is_tuple": is_tuple,
        "shown_characters": shown_characters,
        "lowest": LOWEST,
        "limit": limit,
    }
    rows = [row for place in places for row in place.execute(text(MISSING_VALUES), asked)]
    rows.sort(key=lambda row: (row.cluster_id, row.value_key))
    return [MissingValue(**row._mapping) for row in rows[:limit]]
