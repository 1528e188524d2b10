"""Own what the ranking of foreign keys reads of stored values: how they look, and how they spread over a key's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from sqlalchemy import Connection, Row, text

from service.core.memberships import Memberships, counts_by_cell
from service.core.quantile_grids import GridHistogram, KeyHistogram, QuantileGrid
from service.core.records import Int64s
from service.core.value_order import ValueOrder
from service.store.shard_reading import RECORD_CLUSTERS
from service.usecases.foreign_key_ports import DeclaredKey, ValueStatistics, WantedGrid

PORTION = 10_000

_WHOLE_BYTES = 252
"""Bytes up to which a stored text is the whole value: a longer one is cut at 256, in front of a character."""

# A test for digits alone, which most keys are, costs a fraction of a regular expression.
_KIND = r"""
case when value <> '' and translate(value, '0123456789', '') = '' then 'integer'
     when value ~ '^-[0-9]+$' then 'integer'
     when value ~ '^-?[0-9]+\.[0-9]+$' then 'number'
     when value in ('-Infinity', 'Infinity', 'NaN') then 'beyond' else 'text' end
"""

# Values are counted by cluster first, as a cluster has many of them and few attributes.
STATISTICS = rf"""
with of_cluster as (
  select cluster_id, count(*) as total, count(*) filter (where kind = 'integer') as integers,
    count(*) filter (where kind = 'number') as decimals, count(*) filter (where kind = 'beyond') as beyond,
    sum(char_length(value)) as characters, max(octet_length(value)) as longest,
    min(value collate "C") as first, max(value collate "C") as last,
    min(case when kind <> 'text' then value::numeric end) as least,
    max(case when kind <> 'text' then value::numeric end) as greatest
  from gen_rec, lateral (select {_KIND} as kind) k
  where cluster_id = any (array(select cluster_id from {RECORD_CLUSTERS} c where attribute_ids && :ids))
  group by cluster_id
)
select attribute_id, sum(total)::bigint as total, sum(integers)::bigint as integers, sum(decimals)::bigint as decimals,
  sum(beyond)::bigint as beyond, sum(characters)::bigint as characters, max(longest) as longest,
  min(first collate "C") as first, max(last collate "C") as last, min(least)::text as least,
  max(greatest)::text as greatest
from of_cluster join {RECORD_CLUSTERS} c using (cluster_id), unnest(attribute_ids) as attribute_id
where attribute_id = any (:ids) group by attribute_id order by attribute_id
"""

_LEADING = r"coalesce(substring(value from '^[ \t]*(-?[0-9]*\.?[0-9]+|-?[0-9]+)')::numeric, 0)"
_ORDERS = {
    ValueOrder.LEXICOGRAPHIC: "0",
    ValueOrder.MIXED: _LEADING,
    ValueOrder.NUMERIC: f"""case when value <> '' and translate(value, '0123456789', '') = ''
        or value in ('-Infinity', 'Infinity', 'NaN') then value::numeric else {_LEADING} end""",
}
"""The numbers of the keys of `core/value_order`, behind which the text decides."""

# A value's rank is how many of the key's are not behind it; one that the key lacks is in the cell of the key's next.
# Cell i ends at the key's value of rank ⌈distinct · (i + 1) / cells⌉. Which attributes a cluster has is not asked here:
# of a thousand columns that count, each value is in hundreds.
SPREADS = """
with placed as (
  select cluster_id, in_key, value, count(*) filter (where in_key)
    over (order by {order}, value collate "C" rows unbounded preceding) as rank
  from gen_rec, lateral (select cluster_id = any (cast(:of_key as bigint[])) as in_key) k
  where cluster_id = any (cast(:clusters as bigint[]))
), in_cells as (
  select *, ((case when in_key then rank else least(rank + 1, :distinct) end) - 1) * :cells / :distinct as cell
  from placed
)
select cluster_id, cell, count(*) as total,
  max(value) filter (where in_key and rank = (:distinct * (cell + 1) + :cells - 1) / :cells) as bound
from in_cells group by 1, 2
"""

# Lists are taken as texts, and parsed all at once: as lists each number would be made by itself.
CLUSTERS = f"""
select cluster_id, cardinality(attribute_ids), value_count, array_to_string(attribute_ids, ' ')
from {RECORD_CLUSTERS} c order by cluster_id
"""

# Of tuples each column has ranks of its own, among the values of the key's column and the parts that it lacks.
TUPLE_SPREADS = (
    """
with chosen as materialized (
  select cluster_id, attribute_ids from """
    + RECORD_CLUSTERS
    + """ c where attribute_ids && :ids
), tuples as materialized (
  select cluster_id, {parts}
  from gen_rec where cluster_id = any (array(select cluster_id from chosen))
), {columns}, counted as (
  select cluster_id, array[{places}] as place, count(*) as total from tuples {joined} group by 1, 2
)
select attribute_id, place::int[] as place, sum(total)::bigint as total, null as bound
from counted join chosen using (cluster_id), unnest(attribute_ids) as attribute_id
where attribute_id = any (:ids) group by 1, 2 {bounds} order by 1, 2
"""
)
PART = "value::json ->> {i} as part_{i}"
COLUMN = (
    """
placed_{i} as (
  select value, in_key, count(*) filter (where in_key)
    over (order by {order}, value collate "C" rows unbounded preceding) as rank
  from (select value, bool_or(in_key) as in_key from (
      select value, true as in_key from gen_rec
      where cluster_id = any (array(select cluster_id from """
    + RECORD_CLUSTERS
    + """ c where attribute_ids @> array[:column_{i}]))
      union all select distinct part_{i}, false from tuples
    ) present group by value) distinct_values
), column_{i} as materialized (
  select *, ((case when in_key then rank else least(rank + 1, :distinct_{i}) end) - 1)
    * :cells_{i} / :distinct_{i} as cell
  from placed_{i}
)"""
)
BOUNDS = """
union all select {i} - {arity}, array[cell::int], count(*),
  max(value) filter (where rank = (:distinct_{i} * (cell + 1) + :cells_{i} - 1) / :cells_{i})
from column_{i} where in_key group by 1, 2
"""

DECLARED = """
select schema_name, table_name, coalesce(parts, array[ordinal]) as ordinals, is_primary
from tracked_key join attribute using (attribute_id) where kind = 'declared' and dropped_version is null
order by tracked_key.key_id
"""


def read_statistics(connection: Connection, attribute_ids: Sequence[int]) -> Iterator[tuple[int, ValueStatistics]]:
    """Tell how the values of attributes look, by (attribute_id); nothing of one without stored values."""
    for row in connection.execute(text(STATISTICS), {"ids": list(attribute_ids)}):
        yield row.attribute_id, _statistics(row)


def read_memberships(connection: Connection) -> Memberships:
    """Read which attributes are in which clusters."""
    numbers, members = [np.zeros((0, 3), np.int64)], [np.zeros(0, np.int64)]
    for rows in connection.execute(text(CLUSTERS)).partitions(PORTION):
        *columns, lists = zip(*rows, strict=True)
        numbers.append(np.array(columns, np.int64).T)
        members.append(np.fromstring(" ".join(lists), np.int64, sep=" "))
    return Memberships.of(np.concatenate(numbers), np.concatenate(members))


def read_spreads(
    connection: Connection, memberships: Memberships, wanted: WantedGrid, attribute_ids: Sequence[int]
) -> tuple[KeyHistogram, dict[int, GridHistogram]]:
    """Give a key's exact histogram, and those of attributes over its grid, of all values that are stored."""
    ids = [wanted.key_id, *attribute_ids]
    if len(wanted.columns) > 1:
        return _tuple_spreads(connection, wanted, ids)
    (distinct,), (order,) = wanted.distinct, wanted.orders
    cells = min(wanted.cells, distinct)
    owners, members = memberships.among(ids)
    values = {
        "clusters": _array(memberships.clusters[owners[np.diff(owners, prepend=-1) > 0]]),
        "of_key": _array(memberships.clusters[owners[members == 0]]),
        "distinct": distinct,
        "cells": cells,
    }
    rows = connection.execute(text(SPREADS.format(order=_ORDERS[order])), values).all()
    clusters, *counted = np.array([(row.cluster_id, row.cell, row.total) for row in rows], np.int64).T
    places = np.searchsorted(memberships.clusters, clusters)
    counts = counts_by_cell(owners, members, (places, counted[0], counted[1]), (len(ids), cells))
    bounds = sorted((row.cell, row.bound) for row in rows if row.bound is not None)
    grid = QuantileGrid(order, tuple(bound for _, bound in bounds))
    found = {}
    for attribute_id, of_cells in zip(ids, counts, strict=True):
        places = np.flatnonzero(of_cells)
        found[attribute_id] = GridHistogram((cells,), places, of_cells[places])
    of_key = found.pop(wanted.key_id)
    return KeyHistogram((grid,), (of_key.dense(),), of_key), found


def _array(numbers: Int64s) -> str:
    """Write numbers as Postgres reads an array: as a list each would be parsed as an expression."""
    return f"{{{','.join(map(str, numbers.tolist()))}}}"


def _tuple_spreads(
    connection: Connection, wanted: WantedGrid, ids: Sequence[int]
) -> tuple[KeyHistogram, dict[int, GridHistogram]]:
    arity = len(wanted.columns)
    shape = tuple(min(wanted.cells, distinct) for distinct in wanted.distinct)
    statement = TUPLE_SPREADS.format(
        parts=", ".join(PART.format(i=i) for i in range(arity)),
        columns=", ".join(COLUMN.format(i=i, order=_ORDERS[order]) for i, order in enumerate(wanted.orders)),
        places=", ".join(f"column_{i}.cell" for i in range(arity)),
        joined=" ".join(f"join column_{i} on column_{i}.value = part_{i}" for i in range(arity)),
        bounds="".join(BOUNDS.format(i=i, arity=arity) for i in range(arity)),
    )
    values: dict[str, Any] = {"ids": list(ids)}
    for i, (column, distinct, cells) in enumerate(zip(wanted.columns, wanted.distinct, shape, strict=True)):
        values |= {f"column_{i}": column, f"distinct_{i}": distinct, f"cells_{i}": cells}
    found, grids, counts = {}, [], []
    for attribute_id, group in groupby(connection.execute(text(statement), values), lambda row: int(row.attribute_id)):
        rows = list(group)
        totals = np.array([row.total for row in rows], np.int64)
        if attribute_id < 0:  # the grid of a column: they come first, in their order
            grids.append(QuantileGrid(wanted.orders[attribute_id + arity], tuple(row.bound for row in rows)))
            counts.append(totals)
        else:
            cells = np.ravel_multi_index(tuple(np.array([row.place for row in rows], np.int64).T), shape)
            found[attribute_id] = GridHistogram(shape, cells, totals)
    return KeyHistogram(tuple(grids), tuple(counts), found.pop(wanted.key_id)), found


def read_declared_keys(connection: Connection) -> list[DeclaredKey]:
    """List the keys that sources declare."""
    rows = connection.execute(text(DECLARED))
    return [DeclaredKey(row.schema_name, row.table_name, tuple(row.ordinals), row.is_primary) for row in rows]


def _statistics(row: Row[*tuple[Any, ...]]) -> ValueStatistics:
    """Find the order as `order_of` does: a column of nothing but NaN and Infinity has no number."""
    numbers, texts = row.integers + row.decimals, row.total - row.integers - row.decimals - row.beyond
    order, ends = ValueOrder.LEXICOGRAPHIC, (row.first, row.last)
    if numbers:
        order, ends = (ValueOrder.MIXED, (None, None)) if texts else (ValueOrder.NUMERIC, (row.least, row.greatest))
    return ValueStatistics(
        order, *ends, row.integers == row.total, row.characters / row.total, row.longest > _WHOLE_BYTES
    )
