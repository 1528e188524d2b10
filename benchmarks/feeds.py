"""Own changes as the measurements make them: as records of a feed, as cell deltas, netted in batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

Row = tuple[str | None, ...]
"""Cells of one row as text; None is NULL."""

Deltas = dict[str, dict[int, int]]
"""Value -> attribute id -> change of its frequency, never 0."""


@dataclass(frozen=True, slots=True)
class Change:
    """Hold one change of one row of a table; `before` is None for an insert, `after` for a delete."""

    operation: str
    table: str
    before: Row | None
    after: Row | None


def envelope(change: Change, schema: str, columns: Sequence[str], number: int) -> bytes:
    """Return a change as a record of a feed, in Debezium's shape without a schema."""
    record = {
        "before": None if change.before is None else dict(zip(columns, change.before, strict=True)),
        "after": None if change.after is None else dict(zip(columns, change.after, strict=True)),
        "op": change.operation,
        "ts_ms": 1_700_000_000_000 + number,
        "source": {"schema": schema, "table": change.table, "lsn": number, "txId": number, "ts_ms": 1_700_000_000_000},
    }
    return orjson.dumps(record)


def write_feed(path: Path, changes: Iterable[Change], schema: str, columns: Mapping[str, Sequence[str]]) -> Path:
    """Write changes as a file feed; `columns` has the column names of every table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as lines:
        for number, change in enumerate(changes, 1):
            lines.write(envelope(change, schema, columns[change.table], number) + b"\n")
    return path


def cell_deltas(change: Change, attribute_ids: Sequence[int]) -> Iterator[tuple[str, int, int]]:
    """Yield (value, attribute id, -1 or 1) for the cells that differ (Example 4.11)."""
    nothing = (None,) * len(attribute_ids)
    for attribute_id, old, new in zip(attribute_ids, change.before or nothing, change.after or nothing, strict=True):
        if old != new:
            if old is not None:
                yield old, attribute_id, -1
            if new is not None:
                yield new, attribute_id, 1


def net(changes: Iterable[Change], attribute_ids: Mapping[str, Sequence[int]]) -> Deltas:
    """Add up the cell deltas of a batch; what comes and goes within it is not there."""
    sums: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    for change in changes:
        for value, attribute_id, sign in cell_deltas(change, attribute_ids[change.table]):
            sums[value][attribute_id] += sign
    netted = {value: {a: delta for a, delta in deltas.items() if delta} for value, deltas in sums.items()}
    return {value: deltas for value, deltas in netted.items() if deltas}


def batches(changes: Sequence[Change], size: int) -> Iterator[Sequence[Change]]:
    """Cut changes into batches of `size`, the last one shorter."""
    return (changes[start : start + size] for start in range(0, len(changes), size))
