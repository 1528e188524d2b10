"""Own what comes of a bootstrap: its attributes with their counters, its summary, and how that is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.core.model import AttributeName
from service.store.generation import NOT_READ, NewAttribute
from spark_jobs.sources import Options, SourceTable

WARNINGS_TOLD = 5


@dataclass(slots=True)
class Summary:
    """Tell what a bootstrap did; `version` is None when nothing was stored."""

    version: int | None = None
    tables: int = 0
    attributes: int = 0
    rows: int = 0
    values: int = 0
    clusters: int = 0
    inds: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    pairs: NDArray[np.int32] = field(default_factory=lambda: np.zeros((0, 2), np.int32), repr=False)
    differences: list[str] = field(default_factory=list)
    warnings: Sequence[str] = ()
    images: Sequence[str] = ()


def attributes_of(
    tables: Sequence[SourceTable],
    names: Sequence[AttributeName],
    ids: Sequence[int],
    row_counts: NDArray[np.int64],
    counters: NDArray[np.int64],
    options: Options,
) -> list[NewAttribute]:
    """Give the attributes of tables with what was counted: rows by table, `counters` as PartitionResult has them."""
    attributes: list[NewAttribute] = []
    of_names = iter(zip(names, ids, strict=True))
    for number, table in enumerate(tables):
        rows = int(row_counts[number])
        for ordinal, (_, data_type) in enumerate(table.columns):
            name, attribute_id = next(of_names)
            if attribute_id == NOT_READ:
                continue
            distinct, repeated, occurrences = (int(c) for c in counters[:, attribute_id])
            attributes.append(
                NewAttribute(
                    attribute_id,
                    name,
                    ordinal,
                    data_type,
                    rows,
                    rows - occurrences,
                    None if options.sketch_only else distinct,
                    None if options.sketch_only or options.insert_only else repeated,
                )
            )
    return attributes


def describe(summary: Summary) -> str:
    """Tell a summary in a few lines."""
    stored = f"state version {summary.version}" if summary.version else "nothing stored"
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in summary.seconds.items() if stage != "total")
    images = "".join(f"\n{line}" for line in summary.images)
    return (
        f"{summary.tables:,} tables, {summary.attributes:,} attributes, {summary.rows:,} rows\n"
        f"{summary.values:,} values in {summary.clusters:,} clusters: {summary.inds:,} inclusion dependencies\n"
        f"{stored}; {summary.seconds['total']:.1f} s ({stages}){images}"
    )


def told_warnings(summary: Summary) -> list[str]:
    """Tell the first warnings, a line each, and how many more there are."""
    told = [f"warning: {warning}" for warning in summary.warnings[:WARNINGS_TOLD]]
    more = len(summary.warnings) - len(told)
    return [*told, f"... and {more} more"] if more else told
