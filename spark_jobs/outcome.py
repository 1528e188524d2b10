"""Own what comes of a bootstrap: its attributes with their counters, its summary, and how that is told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.store.declared_references import NewReference
from service.store.generation import NOT_READ, NewAttribute, NewName
from service.store.keys import NewKey
from spark_jobs.sources import Options, SourceTable
from spark_jobs.tasks import PartitionResult

WARNINGS_TOLD = 5


@dataclass(slots=True)
class Summary:
    """Tell what a bootstrap did; `version` is None when nothing was stored."""

    version: int | None = None
    tables: int = 0
    attributes: int = 0
    tuples: int = 0
    rows: int = 0
    values: int = 0
    clusters: int = 0
    inds: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    pairs: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 2), np.int32), repr=False)
    differences: list[str] = field(default_factory=list)
    warnings: Sequence[str] = ()
    images: Sequence[str] = ()

    def count(
        self, clusters: Mapping[int, tuple[Sequence[int], int]], inds: NDArray[np.int32], of_tuples: Collection[int]
    ) -> None:
        """Tell of the columns alone, `of_tuples` being the other attributes: no cluster and no IND is of both."""
        of_columns = [size for ids, size in clusters.values() if ids[0] not in of_tuples]
        self.values, self.clusters = sum(of_columns), len(of_columns)
        self.pairs = inds[~np.isin(inds[:, 0], list(of_tuples))]
        self.inds = len(self.pairs)


def cluster_sizes(results: Iterable[PartitionResult]) -> dict[Any, int]:
    """Add up how many values each cluster has, by its id, or by its attributes where nothing is stored."""
    sizes: dict[Any, int] = {}
    for result in results:
        for cluster, size in zip(result.clusters, result.cluster_sizes.tolist(), strict=True):
            key = cluster if isinstance(cluster, tuple) else int(cluster)
            sizes[key] = sizes.get(key, 0) + size
    return sizes


def attributes_of(
    tables: Sequence[SourceTable],
    names: Sequence[NewName],
    ids: Sequence[int],
    row_counts: NDArray[np.int64],
    counters: NDArray[np.int64],
    shown: Sequence[int | None],
    options: Options,
) -> list[NewAttribute]:
    """Give the attributes of tables with what was counted: rows by table, `counters` as PartitionResult has them.

    `shown` says beside `names` how many characters of values are kept.
    """
    attributes: list[NewAttribute] = []
    of_names = iter(zip(names, ids, shown, strict=True))
    for number, table in enumerate(tables):
        rows = int(row_counts[number])
        for place, (_, data_type, _) in enumerate(table.attributes):
            (name, parts), attribute_id, shown_characters = next(of_names)
            if attribute_id == NOT_READ:
                continue
            distinct, repeated, occurrences = (int(c) for c in counters[:, attribute_id])
            attributes.append(
                NewAttribute(
                    attribute_id,
                    name,
                    place if parts is None else parts[0],
                    data_type,
                    rows,
                    rows - occurrences,
                    None if options.sketch_only else distinct,
                    None if options.sketch_only or options.insert_only else repeated,
                    parts,
                    shown_characters,
                )
            )
    return attributes


def keys_of(tables: Sequence[SourceTable], ids: Sequence[int]) -> list[NewKey]:
    """Give the keys of tables that are tracked, by the ids of their attributes."""
    found = []
    of_ids = iter(ids)
    for table in tables:
        names = [name for name, _ in table.columns]
        followed = {
            parts or (place,): attribute_id
            for place, ((_, _, parts), attribute_id) in enumerate(zip(table.attributes, of_ids, strict=False))
        }
        for key in table.keys:
            attribute_id = followed[tuple(names.index(column) for column in key.columns)]
            found.append(NewKey(attribute_id, *key[1:]))
    return found


def references_of(tables: Sequence[SourceTable], ids: Sequence[int]) -> list[NewReference]:
    """Give the foreign keys that tables declare, by the ids of their columns; not those to what is not read.

    They are in the order of the tracked key that they refer to, if there is one: so their tuples are followed.
    """
    columns: dict[tuple[str, str], dict[str, int]] = {}
    of_ids = iter(ids)
    for table in tables:
        of_table = [next(of_ids) for _ in table.attributes]
        columns[table.schema, table.name] = {name: of_table[place] for place, (name, _) in enumerate(table.columns)}
    keys = {(table.schema, table.name): [key.columns for key in table.keys] for table in tables}
    found = []
    for table in tables:
        own = columns[table.schema, table.name]
        for one in table.constraints.references:
            there = one.schema, one.table
            beside = dict(zip(one.referenced, one.columns, strict=True))
            order = next((key for key in keys.get(there, ()) if set(key) == beside.keys()), one.referenced)
            if own.keys() >= set(one.columns) and columns.get(there, {}).keys() >= beside.keys():
                other = columns[there]
                found.append(NewReference([own[beside[name]] for name in order], [other[name] for name in order]))
    return found


def describe(summary: Summary) -> str:
    """Tell a summary in a few lines."""
    stored = f"state version {summary.version}" if summary.version else "nothing stored"
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in summary.seconds.items() if stage != "total")
    images = "".join(f"\n{line}" for line in summary.images)
    tuples = f" and the tuples of {summary.tuples:,} composite keys" if summary.tuples else ""
    return (
        f"{summary.tables:,} tables, {summary.attributes:,} attributes{tuples}, {summary.rows:,} rows\n"
        f"{summary.values:,} values in {summary.clusters:,} clusters: {summary.inds:,} inclusion dependencies\n"
        f"{stored}; {summary.seconds['total']:.1f} s ({stages}){images}"
    )


def told_warnings(summary: Summary) -> list[str]:
    """Tell the first warnings, a line each, and how many more there are."""
    told = [f"warning: {warning}" for warning in summary.warnings[:WARNINGS_TOLD]]
    more = len(summary.warnings) - len(told)
    return [*told, f"... and {more} more"] if more else told
