"""Own what a bootstrap is told of keeping values, against what was said of its source before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.core.errors import SourceError
from service.core.model import AttributeName
from service.core.shown_values import WHOLE, ShownValuesError, parse_shown, shown_of_tuple
from service.store.generation import NOT_READ, NewName, last_attribute_id
from service.store.shown_values import read_shown_by_id
from spark_jobs.sources import Options, SourceTable


def choose_shown(
    names: Sequence[NewName], said: str | None, columns: Mapping[str, int | None], options: Options
) -> list[int | None]:
    """Give beside names how many characters of values are to be kept, None for all.

    `said` was said of the source before, `columns` how it came out for each. What a column was told by itself stays
    until it is told something else: whoever reads a source anew has not forgotten its masks. Raises SourceError for a
    mask of no column, and for one that cannot be read.
    """
    try:
        before = None if said is None else parse_shown(said)
        of_source = None if options.store_values is None else parse_shown(options.store_values)
        masks = {column: parse_shown(what) for column, what in options.masks}
    except ShownValuesError as error:
        raise SourceError(str(error)) from None
    known = {str(name) for name, parts in names if parts is None}
    unknown = sorted(masks.keys() - known)
    if unknown:
        raise SourceError(f"--mask {unknown[0]}: the source has no such column; give schema.table.column.")
    told = {column: shown for column, shown in columns.items() if shown != before} | masks
    by_place = {
        (name.schema, name.table, ordinal): told.get(str(name), of_source) for ordinal, name in _ordinals(names)
    }
    return [
        told.get(str(name), of_source)
        if parts is None
        else shown_of_tuple(by_place[name.schema, name.table, part] for part in parts)
        for name, parts in names
    ]


def shown_by_id(connection: Any, ids: Sequence[int], shown: Sequence[int | None]) -> NDArray[np.int64] | None:
    """Say how many characters of values are kept of each attribute of the state, by id; None: all of all.

    `shown` was chosen for the attributes that are read, `ids` are theirs.
    """
    by_id = read_shown_by_id(connection)
    for attribute_id, characters in zip(ids, shown, strict=True):
        if attribute_id != NOT_READ:
            by_id[attribute_id] = WHOLE if characters is None else characters
    if set(by_id.values()) <= {WHOLE}:
        return None
    found = np.full(max(*ids, last_attribute_id(connection)) + 1, WHOLE, np.int64)
    found[list(by_id)] = list(by_id.values())
    return found


def _ordinals(names: Sequence[NewName]) -> list[tuple[int, AttributeName]]:
    """Number the columns of each table."""
    of_table: Counter[tuple[str, str]] = Counter()
    found = []
    for name, parts in names:
        if parts is None:
            found.append((of_table[name.schema, name.table], name))
            of_table[name.schema, name.table] += 1
    return found


def require_no_images(tables: Sequence[SourceTable], names: Sequence[NewName], shown: Sequence[int | None]) -> None:
    """Raise SourceError for a table whose rows are to be kept, and some of whose values are not."""
    rest = iter(zip(names, shown, strict=True))
    for table in tables:
        of_table = [next(rest) for _ in table.attributes]
        hidden = [name.column for (name, _), characters in of_table if characters is not None]
        if table.row_images and hidden:
            raise SourceError(
                f"{table}: its rows would be kept beside the state, and with them values of {', '.join(hidden)}, which "
                f"are not to be kept. Let its changes bring whole rows (of Postgres: ALTER TABLE ... REPLICA IDENTITY "
                f"FULL) and give --row-images never."
            )
