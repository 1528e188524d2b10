"""Own how a matrix of coefficients is written: as CSV, and as an Arrow IPC stream; and which of them a client wants."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from service.core.csv_lines import csv_lines
from service.usecases.coefficients import Matrix
from service.usecases.sketched_columns import ColumnInfo, key_of, name_of

CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"


def preferred(accept: str | None) -> str | None:
    """Choose between the two by the header Accept (RFC 9110, section 12.5.1): CSV if both will do, None if neither."""
    weights = {}
    for media_range in (accept or "*/*").split(","):
        kind, *parameters = (part.strip().lower() for part in media_range.split(";"))
        given = dict(part.split("=", 1) for part in parameters if "=" in part)
        try:
            weights[kind] = float(given.get("q", 1))
        except ValueError:
            weights[kind] = 0.0
    found = {}
    for offered in (CSV, ARROW):
        ranges = (offered, f"{offered.split('/')[0]}/*", "*/*")
        found[offered] = next((weights[one] for one in ranges if one in weights), 0.0)
    best = max(found, key=lambda one: found[one])
    return best if found[best] > 0 else None


def to_csv(matrix: Matrix) -> bytes:
    """Write a matrix as CSV: the column `dependent`, then one for each referenced column; empty where there is none."""
    rows = zip(_labels(matrix.dependents), matrix.values.tolist(), strict=True)
    cells = ([label, *(None if math.isnan(cell) else cell for cell in row)] for label, row in rows)
    return "".join(csv_lines(chain([["dependent", *_labels(matrix.referenced)]], cells))).encode()


def to_arrow(matrix: Matrix, metadata: Mapping[str, str]) -> bytes:
    """Write a matrix as an Arrow IPC stream of the same columns, float64 with nulls; `metadata` goes to its schema."""
    cells = [pa.array(column, mask=np.isnan(column)) for column in matrix.values.T]
    table = pa.table(
        [pa.array(_labels(matrix.dependents), pa.string()), *cells],
        names=["dependent", *_labels(matrix.referenced)],
        metadata=dict(metadata),
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _labels(columns: Sequence[ColumnInfo]) -> list[str]:
    """Name columns: by full name, or by id where two have the same."""
    names = [name_of(one) for one in columns]
    seen = Counter(names)
    return [name if seen[name] == 1 else f"id:{key_of(one)}" for name, one in zip(names, columns, strict=True)]
