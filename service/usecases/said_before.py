"""Own what a source that is followed already was told at its reading, against what is said now."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from service.core.errors import SourceError
from service.core.shown_values import WHOLE, ShownValuesError, parse_mask, parse_shown, told_shown


def require_said(
    name: str,
    tables: Iterable[tuple[str, str]],
    said: str | None,
    columns: Mapping[str, int | None],
    exclude: Sequence[str],
    store_values: str | None,
    masks: Sequence[str],
) -> None:
    """Raise SourceError where more is kept of a source than is said now: it was said once, when it was read.

    `tables` are those that are followed, as changes name them, `said` is the source's `store_values`, and `columns`
    are how many characters of values are kept, None for all. That less is kept than is said is no fault: columns are
    masked later, too.
    """
    try:
        of_masks = [(column, parse_shown(what)) for column, what in map(parse_mask, masks)]
        of_source = None if store_values is None else parse_shown(store_values)
        before = None if said is None else parse_shown(said)
    except ShownValuesError as error:
        raise SourceError(str(error)) from None
    anew = "read it anew: the same command with --replace"
    for column, wanted in of_masks:
        if column not in columns:
            raise SourceError(f"--mask {column}: the source {name} has no such column; give schema.table.column.")
        if _most(columns[column]) > _most(wanted):
            raise SourceError(
                f"The source {name} is followed already, and of {column} more is kept than --mask says now: run "
                f"`{shlex.join(['subsetd', 'attribute', 'mask', column, '--keep', told_shown(wanted)])}`, or {anew}."
            )
    if _most(before) > _most(of_source):
        raise SourceError(
            f"The source {name} is followed already, and more of its values is kept than --store-values says now: "
            f"mask its columns by `subsetd attribute mask`, or {anew}."
        )
    for schema, table in tables:
        if {table, f"{schema}.{table}"} & set(exclude):
            raise SourceError(
                f"The source {name} is followed already, and {schema}.{table} with it, which --exclude leaves out now: "
                f"drop its columns by `subsetd attribute drop`, or {anew}."
            )


def _most(characters: int | None) -> int:
    return WHOLE if characters is None else characters
