"""Own which tables of a source are left out: those that `--exclude` names, as `table` or `schema.table`."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from service.core.errors import SourceError


def not_excluded(tables: Iterable[tuple[str, str]], excluded: Collection[str]) -> list[tuple[str, str]]:
    """Give the tables (schema, table) that are not excluded; raise SourceError for an exclusion that fits none.

    Where there are no tables at all it is not the exclusion that is wrong.
    """
    found = list(tables)
    known = {name for schema, table in found for name in (table, f"{schema}.{table}")}
    for name in excluded:
        if found and name not in known:
            names = dict.fromkeys(table for _, table in found)
            raise SourceError(f"--exclude {name}: the source has no such table. It has: {', '.join([*names][:20])}.")
    return [(schema, table) for schema, table in found if not {table, f"{schema}.{table}"} & set(excluded)]
